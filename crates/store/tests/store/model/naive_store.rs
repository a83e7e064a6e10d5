//! The naive store: a map, and straightforward aggregations.

use std::collections::BTreeMap;
use std::sync::Arc;

use pegel_metric::{MetricKind, Millis, Selector, Series};
use pegel_store::{QueryStep, StepAggregation};

/// Series by text, then bits of the value by time.
#[derive(Debug, Default)]
pub(super) struct NaiveStore {
    samples: BTreeMap<Arc<Series>, BTreeMap<Millis, u64>>,
}

/// A query result: series and points, values as bits.
pub(super) type NaiveAnswer = Vec<(Arc<Series>, Vec<(Millis, u64)>)>;

impl NaiveStore {
    /// Writes a sample; returns whether there was one at that time.
    pub(super) fn write(&mut self, series: &Arc<Series>, time: Millis, value: f64) -> bool {
        let times = match self.samples.get_mut(series) {
            Some(times) => times,
            None => self.samples.entry(series.clone()).or_default(),
        };
        times.insert(time, value.to_bits()).is_some()
    }

    pub(super) fn get(&self, series: &Series, time: Millis) -> Option<u64> {
        self.samples.get(series)?.get(&time).copied()
    }

    /// Returns the newest sample that is not later than this time.
    pub(super) fn newest(&self, series: &Series, time: Millis) -> Option<(Millis, u64)> {
        let newest = self.samples.get(series)?.range(..=time).next_back();
        newest.map(|(&time, &bits)| (time, bits))
    }

    /// Returns the times of the samples of a series.
    pub(super) fn times(&self, series: &Series) -> Vec<Millis> {
        self.samples
            .get(series)
            .map_or_else(Vec::new, |times| times.keys().copied().collect())
    }

    pub(super) fn raw(&self, selector: &Selector, start: Millis, end: Millis) -> NaiveAnswer {
        if start > end {
            return NaiveAnswer::new();
        }
        self.samples
            .iter()
            .filter(|(series, _)| selector.matches(series))
            .map(|(series, times)| {
                let points = times.range(start..=end).map(|(&time, &bits)| (time, bits));
                (series.clone(), points.collect::<Vec<_>>())
            })
            .filter(|(_, points)| !points.is_empty())
            .collect()
    }
}

/// Aggregates raw results as documented at `QueryStep` and `StepAggregation`.
pub(super) fn fold(raw: NaiveAnswer, step: QueryStep) -> NaiveAnswer {
    raw.into_iter()
        .map(|(series, points)| {
            let fold = step.aggregation.unwrap_or(match series.family().kind {
                MetricKind::Counter => StepAggregation::Last,
                MetricKind::Gauge | MetricKind::Unknown => StepAggregation::Avg,
            });
            let mut buckets: BTreeMap<Millis, Vec<f64>> = BTreeMap::new();
            for (time, bits) in points {
                let bucket = time.div_euclid(step.millis) * step.millis;
                buckets
                    .entry(bucket)
                    .or_default()
                    .push(f64::from_bits(bits));
            }
            let folded = buckets
                .into_iter()
                .map(|(bucket, values)| (bucket, folded(fold, &values).to_bits()));
            (series, folded.collect())
        })
        .collect()
}

/// Adds in the order of the times, as the store does: results are equal bit for bit.
fn folded(fold: StepAggregation, values: &[f64]) -> f64 {
    let (first, rest) = (values[0], &values[1..]);
    let sum = || rest.iter().fold(first, |sum, value| sum + value);
    match fold {
        StepAggregation::First => first,
        StepAggregation::Last => values[values.len() - 1],
        StepAggregation::Min => rest.iter().fold(first, |least, value| least.min(*value)),
        StepAggregation::Max => rest.iter().fold(first, |most, value| most.max(*value)),
        StepAggregation::Sum => sum(),
        StepAggregation::Avg => sum() / values.len() as f64,
        StepAggregation::Count => values.len() as f64,
    }
}
