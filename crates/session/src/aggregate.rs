//! Replaces the samples of each interval by their count, minimum, maximum, mean, standard deviation
//! and last value, in series named like recording rules: `node_load1:max`.

use std::collections::HashMap;
use std::sync::Arc;

use pegel_metric::{MetricKind, Millis};
use pegel_record::RecordSamples;

const SUFFIXES: [&str; 6] = [":count", ":min", ":max", ":avg", ":stddev", ":last"];

/// The statistics of one interval.
#[derive(Debug, Clone, Copy)]
struct IntervalStatistics {
    count: f64,
    min: f64,
    max: f64,
    mean: f64,
    /// The sum of squared distances from the mean (Welford), which stays exact for values that are
    /// large compared to their spread.
    squares: f64,
    last: f64,
}

impl IntervalStatistics {
    fn new(value: f64) -> IntervalStatistics {
        IntervalStatistics {
            count: 1.0,
            min: value,
            max: value,
            mean: value,
            squares: 0.0,
            last: value,
        }
    }

    fn add(&mut self, value: f64) {
        self.count += 1.0;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        let distance = value - self.mean;
        self.mean += distance / self.count;
        self.squares += distance * (value - self.mean);
        self.last = value;
    }

    fn values(&self) -> [f64; 6] {
        let deviation = (self.squares / self.count).max(0.0).sqrt();
        let mean = self.mean;
        [self.count, self.min, self.max, mean, deviation, self.last]
    }
}

/// Returns the end of the interval that contains `time`: intervals are `(k × i, (k + 1) × i]`.
pub(crate) fn interval_end(time: Millis, interval: Millis) -> Millis {
    let start = time.saturating_sub(1).div_euclid(interval);
    start.saturating_add(1).saturating_mul(interval)
}

/// Aggregates samples up to `until`. A value has the time of the end of its interval, or `until`
/// for the last one, if the session ends within it. NaN is left out.
pub(crate) fn aggregate(
    samples: &[RecordSamples],
    interval: Millis,
    until: Millis,
) -> Vec<RecordSamples> {
    let mut aggregated = Vec::with_capacity(samples.len() * SUFFIXES.len());
    // Series with the same times have the same intervals, which a record stores once.
    let mut shared: HashMap<Vec<Millis>, Arc<[Millis]>> = HashMap::new();
    for one in samples {
        let mut intervals: Vec<(Millis, IntervalStatistics)> = Vec::new();
        let pairs = one.times.iter().copied().zip(one.values.iter().copied());
        for (time, value) in pairs.filter(|(_, value)| !value.is_nan()) {
            let end = interval_end(time, interval).min(until);
            match intervals.last_mut() {
                Some((last, statistics)) if *last == end => statistics.add(value),
                _ => intervals.push((end, IntervalStatistics::new(value))),
            }
        }
        if intervals.is_empty() {
            continue;
        }
        let times: Vec<Millis> = intervals.iter().map(|(end, _)| *end).collect();
        let times = match shared.get(&times) {
            Some(times) => times.clone(),
            None => shared.entry(times.clone()).or_insert(times.into()).clone(),
        };
        let values: Vec<[f64; 6]> = intervals.iter().map(|(_, one)| one.values()).collect();
        for (at, suffix) in SUFFIXES.iter().enumerate() {
            aggregated.push(RecordSamples {
                series: with_suffix(&one.series, suffix),
                kind: MetricKind::Gauge,
                times: times.clone(),
                values: values.iter().map(|values| values[at]).collect(),
            });
        }
    }
    aggregated
}

/// Inserts the suffix after the name.
fn with_suffix(series: &str, suffix: &str) -> Arc<str> {
    let (name, labels) = series.split_at(series.find('{').unwrap_or(series.len()));
    format!("{name}{suffix}{labels}").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gauge(times: &[Millis], values: &[f64]) -> RecordSamples {
        RecordSamples {
            series: "load{cpu=\"0\"}".into(),
            kind: MetricKind::Gauge,
            times: times.into(),
            values: values.to_vec(),
        }
    }

    #[test]
    fn each_interval_becomes_six_values_at_its_end() {
        let times = [1_001, 5_000, 15_000, 15_001, 20_000];
        let samples = gauge(&times, &[1.0, f64::NAN, 3.0, 7.0, 7.0]);
        let aggregated = aggregate(&[samples], 15_000, 20_000);
        let found: Vec<(&str, &[Millis], &[f64])> = { aggregated.iter() }
            .map(|one| (&*one.series, &*one.times, &*one.values))
            .collect();
        let ends: &[Millis] = &[15_000, 20_000];
        let expected: [(&str, &[Millis], &[f64]); 6] = [
            ("load:count{cpu=\"0\"}", ends, &[2.0, 2.0]),
            ("load:min{cpu=\"0\"}", ends, &[1.0, 7.0]),
            ("load:max{cpu=\"0\"}", ends, &[3.0, 7.0]),
            ("load:avg{cpu=\"0\"}", ends, &[2.0, 7.0]),
            ("load:stddev{cpu=\"0\"}", ends, &[1.0, 0.0]),
            ("load:last{cpu=\"0\"}", ends, &[3.0, 7.0]),
        ];
        assert_eq!(found, expected);
        assert!(aggregate(&[gauge(&[1], &[f64::NAN])], 15_000, 20_000).is_empty());
    }
}
