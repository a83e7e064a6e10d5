//! Builds responses in budgeted buffers, compressed if the client accepts gzip.

use std::io::{self, Write};

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;

use crate::api_error::ApiError;
use crate::budgeted_buffer::BudgetedBuffer;

/// Smaller responses gain nothing from compression.
const GZIP_BYTES_MIN: usize = 512;

/// A complete response that is not yet sent.
#[derive(Debug)]
pub(crate) struct FinishedResponse {
    pub bytes: Bytes,
    pub content_type: &'static str,
    pub gzipped: bool,
    /// The number of series that were left out of it; `None` if it is whole.
    pub left_out: Option<usize>,
}

/// Names what is left out of a response.
const LEFT_OUT_HEADER: &str = "pegel-left-out";

/// The buffer of one response.
#[derive(Debug)]
pub(crate) struct ResponseBuffer {
    bytes: BudgetedBuffer,
    left_out: Option<usize>,
}

impl ResponseBuffer {
    pub(crate) fn new(buffer: BudgetedBuffer) -> ResponseBuffer {
        ResponseBuffer {
            bytes: buffer,
            left_out: None,
        }
    }

    /// Appends a value as JSON. On failure nothing is appended.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> Result<(), ApiError> {
        let start = self.bytes.as_slice().len();
        serde_json::to_writer(&mut self.bytes, value).map_err(|error| {
            self.bytes.truncate(start);
            self.write_error(&error.into())
        })
    }

    /// Returns whether a failure means that the response is larger than any may be.
    pub(crate) fn is_too_large(&self, failure: &ApiError) -> bool {
        *failure == ApiError::response_too_large(self.bytes.bytes_max())
    }

    /// Marks the response: help texts of users other than the agent's and this number of their
    /// series are left out.
    pub(crate) fn set_left_out(&mut self, series: usize) {
        self.left_out = Some(series);
    }

    pub(crate) fn text(&mut self, text: &str) -> Result<(), ApiError> {
        let written = self.bytes.write_all(text.as_bytes());
        written.map_err(|error| self.write_error(&error))
    }

    /// Takes over a buffer that was built elsewhere, unless it is too large.
    pub(crate) fn adopt(&mut self, bytes: Vec<u8>) -> Result<(), ApiError> {
        let adopted = self.bytes.adopt(bytes);
        adopted.map_err(|error| self.write_error(&error))
    }

    /// Maps a write error of this buffer to an API error.
    pub(crate) fn write_error(&self, error: &io::Error) -> ApiError {
        match error.kind() {
            io::ErrorKind::OutOfMemory => ApiError::response_memory_full(),
            _ => ApiError::response_too_large(self.bytes.bytes_max()),
        }
    }

    /// Returns the size of the largest response.
    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes.bytes_max()
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.as_slice().len()
    }

    /// Removes what follows the first `len` bytes.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.bytes.truncate(len);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.as_slice().is_empty()
    }

    pub(crate) fn into_bytes(self) -> Bytes {
        self.bytes.into_bytes()
    }

    /// Completes the response; compresses it if the client accepts gzip and it is large enough.
    pub(crate) fn finish(
        self,
        content_type: &'static str,
        gzip: bool,
    ) -> Result<FinishedResponse, ApiError> {
        let gzipped = gzip && self.bytes.as_slice().len() >= GZIP_BYTES_MIN;
        let left_out = self.left_out;
        let done = if gzipped { self.gzip()? } else { self };
        Ok(FinishedResponse {
            bytes: done.into_bytes(),
            content_type,
            gzipped,
            left_out,
        })
    }

    fn gzip(self) -> Result<ResponseBuffer, ApiError> {
        let mut encoder = GzEncoder::new(self.bytes.new_empty(), Compression::fast());
        let written = encoder.write_all(self.bytes.as_slice());
        let zipped = written.and_then(|()| encoder.finish());
        zipped
            .map(ResponseBuffer::new)
            .map_err(|error| self.write_error(&error))
    }
}

impl Write for ResponseBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.bytes.flush()
    }
}

impl IntoResponse for FinishedResponse {
    fn into_response(self) -> Response {
        let mut response = Body::from(self.bytes).into_response();
        let headers = response.headers_mut();
        for (name, value) in [
            (header::CONTENT_TYPE, self.content_type),
            (header::VARY, "accept, accept-encoding"),
            (header::CACHE_CONTROL, "no-store"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        if let Some(series) = self.left_out {
            let text = HeaderValue::try_from(format!("help, series={series}"));
            headers.extend(text.map(|text| (HeaderName::from_static(LEFT_OUT_HEADER), text)));
        }
        if self.gzipped {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budgeted_buffer::BufferMemoryBudget;
    use crate::guard::AccessRights;

    fn response_buffer(bytes_max: usize) -> ResponseBuffer {
        ResponseBuffer::new(BufferMemoryBudget::new(1 << 20).buffer(bytes_max, AccessRights::Owner))
    }

    #[test]
    fn a_response_stops_at_its_largest_size() {
        let mut buffer = response_buffer(10);
        assert_eq!(buffer.json(&"1234567"), Ok(()));
        assert_eq!(buffer.text("ab"), Err(ApiError::response_too_large(10)));
        assert_eq!(buffer.into_bytes(), b"\"1234567\""[..]);
        let mut other =
            ResponseBuffer::new(BufferMemoryBudget::new(1).buffer(4 << 10, AccessRights::Owner));
        let text = "x".repeat(2 << 10);
        assert_eq!(other.text(&text), Err(ApiError::response_memory_full()));
    }

    #[test]
    fn only_what_gains_is_compressed() {
        let finished = |bytes: usize| {
            let mut buffer = response_buffer(1 << 20);
            buffer.text(&"a".repeat(bytes)).expect("room");
            buffer.finish("text/plain", true).expect("finished")
        };
        let small = finished(100);
        assert!(!small.gzipped && small.bytes.len() == 100);
        let large = finished(10_000);
        assert!(large.gzipped && large.bytes.len() < 200);
        assert!(large.bytes.starts_with(&[0x1f, 0x8b]));
    }
}
