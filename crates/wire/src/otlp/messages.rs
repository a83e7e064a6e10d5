//! The protobuf messages of OTLP as structs, for requests that Pegel sends, responses to requests
//! that it receives, and tests. Received requests are parsed in place, without these structs.
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
