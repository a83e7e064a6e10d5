//! Wire formats: bytes in, meaning out, and back. Pure functions, no I/O.
//!
//! [`prometheus`] is the text format 0.0.4, [`openmetrics`] is OpenMetrics 1.0.0. Both write what
//! an agent holds and read what another exporter says. [`statsd`], [`opentsdb`] and [`dragon`] read what
//! programs send.

mod cursor;
pub mod dragon;
mod encode;
mod exposition;
mod exposition_parser;
mod json;
mod naming;
pub mod openmetrics;
pub mod opentsdb;
mod point;
pub mod prometheus;
pub mod statsd;

pub use encode::EncodeResult;
pub use exposition::{
    Exposition, ExpositionParseError, ExpositionSample, FamilyMetadata, LINE_BYTES_MAX, MetricType,
};
pub use json::JsonSyntaxError;
pub use naming::{label_key, metric_name};
pub use point::{POINTS_MAX, ParsedPoint, PointBatch, PointFault};
