//! Builds histograms from their series: `NAME_bucket` with the label `le`, `NAME_sum` and
//! `NAME_count`. Series that only look like parts of a histogram are sent as counters.

use std::collections::BTreeMap;
use std::sync::Arc;

use pegel_metric::{MetricKind, Millis, Series};
use pegel_wire::otlp::messages::metrics::HistogramDataPoint;

use super::metric_builder::{SentValue, attributes_of, nanos};

const BOUND: &str = "le";

/// The name of a histogram and its labels without `le`, as text.
type HistogramKey = (String, String);

/// A series whose name ends like a part of a histogram.
type HistogramPart = (Arc<Series>, SentValue);

/// A histogram: its name, its description and its points.
pub(super) type NamedHistogram = (String, String, Vec<HistogramDataPoint>);

/// The parts of all histograms, collected until all series were visited.
#[derive(Debug, Default)]
pub(super) struct HistogramParts {
    parts: BTreeMap<HistogramKey, CandidateHistogram>,
}

#[derive(Debug, Default)]
struct CandidateHistogram {
    buckets: Vec<(f64, HistogramPart)>,
    sum: Option<HistogramPart>,
    count: Option<HistogramPart>,
}

impl HistogramParts {
    /// Adds a counter that may be a part of a histogram. Returns false if it is not.
    pub(super) fn add(&mut self, series: &Arc<Series>, value: SentValue) -> bool {
        let Some((name, part)) = series.name().rsplit_once('_') else {
            return false;
        };
        let bound = series.label(BOUND);
        let bound: Option<f64> = match (part, bound) {
            ("bucket", Some(bound)) => match bound.parse() {
                Ok(bound) => Some(bound),
                Err(_) => return false,
            },
            ("sum" | "count", None) => None,
            _ => return false,
        };
        let key = (name.to_owned(), labels_without_bound(series));
        let candidate = self.parts.entry(key).or_default();
        let entry = (series.clone(), value);
        match (part, bound) {
            (_, Some(bound)) => candidate.buckets.push((bound, entry)),
            ("sum", None) => candidate.sum = Some(entry),
            _ => candidate.count = Some(entry),
        }
        true
    }

    /// Returns the histograms by name, and the series that are parts of none.
    pub(super) fn finish(self) -> (Vec<NamedHistogram>, Vec<HistogramPart>) {
        let mut histograms: Vec<NamedHistogram> = Vec::new();
        let mut loose = Vec::new();
        for ((name, _), candidate) in self.parts {
            match candidate.to_point() {
                None => loose.extend(candidate.into_parts()),
                Some(point) => match histograms.last_mut() {
                    Some((last, _, points)) if *last == name => points.push(point),
                    _ => {
                        let help = candidate.help();
                        histograms.push((name, help, vec![point]));
                    }
                },
            }
        }
        (histograms, loose)
    }
}

/// Returns whether a series looks like a part of a histogram.
pub(super) fn is_histogram_part(series: &Series) -> bool {
    let part = series.name().rsplit_once('_').map(|(_, part)| part);
    series.family().kind == MetricKind::Counter && matches!(part, Some("bucket" | "sum" | "count"))
}

fn labels_without_bound(series: &Series) -> String {
    let labels = series.labels().filter(|(key, _)| *key != BOUND);
    let labels = labels.map(|(key, value)| format!("{key}={value:?}"));
    labels.collect::<Vec<_>>().join(",")
}

impl CandidateHistogram {
    fn parts(&self) -> impl Iterator<Item = &HistogramPart> {
        let buckets = self.buckets.iter().map(|(_, part)| part);
        buckets.chain(&self.sum).chain(&self.count)
    }

    fn into_parts(self) -> impl Iterator<Item = HistogramPart> {
        let buckets = self.buckets.into_iter().map(|(_, part)| part);
        buckets.chain(self.sum).chain(self.count)
    }

    fn help(&self) -> String {
        let first = self.parts().next();
        first.map_or_else(String::new, |(series, _)| series.family().help.to_string())
    }

    /// Returns the data point if the parts are a histogram: a count, and cumulative buckets up to
    /// `+Inf` whose counts do not decrease.
    fn to_point(&self) -> Option<HistogramDataPoint> {
        let (count_series, count) = self.count.as_ref()?;
        let mut buckets: Vec<(f64, f64)> = { self.buckets.iter() }
            .map(|(bound, (_, value))| (*bound, value.value))
            .collect();
        buckets.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        let (last_bound, total) = *buckets.last()?;
        if last_bound != f64::INFINITY || total < 0.0 {
            return None;
        }
        let mut below = 0.0;
        let mut counts = Vec::with_capacity(buckets.len());
        let mut bounds = Vec::with_capacity(buckets.len());
        for (bound, value) in &buckets {
            let is_new = bounds.last().is_none_or(|last: &f64| last < bound);
            if !is_new || *value < below {
                return None;
            }
            counts.push((value - below) as u64);
            bounds.push(*bound);
            below = *value;
        }
        bounds.pop();
        // If the count or a bucket was reset, so was the histogram. A bucket that is new is no
        // reset, and a sum also falls with negative values.
        let buckets = self.buckets.iter().map(|(_, (_, value))| value);
        let resets = buckets.filter(|value| value.was_reset);
        let start = resets
            .map(|value| value.start)
            .fold(count.start, Millis::max);
        Some(HistogramDataPoint {
            attributes: attributes_of(count_series, None),
            start_time_unix_nano: nanos(start.min(count.time)),
            time_unix_nano: nanos(count.time),
            count: counts.iter().sum(),
            sum: self.sum.as_ref().map(|(_, sum)| sum.value),
            bucket_counts: counts,
            explicit_bounds: bounds,
            ..HistogramDataPoint::default()
        })
    }
}
