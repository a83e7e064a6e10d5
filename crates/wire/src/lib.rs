//! Parsers and encoders of the wire formats: pure functions over bytes, without I/O. Input is
//! untrusted: malformed bytes give an error, never a panic, and memory is bounded by the size of
//! the input.
//!
//! [`prometheus`] is the text format 0.0.4, [`openmetrics`] is OpenMetrics 1.0.0. Both write the
//! current values of an agent. [`statsd`], [`opentsdb`] and [`dragon`] read the input of programs.
//! The traits of `input_handler` connect the server with the inputs.

pub mod dragon;
mod encode;
mod input_handler;
mod json;
pub mod openmetrics;
pub mod opentsdb;
mod point;
pub mod prometheus;
pub mod statsd;

pub use encode::EncodeResult;
pub use input_handler::{
    InputError, InputRequest, LineClient, LineHandler, LineInput, LineReply, RequestHandler,
};
pub use json::JsonSyntaxError;
pub use point::{POINTS_MAX, ParsedPoint, PointBatch, PointFault};
