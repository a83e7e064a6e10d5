//! One series: its last changes, and the rate computed from them.

use std::collections::VecDeque;

use pegel_metric::{MetricKind, Series};

/// Rates are averages over this many seconds, or over one sampling interval if that is longer.
const WINDOW: f64 = 3.0;
/// More changes than a window holds at any practical refresh rate.
const CHANGES_MAX: usize = 256;

/// The last changes of a series. Between two changes the value is constant: an agent sends changes
/// only.
#[derive(Debug)]
pub(crate) struct SeriesTrack {
    pub series: Series,
    changes: VecDeque<ValueChange>,
    /// Whether changes may be missing after the last one.
    has_gap: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ValueChange {
    /// The time of the sample, in seconds.
    pub ts: f64,
    pub value: f64,
}

impl SeriesTrack {
    pub(crate) fn new(series: Series) -> SeriesTrack {
        SeriesTrack {
            series,
            changes: VecDeque::with_capacity(2),
            has_gap: false,
        }
    }

    /// Replaces the series, whose family may have changed, and keeps its values.
    pub(crate) fn with_series(self, series: Series) -> SeriesTrack {
        SeriesTrack { series, ..self }
    }

    pub(crate) fn last(&self) -> Option<ValueChange> {
        self.changes.back().copied()
    }

    pub(crate) fn is_counter(&self) -> bool {
        self.series.family().kind == MetricKind::Counter
    }

    /// Adds a change; returns the time since the previous one.
    pub(crate) fn push(&mut self, change: ValueChange) -> Option<f64> {
        let gap = self.last().map(|last| change.ts - last.ts);
        match gap {
            // Out of order: a newer change arrived before.
            Some(gap) if gap < 0.0 => return None,
            // Duplicate sample.
            Some(0.0) => drop(self.changes.pop_back()),
            _ => {}
        }
        if std::mem::take(&mut self.has_gap) {
            self.changes.clear();
            self.changes.push_back(change);
            return None;
        }
        if self.changes.len() == CHANGES_MAX {
            self.changes.pop_front();
        }
        self.changes.push_back(change);
        gap.filter(|gap| *gap > 0.0)
    }

    /// Removes changes before a time, except the last one, whose value held at that time.
    pub(crate) fn prune(&mut self, before: f64) {
        while self.changes.get(1).is_some_and(|next| next.ts <= before) {
            self.changes.pop_front();
        }
    }

    /// Discards all changes but the last: changes may be missing, or the clock was set back to
    /// `now`.
    pub(crate) fn invalidate_rate(&mut self, now: f64) {
        let last = self.changes.pop_back();
        self.changes.clear();
        self.changes.extend(last.map(|last| ValueChange {
            ts: last.ts.min(now),
            ..last
        }));
        self.has_gap = true;
    }

    /// Returns the increase per second by sample times; `None` before the second sample.
    ///
    /// `now` is the time of the node's newest samples, `period` the sampling interval of this
    /// family, if known. Samples are taken at multiples of their period, so the last one was taken
    /// at such a multiple even if an unchanged value was not sent again.
    pub(crate) fn rate(&self, now: f64, period: Option<f64>) -> Option<f64> {
        let (first, last) = (self.changes.front()?, self.changes.back()?);
        let sampled = period.map_or(now, |period| multiple_below(now, period));
        let end = sampled.max(last.ts);
        let start = (end - averaging_window(period)).max(first.ts);
        if end - start < 1e-3 {
            return None;
        }
        Some(self.increase(start, end) / (end - start))
    }

