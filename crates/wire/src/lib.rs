//! Wire formats: bytes in, meaning out, and back. Pure functions, no I/O.
//!
//! [`prometheus`] is the text format 0.0.4, [`openmetrics`] is OpenMetrics 1.0.0. Both write what
//! an agent holds and read what another exporter says. [`statsd`] reads what programs send.

mod cursor;
mod encode;
mod exposition;
mod line;
mod naming;
pub mod openmetrics;
pub mod prometheus;
pub mod statsd;

pub use encode::Encoded;
pub use exposition::{Exposition, LINE_BYTES_MAX, Metadata, MetricType, ParseError, Sample};
