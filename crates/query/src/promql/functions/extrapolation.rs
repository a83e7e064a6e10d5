//! `rate`, `increase` and `delta`: the change between the first and the last sample of a window,
//! extrapolated to the ends of the window.
//!
//! Where samples are so far from an end that the series probably begins or ends inside of the
//! window, half of the distance between samples is added instead. A counter is not extrapolated to
//! before the time at which it would have been zero. The order of the operations is that of
//! Prometheus: the last bit can decide whether the next function sees a reset.
//!
//! All but the last step depends on times only, and is computed once for all series that share
//! their times.

use std::sync::Arc;

use pegel_metric::Millis;

use super::super::node::RangeNode;
use super::super::selection::{COMPARED_BLOCK, WindowBounds};
use super::super::steps::Steps;
use super::super::value::ABSENT;

/// One of the functions.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExtrapolatedChange {
    /// Whether values only grow, except for resets to zero.
    pub is_counter: bool,
    /// Whether the change is that per second, not that per window.
    pub is_rate: bool,
}

/// The times of one window.
#[derive(Debug, Clone, Copy)]
struct WindowSpan {
    /// The first and the last sample, as indexes.
    first: usize,
    last: usize,
    /// Seconds between the two, and from each to the end of the window that is next to it.
    sampled: f64,
    to_start: f64,
    to_end: f64,
    seconds_per_unit: f64,
    /// What a change is multiplied by, unless it is one of a counter that began inside.
    factor: f64,
}

/// The spans of all windows over one list of timestamps, reused while the list stays the same.
#[derive(Debug, Default)]
pub(super) struct SpanCache {
    times: Option<Arc<[Millis]>>,
    /// `None` for windows with fewer than two samples.
    spans: Vec<Option<WindowSpan>>,
}

impl SpanCache {
    /// Returns the value of the function at each step.
    pub(super) fn changes(
        &mut self,
        function: ExtrapolatedChange,
        (times, values): (&Arc<[Millis]>, &[f64]),
        bounds: &[WindowBounds],
        (range, steps): (&RangeNode, &Steps),
    ) -> Vec<f64> {
        let last = self.times.as_ref();
        if !last.is_some_and(|last| Arc::ptr_eq(last, times)) {
            let spans = bounds.iter().zip(steps.times()).map(|(bounds, step)| {
                let end = range.shift.apply(step);
                let window = (end.saturating_sub(range.range), end);
                WindowSpan::new(times, *bounds, window, function.is_rate)
            });
            self.spans = spans.collect();
            self.times = Some(times.clone());
        }
        let resets = if function.is_counter {
            find_resets(values)
        } else {
            Vec::new()
        };
        let change = |span: &Option<WindowSpan>| match span {
            Some(span) => span.change(values, &resets, function.is_counter),
            None => ABSENT,
        };
        self.spans.iter().map(change).collect()
    }
}

impl WindowSpan {
    fn new(
        times: &[Millis],
        bounds: WindowBounds,
        (start, end): (Millis, Millis),
        is_rate: bool,
    ) -> Option<WindowSpan> {
        let last = bounds.until.checked_sub(1)?;
        let intervals = last.checked_sub(bounds.from).filter(|count| *count > 0)?;
        let seconds = |from: Millis, to: Millis| (to - from) as f64 / 1_000.0;
        let sampled = seconds(times[bounds.from], times[last]);
        let between = sampled / intervals as f64;
        let threshold = between * 1.1;
        let within = |distance: f64| {
            if distance >= threshold {
                between / 2.0
            } else {
                distance
            }
        };
        let mut span = WindowSpan {
            first: bounds.from,
            last,
            sampled,
            to_start: within(seconds(start, times[bounds.from])),
            to_end: within(seconds(times[last], end)),
            seconds_per_unit: if is_rate { seconds(start, end) } else { 1.0 },
            factor: 0.0,
        };
        span.factor = span.factor_from(span.to_start);
        Some(span)
    }

