//! Aggregates samples, in the order of their times, into the points of a query's result.

use std::sync::Arc;

use pegel_metric::{MetricKind, Millis};

use crate::range_query::{QueryStep, RangeQuery, StepAggregation};

use super::sample_builder::{SampleBuilder, StepBoundaries, TimeColumn};

/// The points of one series at a time; the buffer is reused from series to series.
#[derive(Debug)]
pub(crate) struct PointsBuilder {
    start: Millis,
    end: Millis,
    step: Option<Millis>,
    fold: StepAggregation,
    open: Option<OpenBucket>,
    points: Vec<(Millis, f64)>,
}

/// A bucket that may receive more samples.
#[derive(Debug, Clone, Copy)]
struct OpenBucket {
    time: Millis,
    value: f64,
    count: u64,
}

impl PointsBuilder {
    pub(super) fn new(query: &RangeQuery) -> PointsBuilder {
        PointsBuilder {
            start: query.start,
            end: query.end,
            step: query.step.map(|step| step.millis),
            fold: StepAggregation::Last,
            open: None,
            points: Vec::new(),
        }
    }

    /// Begins the next series, of which samples from `start` to `end` are included. Returns whether
    /// the range differs from that of the series before: then step boundaries must be recomputed.
    pub(super) fn begin_series(
        &mut self,
        fold: StepAggregation,
        (start, end): (Millis, Millis),
    ) -> bool {
        self.fold = fold;
        self.open = None;
        self.points.clear();
        let before = (self.start, self.end);
        (self.start, self.end) = (start, end);
        before != (start, end)
    }

    pub(super) fn finish(&mut self) -> &[(Millis, f64)] {
        self.close();
        &self.points
    }

    fn add_slice(&mut self, time: Millis, values: &[f64]) {
        let Some((&first, rest)) = values.split_first() else {
            return;
        };
        let (mut bucket, rest) = match self.open {
            Some(open) if open.time == time => (open, values),
            _ => {
                self.close();
                (
                    OpenBucket {
                        time,
                        value: first,
                        count: 1,
                    },
                    rest,
                )
            }
        };
        bucket.count += rest.len() as u64;
        match self.fold {
            StepAggregation::First | StepAggregation::Count => {}
            StepAggregation::Last => bucket.value = rest.last().copied().unwrap_or(bucket.value),
            // f64::min and max ignore NaN, as charts should.
            StepAggregation::Min => bucket.value = rest.iter().fold(bucket.value, |a, b| a.min(*b)),
            StepAggregation::Max => bucket.value = rest.iter().fold(bucket.value, |a, b| a.max(*b)),
            StepAggregation::Sum | StepAggregation::Avg => {
                bucket.value = rest.iter().fold(bucket.value, |a, b| a + b)
            }
        }
        self.open = Some(bucket);
    }

    fn close(&mut self) {
        if let Some(bucket) = self.open.take() {
            let value = match self.fold {
                StepAggregation::Avg => bucket.value / bucket.count as f64,
                StepAggregation::Count => bucket.count as f64,
                _ => bucket.value,
            };
            self.points.push((bucket.time, value));
        }
    }
}

impl SampleBuilder for PointsBuilder {
    fn overlaps(&self, min: Millis, max: Millis) -> bool {
        min <= self.end && self.start <= max
    }

    fn bytes(&self) -> usize {
        self.points.len() * size_of::<(Millis, f64)>()
    }

    fn step_boundaries(&self, times: &[Millis]) -> StepBoundaries {
        let first = times.partition_point(|time| *time < self.start);
        let last = times.partition_point(|time| *time <= self.end);
        let mut buckets = Vec::new();
        if let Some(step) = self.step {
            let mut row = first;
            while row < last {
                let bucket = bucket_of(times[row], step);
                let next = bucket.saturating_add(step);
                while row < last && times[row] < next {
                    row += 1;
                }
                buckets.push((bucket, row));
            }
        }
        StepBoundaries {
            rows: first..last,
            buckets,
        }
    }

    fn add_column(&mut self, column: &Arc<TimeColumn>, values: &[f64]) {
        let TimeColumn { times, boundaries } = &**column;
        if self.step.is_none() {
            let rows = boundaries.rows.clone();
            self.points.extend(
                times[rows.clone()]
                    .iter()
                    .copied()
                    .zip(values[rows].iter().copied()),
            );
            return;
        }
        let mut row = boundaries.rows.start;
        for &(time, end) in &boundaries.buckets {
            self.add_slice(time, &values[row..end]);
            row = end;
        }
    }

    fn add_samples(&mut self, samples: impl Iterator<Item = (Millis, f64)>) {
        for (time, value) in samples {
            if time < self.start || time > self.end {
                continue;
            }
            match self.step {
                None => self.points.push((time, value)),
                Some(step) => self.add_slice(bucket_of(time, step), &[value]),
            }
        }
    }
}

/// Aggregates the samples of one series, in the order of their times, as a query with this step
/// does.
pub fn aggregate_samples(
    samples: impl Iterator<Item = (Millis, f64)>,
    step: QueryStep,
    kind: MetricKind,
) -> Vec<(Millis, f64)> {
    let mut builder = PointsBuilder {
        start: Millis::MIN,
        end: Millis::MAX,
        step: Some(step.millis),
        fold: { step.aggregation }.unwrap_or_else(|| StepAggregation::default_for(kind)),
        open: None,
        points: Vec::new(),
    };
    builder.add_samples(samples);
    builder.close();
    builder.points
}

/// Returns the start of the bucket that contains a time.
pub fn bucket_of(time: Millis, step: Millis) -> Millis {
    time.div_euclid(step).saturating_mul(step)
}
