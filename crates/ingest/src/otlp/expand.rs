//! Turns data points into samples of Prometheus' series: one for a gauge or a sum, `_bucket`,
//! `_sum` and `_count` for a histogram, quantiles, `_sum` and `_count` for a summary. Pure
//! functions: resets and running totals are the task of `streams`.

use pegel_metric::{DropReason, MetricKind, STALE_NAN, format_value};
use pegel_wire::otlp::buckets::{
    BucketError, ClassicBucket, classic_buckets, explicit_buckets, merge_scale,
};
use pegel_wire::otlp::{DataPoint, MetricData, PointValue, Temporality};

/// The labels by which the series of a histogram and of a summary differ.
pub(super) const BOUND: &str = "le";
pub(super) const QUANTILE: &str = "quantile";

/// A sample without its time: the suffix and the label that it adds to its metric, and its value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ExpandedSample {
    pub suffix: &'static str,
    pub label: Option<(&'static str, String)>,
    pub kind: MetricKind,
    pub value: f64,
    /// The bound or quantile; NaN for samples without one.
    pub bound: f64,
}

/// The relation between the values of a point and those of earlier points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueMode {
    /// Independent values.
    Plain,
    /// Totals since the start of the stream.
    Cumulative,
    /// Increases, which are added to a running total.
    Delta,
}

/// The reason why a point is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum ExpandError {
    #[error("the point has no value")]
    NoValue,
    #[error("the value is not a finite number")]
    NotFinite,
    #[error("a monotonic sum is negative")]
    Negative,
    #[error("the aggregation temporality is not set")]
    Temporality,
    #[error(transparent)]
    Buckets(#[from] BucketError),
}

impl ExpandError {
    pub(super) fn reason(self) -> DropReason {
        match self {
            ExpandError::NoValue | ExpandError::Temporality => DropReason::Malformed,
            ExpandError::NotFinite | ExpandError::Negative | ExpandError::Buckets(_) => {
                DropReason::BadValue
            }
        }
    }
}

/// Returns the label by which the series of a metric differ.
pub(super) fn added_label(data: MetricData) -> Option<&'static str> {
    match data {
        MetricData::Gauge | MetricData::Sum { .. } => None,
        MetricData::Histogram(_) | MetricData::ExponentialHistogram(_) => Some(BOUND),
        MetricData::Summary => Some(QUANTILE),
    }
}

pub(super) fn value_mode(data: MetricData) -> Result<ValueMode, ExpandError> {
    let of_temporality = |temporality: Temporality| match temporality {
        Temporality::Delta => Ok(ValueMode::Delta),
        Temporality::Cumulative => Ok(ValueMode::Cumulative),
        Temporality::Unspecified => Err(ExpandError::Temporality),
    };
    match data {
        MetricData::Gauge => Ok(ValueMode::Plain),
        MetricData::Summary => Ok(ValueMode::Cumulative),
        // A sum that is not monotonic has no resets.
        MetricData::Sum {
            temporality: Temporality::Cumulative,
            is_monotonic: false,
        } => Ok(ValueMode::Plain),
        MetricData::Sum { temporality, .. }
        | MetricData::Histogram(temporality)
        | MetricData::ExponentialHistogram(temporality) => of_temporality(temporality),
    }
}

/// Returns the samples of a point. Those of a histogram or summary begin with its `_count`. A point
/// without a recorded value has samples that end their series.
pub(super) fn expand(
    point: &DataPoint<'_>,
    data: MetricData,
) -> Result<Vec<ExpandedSample>, ExpandError> {
    let mut samples = match data {
        MetricData::Gauge | MetricData::Sum { .. } => vec![number(point, data)?],
        MetricData::Histogram(_) => {
            let buckets = match point.has_no_value {
                true => ended_buckets(&point.value),
                false => explicit_buckets(&point.value)?,
            };
            histogram_samples(point.value.count, point.value.sum, &buckets)
        }
        MetricData::ExponentialHistogram(_) => {
            let merged = merge_scale(&point.value.exponential)?;
            let count = match point.has_no_value {
                true => u64::MAX,
                false => point.value.count,
            };
            let buckets = classic_buckets(&merged, count)?;
            histogram_samples(count, point.value.sum, &buckets)
        }
        MetricData::Summary => summary_samples(&point.value),
    };
    if point.has_no_value {
        for sample in &mut samples {
            sample.value = STALE_NAN;
        }
    }
    Ok(samples)
}

fn number(point: &DataPoint<'_>, data: MetricData) -> Result<ExpandedSample, ExpandError> {
    let value = match point.value.number {
        _ if point.has_no_value => STALE_NAN,
        Some(value) if value.is_finite() => value,
        Some(_) => return Err(ExpandError::NotFinite),
        None => return Err(ExpandError::NoValue),
    };
    let is_monotonic = matches!(
        data,
        MetricData::Sum {
            is_monotonic: true,
            ..
        }
    );
    if is_monotonic && value < 0.0 {
        return Err(ExpandError::Negative);
    }
    let kind = match is_monotonic {
        true => MetricKind::Counter,
        false => MetricKind::Gauge,
    };
    Ok(ExpandedSample {
        suffix: "",
        label: None,
        kind,
        value,
        bound: f64::NAN,
    })
}

/// Returns the bounds of a histogram whose series end. The counts are not used.
fn ended_buckets(value: &PointValue) -> Vec<ClassicBucket> {
    let bounds = value.explicit_bounds.iter();
    let bounds = bounds.filter(|bound| bound.is_finite());
    bounds.map(|bound| (*bound, 0)).collect()
}

/// Returns the samples of a histogram, that of `_count` first. A sum that is not finite is left
/// out: the caller counts it.
pub(super) fn histogram_samples(
    count: u64,
    sum: Option<f64>,
    buckets: &[ClassicBucket],
) -> Vec<ExpandedSample> {
    let mut samples = Vec::with_capacity(buckets.len() + 3);
    samples.push(ExpandedSample::counter("_count", count as f64));
    if let Some(sum) = sum.filter(|sum| sum.is_finite()) {
        samples.push(ExpandedSample::counter("_sum", sum));
    }
    let infinite = (f64::INFINITY, count);
    for (bound, count) in buckets.iter().chain([&infinite]) {
        samples.push(ExpandedSample {
            suffix: "_bucket",
            label: Some((BOUND, number_text(*bound))),
            kind: MetricKind::Counter,
            value: *count as f64,
            bound: *bound,
        });
    }
    samples
}

fn summary_samples(value: &PointValue) -> Vec<ExpandedSample> {
    let mut samples = vec![ExpandedSample::counter("_count", value.count as f64)];
    let sum = value.sum.unwrap_or_default();
    if sum.is_finite() {
        samples.push(ExpandedSample::counter("_sum", sum));
    }
    for (quantile, value) in &value.quantiles {
        samples.push(ExpandedSample {
            suffix: "",
            label: Some((QUANTILE, number_text(*quantile))),
            kind: MetricKind::Gauge,
            // The quantile of an empty summary is NaN: its series ends.
            value: if value.is_finite() { *value } else { STALE_NAN },
            bound: *quantile,
        });
    }
    samples
}

impl ExpandedSample {
    fn counter(suffix: &'static str, value: f64) -> ExpandedSample {
        ExpandedSample {
            suffix,
            label: None,
            kind: MetricKind::Counter,
            value,
            bound: f64::NAN,
        }
    }
}

/// Returns a number as labels have it: `0.5`, `5`, `+Inf`.
fn number_text(number: f64) -> String {
    let mut text = String::new();
    format_value(&mut text, number);
    text
}
