//! Collects the samples of one series as a column of times and a column of values.
//!
//! The series of a tick group have the same times. Their column of times is built once: as long as
//! a series consists of the same parts as the one before, its times are not even compared.

use std::sync::Arc;

use pegel_metric::Millis;

use crate::range_query::SampleColumn;

use super::sample_builder::{SampleBuilder, StepBoundaries, TimeColumn};

/// A time column and its position in the times of a series.
type TimesPart = (usize, Arc<TimeColumn>);

#[derive(Debug, Default)]
pub(super) struct ColumnBuilder {
    start: Millis,
    end: Millis,
    values: Vec<f64>,
    /// The times of the series before.
    shared: Arc<[Millis]>,
    /// The time columns in `shared`, by their position there. Holding them ensures that an equal
    /// address is the same column.
    shared_parts: Vec<TimesPart>,
    /// The number of `shared_parts` that precede the next sample.
    parts_passed: usize,
    /// The times and parts of the current series, from the moment at which they differ from those
    /// of the series before.
    own: Option<(Vec<Millis>, Vec<TimesPart>)>,
}

impl ColumnBuilder {
    /// Begins the next series, of which samples from `start` to `end` are included. Returns whether
    /// the range differs from that of the series before: then cached time columns are invalid.
    pub(super) fn begin_series(&mut self, (start, end): (Millis, Millis)) -> bool {
        self.values.clear();
        self.parts_passed = 0;
        self.own = None;
        let before = (self.start, self.end);
        (self.start, self.end) = (start, end);
        before != (start, end)
    }

    /// Returns the samples so far.
    pub(super) fn samples(&self) -> Vec<(Millis, f64)> {
        let times = match &self.own {
            Some((times, _)) => times,
            None => &self.shared[..self.values.len()],
        };
        times
            .iter()
            .copied()
            .zip(self.values.iter().copied())
            .collect()
    }

    /// Replaces the samples of this series.
    pub(super) fn replace(&mut self, samples: &[(Millis, f64)]) {
        self.begin_series((self.start, self.end));
        self.add_samples(samples.iter().copied());
    }

    pub(super) fn finish(&mut self) -> SampleColumn<'_> {
        if self.own.is_none() && self.values.len() < self.shared.len() {
            self.separate();
        }
        if let Some((times, parts)) = self.own.take() {
            self.shared = times.into();
            self.shared_parts = parts;
        }
        SampleColumn {
            times: &self.shared,
            values: &self.values,
        }
    }

    /// Returns the times of this series, which are no longer those of the series before.
    fn separate(&mut self) -> &mut (Vec<Millis>, Vec<TimesPart>) {
        let (count, parts) = (self.values.len(), self.parts_passed);
        self.own.get_or_insert_with(|| {
            let parts = self.shared_parts[..parts].to_vec();
            (self.shared[..count].to_vec(), parts)
        })
    }
}

impl SampleBuilder for ColumnBuilder {
    fn overlaps(&self, min: Millis, max: Millis) -> bool {
        min <= self.end && self.start <= max
    }

    fn step_boundaries(&self, times: &[Millis]) -> StepBoundaries {
        let first = times.partition_point(|time| *time < self.start);
        let last = times.partition_point(|time| *time <= self.end);
        StepBoundaries {
            rows: first..last,
            buckets: Vec::new(),
        }
    }

    fn add_column(&mut self, column: &Arc<TimeColumn>, values: &[f64]) {
        let rows = column.boundaries.rows.clone();
        let at = self.values.len();
        if self.own.is_none() {
            let part = self.shared_parts.get(self.parts_passed);
            if part.is_some_and(|(start, part)| *start == at && Arc::ptr_eq(part, column)) {
                self.parts_passed += 1;
                self.values.extend_from_slice(&values[rows]);
                return;
            }
        }
        let times = &column.times[rows.clone()];
        let (own_times, own_parts) = self.separate();
        own_times.extend_from_slice(times);
        own_parts.push((at, column.clone()));
        self.values.extend_from_slice(&values[rows]);
    }

    fn add_samples(&mut self, samples: impl Iterator<Item = (Millis, f64)>) {
        for (time, value) in samples {
            if time < self.start || time > self.end {
                continue;
            }
            let is_shared = self.own.is_none() && self.shared.get(self.values.len()) == Some(&time);
            if !is_shared {
                self.separate().0.push(time);
            }
            self.values.push(value);
        }
    }

    fn bytes(&self) -> usize {
        self.values.len() * size_of::<(Millis, f64)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(builder: &ColumnBuilder, times: &[Millis]) -> Arc<TimeColumn> {
        Arc::new(TimeColumn {
            times: times.to_vec(),
            boundaries: builder.step_boundaries(times),
        })
    }

    /// Returns the times and values of a series of these parts: a column, then single samples.
    fn build(
        builder: &mut ColumnBuilder,
        parts: &[&Arc<TimeColumn>],
        samples: &[(Millis, f64)],
    ) -> (Arc<[Millis]>, Vec<f64>) {
        builder.begin_series((10, 50));
        for part in parts {
            let values: Vec<f64> = part.times.iter().map(|time| *time as f64).collect();
            builder.add_column(part, &values);
        }
        builder.add_samples(samples.iter().copied());
        let column = builder.finish();
        (column.times.clone(), column.values.to_vec())
    }

    #[test]
    fn series_of_the_same_parts_share_their_times() {
        let mut builder = ColumnBuilder::default();
        builder.begin_series((10, 50));
        let (a, b) = (column(&builder, &[0, 10, 20]), column(&builder, &[30, 40]));
        let tail = [(50, 1.0), (60, 2.0)];
        let (first, values) = build(&mut builder, &[&a, &b], &tail);
        assert_eq!(
            (&first[..], &values[..]),
            (
                &[10, 20, 30, 40, 50][..],
                &[10.0, 20.0, 30.0, 40.0, 1.0][..]
            )
        );
        let (second, _) = build(&mut builder, &[&a, &b], &tail);
        assert!(Arc::ptr_eq(&first, &second));
    }

    #[test]
    fn series_of_other_parts_have_times_of_their_own() {
        let mut builder = ColumnBuilder::default();
        builder.begin_series((10, 50));
        let (a, b) = (column(&builder, &[0, 10, 20]), column(&builder, &[30, 40]));
        let c = column(&builder, &[30, 41]);
        let times =
            |builder: &mut ColumnBuilder, parts: &[&Arc<TimeColumn>], tail: &[(Millis, f64)]| {
                let (times, values) = build(builder, parts, tail);
                assert_eq!(times.len(), values.len());
                times.to_vec()
            };
        assert_eq!(times(&mut builder, &[&a, &b], &[]), [10, 20, 30, 40]);
        assert_eq!(times(&mut builder, &[&a], &[]), [10, 20]);
        assert_eq!(times(&mut builder, &[&a, &c], &[]), [10, 20, 30, 41]);
        assert_eq!(
            times(&mut builder, &[&a, &c], &[(45, 0.0)]),
            [10, 20, 30, 41, 45]
        );
        assert_eq!(times(&mut builder, &[&c], &[(45, 0.0)]), [30, 41, 45]);
        assert_eq!(
            times(&mut builder, &[&a, &c], &[(44, 0.0)]),
            [10, 20, 30, 41, 44]
        );
        assert_eq!(times(&mut builder, &[], &[]), [0; 0]);
        assert_eq!(times(&mut builder, &[], &[(20, 0.0)]), [20]);
    }
}
