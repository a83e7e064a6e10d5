//! Joins the samples of an engine with those of the store, series by series, for PromQL
//! (`promql::store_source`) and for stored points (`store_reader`). Every time is read from one
//! side: before the border from the engine, at and after it from the store.

use std::collections::HashMap;
use std::ops::Range;

use pegel_metric::{Millis, STALE_NAN, is_stale};
use pegel_store::{CompleteSince, ShownValues};

use super::{HistoryAnswer, HistorySeries};
use crate::promql::LabelSet;

/// The samples of one series in the store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoredColumn<'a> {
    pub times: &'a [Millis],
    pub values: &'a [f64],
}

/// Joined samples, in the order of their times.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct JoinedColumn {
    pub times: Vec<Millis>,
    pub values: Vec<f64>,
}

/// How the samples of one series are joined.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JoinRule {
    /// The time from which on the store is complete.
    pub border: Millis,
    /// Earlier samples are hidden from readers.
    pub hidden_before: Option<Millis>,
    /// The values that filters of readers leave.
    pub shown: ShownValues,
}

/// The samples of the history for one selection. A series is removed when it is joined; those that
/// remain have no samples in the store.
#[derive(Debug)]
pub(crate) struct JoinedHistory {
    series: HashMap<LabelSet, HistorySeries>,
    pub complete: CompleteSince,
    /// The time before which the history could not be read.
    complete_from: Millis,
    /// The selected range, both ends included.
    range: (Millis, Millis),
}

impl JoinedHistory {
    pub(crate) fn new(
        answer: HistoryAnswer<HistorySeries>,
        complete: CompleteSince,
        range: (Millis, Millis),
    ) -> JoinedHistory {
        let series = answer.series.into_iter();
        JoinedHistory {
            series: series.map(|one| (one.labels.clone(), one)).collect(),
            complete,
            complete_from: answer.complete_from,
            range,
        }
    }

    /// Returns the labels of the series that are not joined yet.
    pub(crate) fn labels(&self) -> impl Iterator<Item = &LabelSet> {
        self.series.keys()
    }

    /// Removes and returns a series.
    pub(crate) fn take(&mut self, labels: &LabelSet) -> Option<HistorySeries> {
        self.series.remove(labels)
    }

    /// Returns the joined samples of a series; `None` if the history does not have it.
    pub(crate) fn join(
        &mut self,
        labels: &LabelSet,
        rule: JoinRule,
        stored: StoredColumn<'_>,
    ) -> Option<JoinedColumn> {
        let history = self.series.remove(labels)?;
        Some(self.joined(&history, rule, stored))
    }

    /// Removes and returns the series that are not joined yet, sorted by labels.
    pub(crate) fn take_rest(&mut self) -> Vec<HistorySeries> {
        let mut rest: Vec<HistorySeries> = self.series.drain().map(|(_, one)| one).collect();
        rest.sort_unstable_by(|a, b| a.labels.cmp(&b.labels));
        rest
    }

    /// Returns the samples of a series that the store does not have. Its class of inputs is
    /// unknown, so the latest border applies: the store would have the samples of a class that is
    /// complete for longer.
    pub(crate) fn alone(&self, history: &HistorySeries, shown: ShownValues) -> JoinedColumn {
        let rule = JoinRule {
            border: self.complete.of_all(),
            hidden_before: None,
            shown,
        };
        let stored = StoredColumn {
            times: &[],
            values: &[],
        };
        self.joined(history, rule, stored)
    }

    fn joined(
        &self,
        history: &HistorySeries,
        rule: JoinRule,
        stored: StoredColumn<'_>,
    ) -> JoinedColumn {
        let (start, end) = self.range;
        let from = start
            .max(self.complete_from)
            .max(rule.hidden_before.unwrap_or(start));
        let until = rule.border.min(end.saturating_add(1));
        let older = between(&history.times, from, until);
        // Where the history could not be read, the store may still have samples.
        let unread = between(stored.times, start, self.complete_from.min(rule.border));
        let newer = between(stored.times, rule.border.max(start), Millis::MAX);
        let capacity = unread.len() + older.len() + newer.len() + 1;
        let mut joined = JoinedColumn {
            times: Vec::with_capacity(capacity),
            values: Vec::with_capacity(capacity),
        };
        joined.extend(stored.times, stored.values, unread);
        let is_joined = !older.is_empty();
        joined.extend_shown(history, older, rule.shown);
        if is_joined {
            let next = newer.clone().next().map(|at| stored.times[at]);
            joined.end_at_marker(history, rule.border, next.unwrap_or(end.saturating_add(1)));
        }
        joined.extend(stored.times, stored.values, newer);
        joined
    }
}

impl JoinedColumn {
    fn extend(&mut self, times: &[Millis], values: &[f64], rows: Range<usize>) {
        self.times.extend_from_slice(&times[rows.clone()]);
        self.values.extend_from_slice(&values[rows]);
    }

    /// Adds samples of the history. A run of values that a filter hides becomes one stale marker.
    fn extend_shown(&mut self, history: &HistorySeries, rows: Range<usize>, shown: ShownValues) {
        if shown == ShownValues::All {
            return self.extend(&history.times, &history.values, rows);
        }
        let mut is_hidden = false;
        for at in rows {
            let value = history.values[at];
            let value = match shown.contain(value) {
                true => value,
                false if is_hidden => continue,
                false => STALE_NAN,
            };
            is_hidden = is_stale(value);
            self.times.push(history.times[at]);
            self.values.push(value);
        }
    }

