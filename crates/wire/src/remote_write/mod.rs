//! Reads and writes the requests of Prometheus' remote write, versions 1.0 and 2.0: protobuf
//! messages. `encode.rs` writes them; the rest of this text is about reading.
//!
//! The messages are read in place: a request has some thousand series with ten labels each, and all
//! but a few of the series are known already. The labels of a series are therefore returned
//! undecoded, so that a caller can look them up by their bytes ([`TimeSeriesV1::labels`]), or by
//! their references into the symbols of the request (2.0), and decode them only if the series is
//! new. The definitions are in `crates/wire/proto`.

mod encode;
mod labels;
mod read_response;
mod request_v1;
mod request_v2;
mod samples;
#[cfg(test)]
mod tests;

pub use crate::protobuf_fields::ProtobufError;
pub use encode::{EncodedMetadata, RequestEncoderV1, RequestEncoderV2, encode_labels};
pub use labels::{LabelsError, SentLabels};
pub use read_response::ReadResponseSeries;
pub use request_v1::{MetadataV1, TimeSeriesV1, WriteItem, WriteRequestV1};
pub use request_v2::{MetadataV2, TimeSeriesV2, WriteRequestV2, text_start};
pub use samples::{Samples, SentSample};

/// The most samples of one request: far more than senders put into one.
pub const SAMPLES_MAX: usize = 100_000;

/// The type of a metric, as its number in both versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteMetricType(pub u64);

impl RemoteMetricType {
    /// Returns the name that Prometheus uses; unknown numbers are of unknown type.
    pub fn as_str(self) -> &'static str {
        match self.0 {
            1 => "counter",
            2 => "gauge",
            3 => "histogram",
            4 => "gaugehistogram",
            5 => "summary",
            6 => "info",
            7 => "stateset",
            _ => "unknown",
        }
    }
}
