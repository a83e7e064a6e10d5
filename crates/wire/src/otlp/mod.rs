//! Reads the metrics of OpenTelemetry's protocol, OTLP, from protobuf messages and from JSON, and
//! names them as OpenTelemetry's specification names them for Prometheus.
//!
//! Requests are read in place: [`read_protobuf`] and [`read_json`] walk a request and call a
//! [`MetricVisitor`] for every resource, scope, metric and data point. Nothing is collected, so
//! that memory does not depend on how many empty messages fit into a body. A malformed request
//! ends with an error after some of its points were visited; the visitor must discard them.
//!
//! [`messages`] has the generated messages, for requests that Pegel sends and for tests. The
//! definitions are in `crates/wire/proto/opentelemetry`.

mod attribute_value;
pub mod buckets;
mod json_points;
mod json_request;
mod json_scalars;
pub mod messages;
pub mod names;
mod protobuf_attributes;
mod protobuf_points;
mod protobuf_request;
pub mod status;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use crate::json::JsonSyntaxError;
use crate::protobuf_fields::ProtobufError;

pub use json_request::read_json;
pub use protobuf_request::read_protobuf;

/// The deepest nesting of lists and maps in the value of an attribute.
const VALUE_DEPTH_MAX: usize = 8;
/// The most attributes of one list that are read. It exceeds the labels that a series may have, so
/// that a longer list is refused rather than truncated.
const ATTRIBUTES_MAX: usize = pegel_metric::LABELS_MAX + 1;
/// The most buckets, bounds or quantiles of one data point.
const BUCKETS_MAX: usize = 4096;

/// The reason why a request cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OtlpError {
    #[error("malformed protobuf message: {0}")]
    Protobuf(#[from] ProtobufError),
    #[error("{0}")]
    Json(#[from] JsonSyntaxError),
    #[error("byte {at}: {field} is not {expected}")]
    JsonValue {
        at: usize,
        field: &'static str,
        expected: &'static str,
    },
    #[error("a string is not UTF-8")]
    Utf8,
    #[error("more than {1} {0}")]
    TooMany(&'static str, usize),
    #[error("the value of an attribute has more than {VALUE_DEPTH_MAX} nested lists")]
    TooDeep,
}

/// An attribute. Values that are not text are converted to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attribute<'a> {
    pub key: Cow<'a, str>,
    pub value: Cow<'a, str>,
}

/// The instrumentation scope of metrics: the library that made them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scope<'a> {
    pub name: Cow<'a, str>,
    pub version: Cow<'a, str>,
    pub attributes: Vec<Attribute<'a>>,
}

/// A metric, whose points follow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Metric<'a> {
    pub name: Cow<'a, str>,
    pub description: Cow<'a, str>,
    pub unit: Cow<'a, str>,
}

/// Whether points are totals since a start time, or increases since the previous point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Temporality {
    #[default]
    Unspecified,
    Delta,
    Cumulative,
}

impl Temporality {
    fn from_number(number: u64) -> Temporality {
        match number {
            1 => Temporality::Delta,
            2 => Temporality::Cumulative,
            _ => Temporality::Unspecified,
        }
    }
}

/// The kind of a metric, with the properties that all its points share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricData {
    Gauge,
    Sum {
        temporality: Temporality,
        is_monotonic: bool,
    },
    Histogram(Temporality),
    ExponentialHistogram(Temporality),
    Summary,
}

/// A data point.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DataPoint<'a> {
    pub attributes: Vec<Attribute<'a>>,
    /// Nanoseconds since 1970; 0 if unknown.
    pub start_nanos: u64,
    pub time_nanos: u64,
    /// The flag "no recorded value": the series ends.
    pub has_no_value: bool,
    pub exemplars: u64,
    pub value: PointValue,
}

/// The value of a data point; which fields are used depends on the kind of its metric.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PointValue {
    /// The value of a gauge or a sum; `None` if the point has neither.
    pub number: Option<f64>,
    pub count: u64,
    pub sum: Option<f64>,
    /// The counts of a histogram's buckets, and the upper bounds of all but the last.
    pub bucket_counts: Vec<u64>,
    pub explicit_bounds: Vec<f64>,
    pub exponential: ExponentialBuckets,
    /// The quantiles of a summary with their values.
    pub quantiles: Vec<(f64, f64)>,
}

/// The buckets of an exponential histogram.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ExponentialBuckets {
    pub scale: i32,
    pub zero_count: u64,
    pub zero_threshold: f64,
    pub positive: BucketRun,
    pub negative: BucketRun,
}

/// Counts of adjacent buckets, from the index `offset` on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BucketRun {
    pub offset: i32,
    pub counts: Vec<u64>,
}

/// Receives the parts of a request in the order resource, scope, metric, points. A part applies to
/// all that follow until the next one of its kind.
pub trait MetricVisitor {
    fn resource(&mut self, attributes: &[Attribute<'_>]);
    fn scope(&mut self, scope: &Scope<'_>);
    fn metric(&mut self, metric: &Metric<'_>, data: MetricData);
    /// Fails if the request has more than the visitor accepts; reading then ends.
    fn point(&mut self, point: &DataPoint<'_>) -> Result<(), OtlpError>;
}
