//! Parsers and encoders of the wire formats: pure functions over bytes, without I/O. Input is
//! untrusted: malformed bytes give an error, never a panic, and memory is bounded by the size of
//! the input.
//!
//! [`prometheus`] is the text format 0.0.4, [`openmetrics`] is OpenMetrics 1.0.0. Both write the
//! current values of an agent. [`statsd`], [`opentsdb`], [`dragon`], [`influx`], [`exposition`] and
//! [`json_values`] read the input of programs, [`remote_write`] that of a Prometheus, [`otlp`] that
//! of OpenTelemetry. [`prompb`] has the messages of remote read.
//! The traits of `input_handler` connect the server with the inputs.

pub mod dragon;
mod encode;
pub mod exposition;
pub mod influx;
mod input_handler;
mod json;
pub mod json_values;
pub mod openmetrics;
pub mod opentsdb;
pub mod otlp;
mod point;
pub mod prometheus;
pub mod prompb;
mod protobuf_fields;
pub mod remote_write;
pub mod statsd;

pub use encode::EncodeResult;
pub use input_handler::{
    BodyEncoding, InputError, InputReply, InputRequest, LineClient, LineHandler, LineInput,
    LineReply, RequestHandler, RequestMethods,
};
pub use json::JsonSyntaxError;
pub use point::{POINTS_MAX, ParsedPoint, PointBatch, PointFault};
