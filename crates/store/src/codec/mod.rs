//! Encodings.

mod bits;
pub(crate) mod bytes;
mod decimal;
mod entropy;
mod frame;
mod repeats;
#[cfg(test)]
mod measure;
mod row;
#[cfg(test)]
mod tests;
mod times;
mod values;

pub(crate) use row::{decode_row, encode_row};
pub(crate) use times::{decode_times, encode_times};
pub(crate) use values::{decode_values, encode_quick, encode_small};

/// The most rows that one encoded column holds.
pub(crate) const ROWS_MAX: usize = 8192;

/// Bytes that no encoder writes: damaged on the way, or written by something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Corrupt(pub(crate) &'static str);