    /// Returns the increase in `(start, end]`. A counter that decreases was reset to zero in
    /// between.
    fn increase(&self, start: f64, end: f64) -> f64 {
        let mut previous = None;
        let mut sum = 0.0;
        for change in self.changes.iter().take_while(|change| change.ts <= end) {
            if let Some(previous) = previous.filter(|_| change.ts > start) {
                sum += if change.value >= previous {
                    change.value - previous
                } else {
                    change.value
                };
            }
            previous = Some(change.value);
        }
        sum
    }
}

/// Returns the averaging window: whole periods, so that every average covers the same number of
/// samples.
pub(super) fn averaging_window(period: Option<f64>) -> f64 {
    match period {
        Some(period) => (WINDOW / period - 1e-6).ceil().max(1.0) * period,
        None => WINDOW,
    }
}

fn multiple_below(time: f64, period: f64) -> f64 {
    (time / period + 1e-6).floor() * period
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pegel_metric::Family;

    use super::*;

    const START: f64 = 1_700_000_000.0;

    fn track(changes: &[(f64, f64)]) -> SeriesTrack {
        let family = Family::new("c_total", MetricKind::Counter, "", 1, "");
        let mut track = SeriesTrack::new(Series::new(Arc::new(family), &[]).expect("valid"));
        for (offset, value) in changes {
            track.push(ValueChange {
                ts: START + offset,
                value: *value,
            });
        }
        track
    }

    fn rate(changes: &[(f64, f64)], now: f64, period: Option<f64>) -> Option<f64> {
        track(changes).rate(START + now, period)
    }

    #[test]
    fn one_sample_has_no_rate() {
        assert_eq!(rate(&[], 0.0, None), None);
        assert_eq!(rate(&[(0.0, 5.0)], 0.0, Some(0.5)), None);
    }

    #[test]
    fn a_rate_is_the_increase_between_samples() {
        let steady = [(0.0, 0.0), (0.5, 5.0), (1.0, 10.0), (1.5, 15.0)];
        assert_eq!(rate(&steady, 1.5, Some(0.5)), Some(10.0));
        assert_eq!(rate(&steady, 1.5, None), Some(10.0));
    }

    #[test]
    fn a_rate_does_not_depend_on_the_time_of_the_query() {
        let steady = [(0.0, 0.0), (5.0, 50.0), (10.0, 100.0)];
        for now in [10.0, 11.7, 14.9] {
            assert_eq!(rate(&steady, now, Some(5.0)), Some(10.0), "{now}");
        }
    }

    #[test]
    fn the_rate_of_an_unchanged_counter_falls_to_zero() {
        let stopped = [(0.0, 0.0), (0.5, 5.0), (1.0, 10.0)];
        assert_eq!(rate(&stopped, 2.0, Some(0.5)), Some(5.0));
        assert_eq!(rate(&stopped, 4.0, Some(0.5)), Some(0.0));
        assert_eq!(rate(&[(0.0, 7.0)], 3.0, None), Some(0.0));
    }

    #[test]
    fn a_reset_counts_from_zero() {
        let reset = [(0.0, 100.0), (1.0, 110.0), (2.0, 4.0)];
        assert_eq!(rate(&reset, 2.0, Some(1.0)), Some(7.0));
    }

    #[test]
    fn older_samples_count_only_after_a_clock_step() {
        let mut track = track(&[(0.0, 1.0), (1.0, 2.0)]);
        let back = ValueChange {
            ts: START - 100.0,
            value: 3.0,
        };
        assert_eq!(track.push(back), None);
        assert_eq!(track.last().map(|last| last.value), Some(2.0));
        track.invalidate_rate(START - 100.5);
        assert_eq!(track.push(back), None);
        assert_eq!(track.rate(START - 100.0, Some(0.5)), None);
        assert_eq!(track.last(), Some(back));
    }

    #[test]
    fn pruning_does_not_change_the_rate() {
        let changes = [(0.0, 0.0), (1.0, 1.0), (2.0, 5.0), (3.0, 9.0), (4.0, 9.5)];
        let mut track = track(&changes);
        let before = track.rate(START + 4.0, Some(1.0));
        track.prune(START + 1.0);
        assert_eq!(track.changes.len(), 4);
        assert_eq!(track.rate(START + 4.0, Some(1.0)), before);
        track.invalidate_rate(START + 4.0);
        assert_eq!(track.rate(START + 4.0, Some(1.0)), None);
        assert_eq!(track.last().map(|last| last.value), Some(9.5));
    }

    #[test]
    fn windows_hold_whole_periods() {
        assert_eq!(
            [Some(0.5), Some(5.0), Some(2.0), None].map(averaging_window),
            [3.0, 5.0, 4.0, 3.0]
        );
        assert!((averaging_window(Some(0.7)) - 3.5).abs() < 1e-9);
    }
}
