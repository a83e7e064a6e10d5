//! The protobuf messages of Prometheus, as structs: those of remote read, and those of remote write
//! for tests and measurements, which build requests. Requests themselves are read in place, see
//! [`remote_write`](crate::remote_write).
//!
//! The code is generated from `crates/wire/proto` and checked in. The test `generated` generates it
//! again and compares; `PEGEL_BLESS=1` writes it.

pub use prost::{DecodeError, Message, encode_length_delimiter};

pub use v1::*;

#[rustfmt::skip]
#[allow(clippy::all, unreachable_pub)]
#[path = "../generated/prometheus.rs"]
mod v1;

#[rustfmt::skip]
#[allow(clippy::all)]
#[path = "../generated/io.prometheus.write.v2.rs"]
pub mod write_v2;
