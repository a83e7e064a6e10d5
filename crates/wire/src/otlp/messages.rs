//! The protobuf messages of OTLP, as structs: for the requests that Pegel sends, the responses to
//! those that it gets, and tests. Requests that arrive are read in place.
//!
//! The code is generated from `crates/wire/proto/opentelemetry` and checked in. The test
//! `generated` generates it again and compares; `PEGEL_BLESS=1` writes it.

pub use prost::{DecodeError, Message};

#[rustfmt::skip]
#[allow(clippy::all)]
#[path = "../../generated/otlp_metrics_service.rs"]
pub mod collector;

#[rustfmt::skip]
#[allow(clippy::all)]
#[path = "../../generated/otlp_attributes.rs"]
pub mod common;

#[rustfmt::skip]
#[allow(clippy::all)]
#[path = "../../generated/otlp_metrics.rs"]
pub mod metrics;

#[rustfmt::skip]
#[allow(clippy::all)]
#[path = "../../generated/otlp_resource.rs"]
pub mod resource;
