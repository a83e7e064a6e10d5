//! Leaves out the values that a filter of readers hides.

use std::sync::Arc;

use pegel_metric::{Millis, STALE_NAN};

use crate::read_filters::ValueRange;

use super::sample_builder::{SampleBuilder, StepBoundaries, TimeColumn};

/// Passes on the samples whose values are in a range, before they are aggregated.
pub(super) struct FilteredBuilder<'a, B> {
    pub builder: &'a mut B,
    pub range: ValueRange,
}

impl<B: SampleBuilder> SampleBuilder for FilteredBuilder<'_, B> {
    fn overlaps(&self, min: Millis, max: Millis) -> bool {
        self.builder.overlaps(min, max)
    }

    fn step_boundaries(&self, times: &[Millis]) -> StepBoundaries {
        self.builder.step_boundaries(times)
    }

    fn add_column(&mut self, column: &Arc<TimeColumn>, values: &[f64]) {
        let rows = column.boundaries.rows.clone();
        let times = column.times[rows.clone()].iter().copied();
        self.add_samples(times.zip(values[rows].iter().copied()));
    }

    fn add_samples(&mut self, samples: impl Iterator<Item = (Millis, f64)>) {
        let range = self.range;
        self.builder
            .add_samples(samples.filter(|(_, value)| range.shows(*value)));
    }

    fn bytes(&self) -> usize {
        self.builder.bytes()
    }
}

/// Replaces each run of hidden values by one stale marker: without it, PromQL would show the value
/// before the run for five minutes more.
pub(super) fn mark_hidden(samples: Vec<(Millis, f64)>, range: ValueRange) -> Vec<(Millis, f64)> {
    let mut is_hidden_run = false;
    let mut marked = samples;
    marked.retain_mut(|(_, value)| {
        if range.shows(*value) {
            is_hidden_run = false;
            return true;
        }
        *value = STALE_NAN;
        !std::mem::replace(&mut is_hidden_run, true)
    });
    marked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_hidden_values_is_one_stale_marker() {
        let range = ValueRange { min: 0.0, max: 2.0 };
        let samples = [1.0, 5.0, f64::NAN, 2.0, -1.0, STALE_NAN, 0.0];
        let samples = samples.iter().zip(0..).map(|(value, time)| (time, *value));
        let marked = mark_hidden(samples.collect(), range);
        let stale = STALE_NAN.to_bits();
        let expected = [
            (0, 1.0_f64.to_bits()),
            (1, stale),
            (3, 2.0_f64.to_bits()),
            (4, stale),
            (5, stale),
            (6, 0.0_f64.to_bits()),
        ];
        let found: Vec<(Millis, u64)> = marked.iter().map(|(t, v)| (*t, v.to_bits())).collect();
        assert_eq!(found, expected);
    }
}