    /// Ends a series whose first sample after the border is a stale marker.
    fn end_at_marker(&mut self, history: &HistorySeries, border: Millis, before: Millis) {
        let at = history.times.partition_point(|time| *time < border);
        let marker = history.times.get(at).zip(history.values.get(at));
        if let Some((time, value)) = marker
            && *time < before
            && is_stale(*value)
        {
            self.times.push(*time);
            self.values.push(*value);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.times.is_empty()
    }
}

/// Returns the positions of the times from `from` to before `until`.
fn between(times: &[Millis], from: Millis, until: Millis) -> Range<usize> {
    let first = times.partition_point(|time| *time < from);
    let last = times.partition_point(|time| *time < until);
    first..last.max(first)
}

#[cfg(test)]
mod tests {
    use pegel_store::{Store, StoreOptions};
    use pegel_testkit::{FakeClock, TempDir};

    use super::*;

    const BORDER: Millis = 1_700_000_000_000;

    fn labels() -> LabelSet {
        LabelSet::new([("__name__", "m")])
    }

    /// The history of one series for a store that exists since `BORDER`.
    fn history(complete_from: Millis, samples: &[(Millis, f64)]) -> JoinedHistory {
        let dir = TempDir::new();
        let mut options = StoreOptions::new(dir.join("store"));
        options.clock = std::sync::Arc::new(FakeClock::new(BORDER));
        let complete = Store::open(options).expect("opens").complete_since();
        assert_eq!(complete.of_all(), BORDER);
        let answer = HistoryAnswer {
            series: vec![HistorySeries {
                labels: labels(),
                times: samples.iter().map(|(time, _)| BORDER + time).collect(),
                values: samples.iter().map(|(_, value)| *value).collect(),
            }],
            complete_from: BORDER + complete_from,
            problem: None,
        };
        JoinedHistory::new(answer, complete, (BORDER - 100, BORDER + 100))
    }

    fn rule(shown: ShownValues) -> JoinRule {
        JoinRule {
            border: BORDER,
            hidden_before: None,
            shown,
        }
    }

    /// Joins with samples of the store; times are relative to the border.
    fn join(mut history: JoinedHistory, rule: JoinRule, stored: &[(Millis, f64)]) -> String {
        let times: Vec<Millis> = stored.iter().map(|(time, _)| BORDER + time).collect();
        let values: Vec<f64> = stored.iter().map(|(_, value)| *value).collect();
        let column = StoredColumn {
            times: &times,
            values: &values,
        };
        let joined = history
            .join(&labels(), rule, column)
            .expect("in the history");
        assert!(history.take_rest().is_empty());
        assert!(joined.times.is_sorted_by(|a, b| a < b), "{joined:?}");
        let samples = joined.times.iter().zip(&joined.values);
        let samples = samples.map(|(time, value)| match is_stale(*value) {
            true => format!("{}:stale", time - BORDER),
            false => format!("{}:{value}", time - BORDER),
        });
        samples.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn every_time_is_read_from_one_side() {
        let history = history(
            -1_000,
            &[(-101, 1.), (-100, 2.), (-1, 3.), (0, 4.), (50, 5.)],
        );
        let stored = [(-50, 10.), (-1, 11.), (0, 12.), (100, 13.)];
        assert_eq!(
            join(history, rule(ShownValues::All), &stored),
            "-100:2 -1:3 0:12 100:13"
        );
    }

    #[test]
    fn the_store_fills_in_where_the_history_cannot_be_read() {
        let history = history(-40, &[(-60, 1.), (-30, 2.)]);
        let stored = [(-50, 10.), (-41, 11.), (-20, 12.), (5, 13.)];
        assert_eq!(
            join(history, rule(ShownValues::All), &stored),
            "-50:10 -41:11 -30:2 5:13"
        );
    }

    #[test]
    fn a_series_that_ended_at_the_border_stays_ended() {
        let samples = [(-10, 1.), (5, STALE_NAN), (15, 7.)];
        let all = rule(ShownValues::All);
        assert_eq!(join(history(-1_000, &samples), all, &[]), "-10:1 5:stale");
        // The store has it again, before the marker or after it.
        assert_eq!(
            join(history(-1_000, &samples), all, &[(3, 2.)]),
            "-10:1 3:2"
        );
        assert_eq!(
            join(history(-1_000, &samples), all, &[(9, 2.)]),
            "-10:1 5:stale 9:2"
        );
        // A marker that does not follow the border at once belongs to samples of the store.
        let later = [(-10, 1.), (5, 2.), (6, STALE_NAN)];
        assert_eq!(join(history(-1_000, &later), all, &[]), "-10:1");
    }

    #[test]
    fn hidden_samples_stay_hidden() {
        let samples = [(-30, 1.), (-20, 50.), (-15, 60.), (-10, 2.)];
        let range = pegel_store::ValueRange { min: 0., max: 9. };
        let within = rule(ShownValues::Within(range));
        assert_eq!(
            join(history(-1_000, &samples), within, &[(1, 3.)]),
            "-30:1 -20:stale -10:2 1:3"
        );
        let hidden = JoinRule {
            hidden_before: Some(BORDER - 15),
            ..rule(ShownValues::All)
        };
        assert_eq!(
            join(history(-1_000, &samples), hidden, &[(1, 3.)]),
            "-15:60 -10:2 1:3"
        );
    }
}
