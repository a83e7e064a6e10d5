//! Memory for request bodies. Each body has a limit, and all bodies that are being read or
//! processed share one budget. Connections read their bodies through [`BodyMemory`]; memory is
//! reserved as bytes arrive and released with the last reference to them, so that a client cannot
//! make the agent exceed its budget.

use std::io::Read;
use std::sync::Arc;

use axum::http::{HeaderMap, StatusCode, header};
use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use pegel_metric::DropReason;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::api_error::ApiError;
use crate::refusals::ClientRefusal;
use crate::settings::ServeSettings;

/// Granularity of the memory budget, in bytes per semaphore permit.
const PERMIT_BYTES: usize = 1024;

/// The memory budget of all request bodies. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct BodyMemory {
    body_bytes_max: usize,
    permits: usize,
    semaphore: Arc<Semaphore>,
}

/// Why a body was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyReadError {
    /// The body exceeds the limit of a single body.
    TooLarge,
    /// Other bodies use the whole budget.
    MemoryFull,
    /// The client closed the connection within the body.
    Aborted,
}

/// A complete body. Its permits are released with its last byte.
#[derive(Debug)]
struct BodyBytes {
    bytes: Vec<u8>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl AsRef<[u8]> for BodyBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A body that is being read.
#[derive(Debug)]
struct BodyBuffer<'a> {
    memory: &'a BodyMemory,
    bytes: Vec<u8>,
    permit: Option<OwnedSemaphorePermit>,
}

impl BodyMemory {
    pub fn new(settings: &ServeSettings) -> BodyMemory {
        let pieces = settings.bodies_bytes_max.div_ceil(PERMIT_BYTES);
        let pieces = pieces.min(Semaphore::MAX_PERMITS);
        BodyMemory {
            body_bytes_max: settings.body_bytes_max,
            permits: pieces,
            semaphore: Arc::new(Semaphore::new(pieces)),
        }
    }

    /// Bytes in use by bodies at this moment, rounded up for each body.
    pub fn bytes_in_use(&self) -> usize {
        let free = self.semaphore.available_permits();
        self.permits.saturating_sub(free) * PERMIT_BYTES
    }

    /// Reads a body to its end. Reserves memory for the bytes received, not for the announced
    /// length: a client that announces much and sends little takes no memory from others.
    pub async fn read(&self, mut body: Incoming) -> Result<Bytes, BodyReadError> {
        let mut buffer = self.buffer();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| BodyReadError::Aborted)?;
            if let Some(bytes) = frame.data_ref() {
                buffer.add(bytes)?;
            }
        }
        Ok(buffer.finish())
    }

    fn buffer(&self) -> BodyBuffer<'_> {
        BodyBuffer {
            memory: self,
            bytes: Vec::new(),
            permit: None,
        }
    }

    /// Returns the decompressed body. CPU-bound: must not run on an async worker.
    pub fn decompress(
        &self,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<Bytes, (ApiError, DropReason)> {
        let encoding = headers.get(header::CONTENT_ENCODING);
        let encoding = encoding.map_or("identity", |value| value.to_str().unwrap_or("?"));
        match encoding.to_ascii_lowercase().as_str() {
            "identity" | "" => Ok(body),
            "gzip" | "x-gzip" => self.gunzip(&body),
            other => {
                let message = format!("unsupported content encoding {other:?}");
                let failure = ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message);
                let failure = failure.hint("send the body uncompressed or with gzip");
                Err((failure, DropReason::Malformed))
            }
        }
    }

    fn gunzip(&self, body: &[u8]) -> Result<Bytes, (ApiError, DropReason)> {
        let mut buffer = self.buffer();
        let mut decoder = MultiGzDecoder::new(body);
        let mut piece = [0; 8 << 10];
        loop {
            match decoder.read(&mut piece) {
                Ok(0) => return Ok(buffer.finish()),
                Ok(read) => buffer
                    .add(&piece[..read])
                    .map_err(|error| (error.failure(self), error.drop_reason()))?,
                Err(error) => {
                    let failure =
                        ApiError::bad_request(format!("the body is not valid gzip: {error}"));
                    return Err((failure, DropReason::Malformed));
                }
            }
        }
    }
}