    fn factor_from(&self, to_start: f64) -> f64 {
        (self.sampled + to_start + self.to_end) / self.sampled / self.seconds_per_unit
    }

    #[inline]
    fn change(&self, values: &[f64], resets: &[usize], is_counter: bool) -> f64 {
        let old = values[self.first];
        let mut change = values[self.last] - old;
        if !resets.is_empty() {
            for index in resets_between(resets, self.first, self.last) {
                change += values[index - 1];
            }
        }
        if is_counter && change > 0.0 && old >= 0.0 && !self.begins_before(old, change) {
            let to_zero = self.sampled * (old / change);
            return change * self.factor_from(self.to_start.min(to_zero));
        }
        change * self.factor
    }

    /// Returns whether a counter was certainly not zero within the window, without a division.
    fn begins_before(&self, old: f64, change: f64) -> bool {
        old * self.sampled > 1.000_001 * self.to_start * change
    }
}

/// Returns the indexes of the samples that are smaller than the one before.
fn find_resets(values: &[f64]) -> Vec<usize> {
    let mut resets = Vec::new();
    let after = values.get(1..).unwrap_or_default();
    let blocks = values
        .chunks(COMPARED_BLOCK)
        .zip(after.chunks(COMPARED_BLOCK));
    for (number, (before, after)) in blocks.enumerate() {
        let mut falls = false;
        let pairs = before.iter().zip(after);
        for (before, after) in pairs.clone() {
            falls |= after < before;
        }
        if falls {
            let first = number * COMPARED_BLOCK + 1;
            let fallen = pairs.enumerate().filter(|(_, pair)| pair.1 < pair.0);
            resets.extend(fallen.map(|(index, _)| first + index));
        }
    }
    resets
}

/// Returns the resets from one sample to another. That of the first is not one of them: the sample
/// before it lies outside.
fn resets_between(resets: &[usize], first: usize, last: usize) -> &[usize] {
    let from = resets.partition_point(|index| *index <= first);
    let until = resets.partition_point(|index| *index <= last);
    &resets[from..until]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resets_belong_to_the_window_that_has_both_samples() {
        let resets = find_resets(&[1.0, 2.0, 1.0, 3.0, 0.0, f64::NAN, 1.0]);
        assert_eq!(resets, [2, 4]);
        assert_eq!(resets_between(&resets, 0, 6), [2, 4]);
        assert_eq!(resets_between(&resets, 2, 4), [4]);
        assert_eq!(resets_between(&resets, 1, 1), [0; 0]);
        assert_eq!(resets_between(&resets, 4, 4), [0; 0]);
    }

    #[test]
    fn resets_are_found_at_the_ends_of_blocks() {
        for reset in 1..3 * COMPARED_BLOCK {
            let value = |index| if index < reset { 10 + index } else { index - reset } as f64;
            let values: Vec<f64> = (0..3 * COMPARED_BLOCK).map(value).collect();
            assert_eq!(find_resets(&values), [reset]);
        }
        assert_eq!((find_resets(&[]), find_resets(&[1.0])), (vec![], vec![]));
    }

    #[test]
    fn the_shortcut_changes_no_bit() {
        // A counter that is zero at different distances before the window.
        for start in 0..2_000 {
            let values = [f64::from(start) * 0.1, f64::from(start) * 0.1 + 7.3];
            let times = [2_000, 12_000];
            let bounds = WindowBounds { from: 0, until: 2 };
            let span = WindowSpan::new(&times, bounds, (0, 15_000), true).expect("two samples");
            let change = values[1] - values[0];
            let to_zero = span.sampled * (values[0] / change);
            let expected = change * span.factor_from(span.to_start.min(to_zero));
            assert_eq!(
                span.change(&values, &[], true).to_bits(),
                expected.to_bits()
            );
        }
    }
}
