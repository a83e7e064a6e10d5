//! The naive store: a map, and folds written the plain way.

use std::collections::BTreeMap;
use std::sync::Arc;

use pegel_metric::{Kind, Millis, Selector, Series};
use pegel_store::{Fold, Step};

/// Series by text, then bits of the value by time.
#[derive(Debug, Default)]
pub struct Naive {
    samples: BTreeMap<Arc<Series>, BTreeMap<Millis, u64>>,
}

/// An answer: text of the series and its points, values as bits.
pub type Answer = Vec<(Arc<Series>, Vec<(Millis, u64)>)>;

impl Naive {
    /// Says whether there was a sample at that time.
    pub fn write(&mut self, series: &Arc<Series>, time: Millis, value: f64) -> bool {
        let times = match self.samples.get_mut(series) {
            Some(times) => times,
            None => self.samples.entry(series.clone()).or_default(),
        };
        times.insert(time, value.to_bits()).is_some()
    }

    pub fn get(&self, series: &Series, time: Millis) -> Option<u64> {
        self.samples.get(series)?.get(&time).copied()
    }

    /// The newest sample that is not later than this time.
    pub fn newest(&self, series: &Series, time: Millis) -> Option<(Millis, u64)> {
        let newest = self.samples.get(series)?.range(..=time).next_back();
        newest.map(|(&time, &bits)| (time, bits))
    }

    /// Times at which the series has a sample.
    pub fn times(&self, series: &Series) -> Vec<Millis> {
        self.samples
            .get(series)
            .map_or_else(Vec::new, |times| times.keys().copied().collect())
    }

    pub fn raw(&self, selector: &Selector, start: Millis, end: Millis) -> Answer {
        if start > end {
            return Answer::new();
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

/// Folds raw answers as the documentation of `Step` and `Fold` says.
pub fn fold(raw: Answer, step: Step) -> Answer {
    raw.into_iter()
        .map(|(series, points)| {
            let fold = step.fold.unwrap_or(match series.family().kind {
                Kind::Counter => Fold::Last,
                Kind::Gauge | Kind::Unknown => Fold::Avg,
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

/// Sums add up in the order of the times, as the store does: results are equal bit for bit.
fn folded(fold: Fold, values: &[f64]) -> f64 {
    let (first, rest) = (values[0], &values[1..]);
    let sum = || rest.iter().fold(first, |sum, value| sum + value);
    match fold {
        Fold::First => first,
        Fold::Last => values[values.len() - 1],
        Fold::Min => rest.iter().fold(first, |least, value| least.min(*value)),
        Fold::Max => rest.iter().fold(first, |most, value| most.max(*value)),
        Fold::Sum => sum(),
        Fold::Avg => sum() / values.len() as f64,
        Fold::Count => values.len() as f64,
    }
}