impl BodyBuffer<'_> {
    fn add(&mut self, bytes: &[u8]) -> Result<(), BodyReadError> {
        let wanted = self.bytes.len() + bytes.len();
        if wanted > self.memory.body_bytes_max {
            return Err(BodyReadError::TooLarge);
        }
        if wanted > self.bytes.capacity() {
            // Double the buffer to avoid frequent growth; if the budget has no room for that, take
            // only what is needed.
            let double = (self.bytes.capacity() * 2).min(self.memory.body_bytes_max);
            self.grow(double.max(wanted))
                .or_else(|_| self.grow(wanted))?;
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn grow(&mut self, capacity: usize) -> Result<(), BodyReadError> {
        let held = self.bytes.capacity().div_ceil(PERMIT_BYTES);
        let more = capacity.div_ceil(PERMIT_BYTES) - held;
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        let more = self.memory.semaphore.clone().try_acquire_many_owned(more);
        let more = more.map_err(|_| BodyReadError::MemoryFull)?;
        match &mut self.permit {
            Some(permit) => permit.merge(more),
            None => self.permit = Some(more),
        }
        self.bytes.reserve_exact(capacity - self.bytes.len());
        Ok(())
    }

    fn finish(self) -> Bytes {
        Bytes::from_owner(BodyBytes {
            bytes: self.bytes,
            _permit: self.permit,
        })
    }
}

impl BodyReadError {
    pub fn drop_reason(self) -> DropReason {
        match self {
            BodyReadError::TooLarge => DropReason::TooLarge,
            BodyReadError::MemoryFull => DropReason::Busy,
            BodyReadError::Aborted => DropReason::Malformed,
        }
    }

    /// The reason under which the refusal is counted; `None` if no limit was exceeded.
    pub fn refusal(self) -> Option<ClientRefusal> {
        match self {
            BodyReadError::TooLarge => Some(ClientRefusal::BodySize),
            BodyReadError::MemoryFull => Some(ClientRefusal::BodyMemory),
            BodyReadError::Aborted => None,
        }
    }

    pub fn failure(self, bodies: &BodyMemory) -> ApiError {
        match self {
            BodyReadError::TooLarge => ApiError::body_too_large(bodies.body_bytes_max),
            BodyReadError::MemoryFull => ApiError::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "the memory for request bodies is in use by other requests (limits.bodies)",
            )
            .hint("retry later, or send smaller bodies"),
            BodyReadError::Aborted => {
                ApiError::bad_request("the connection closed within the request body")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn bodies(body_bytes_max: usize, bodies_bytes_max: usize) -> BodyMemory {
        BodyMemory::new(&ServeSettings {
            body_bytes_max,
            bodies_bytes_max,
            ..ServeSettings::default()
        })
    }

    fn gzip(bytes: &[u8]) -> Bytes {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).expect("written");
        encoder.finish().expect("finished").into()
    }

    fn encoded(encoding: &'static str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("content-encoding", encoding.parse().expect("a value"));
        headers
    }

    #[test]
    fn room_is_given_back_with_the_last_byte() {
        let bodies = bodies(1 << 20, 4 << 10);
        let mut first = bodies.buffer();
        first.add(&[0; 3 << 10]).expect("room");
        assert_eq!(bodies.bytes_in_use(), 3 << 10);
        let first = first.finish();
        assert_eq!(
            bodies.buffer().add(&[0; 2 << 10]),
            Err(BodyReadError::MemoryFull)
        );
        let slice = first.slice(5..6);
        drop(first);
        assert_eq!(
            bodies.buffer().add(&[0; 2 << 10]),
            Err(BodyReadError::MemoryFull)
        );
        drop(slice);
        assert_eq!(bodies.bytes_in_use(), 0);
        assert_eq!(bodies.buffer().add(&[0; 4 << 10]), Ok(()));
    }

    #[test]
    fn compressed_bodies_are_as_limited_as_others() {
        let bodies = bodies(10_000, 1 << 20);
        let body = gzip(b"hello");
        let unzipped = bodies.decompress(&encoded("GZIP"), body.clone());
        assert_eq!(unzipped.as_deref(), Ok(&b"hello"[..]));
        drop(unzipped);
        let plain = bodies.decompress(&HeaderMap::new(), body.clone());
        assert_eq!(plain.as_deref(), Ok(&body[..]), "no Content-Encoding");
        let bomb = gzip(&vec![0; 10 << 20]);
        let refused = bodies.decompress(&encoded("gzip"), bomb);
        let expected = (ApiError::body_too_large(10_000), DropReason::TooLarge);
        assert_eq!(refused.err(), Some(expected));
        assert_eq!(bodies.bytes_in_use(), 0);
        let broken = bodies.decompress(&encoded("gzip"), Bytes::from_static(b"hello"));
        assert!(
            broken
                .expect_err("refused")
                .0
                .message()
                .starts_with("the body is not valid gzip")
        );
        let unknown = bodies.decompress(&encoded("zstd"), body);
        assert_eq!(
            unknown.expect_err("refused").0.message(),
            "unsupported content encoding \"zstd\""
        );
    }
}
