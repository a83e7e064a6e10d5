//! Memory for request bodies. Each body has a limit, and all bodies that are being read or
//! processed share one budget. Connections read their bodies through [`BodyMemory`]; memory is
//! reserved as bytes arrive and released with the last reference to them, so that a client cannot
//! make the agent exceed its budget. Clients without rights may only send a key (`/api/token`).

use std::io::{self, Write};
use std::ops::Deref;
use std::sync::Arc;

use axum::http::{HeaderMap, StatusCode, header};
use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use parking_lot::Mutex;
use pegel_metric::DropReason;

use crate::api_error::ApiError;
use crate::budgeted_buffer::{BudgetedBuffer, BufferMemoryBudget};
use crate::guard::AccessRights;
use crate::refusals::ClientRefusal;
use crate::settings::ServeSettings;

/// The largest body of a client without rights.
const UNKNOWN_CLIENT_BYTES_MAX: usize = 4 << 10;

/// How much larger than the largest body one may become that is decompressed with snappy. Senders
/// of remote write count samples, not bytes, and labels repeat.
const SNAPPY_GROWTH_MAX: usize = 8;

/// The memory budget of all request bodies. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct BodyMemory {
    body_bytes_max: usize,
    budget: BufferMemoryBudget,
    spare: Arc<SpareBuffer>,
}

/// The memory of the last body that was decompressed with snappy, for the next one. Bodies of
/// remote write follow each other, and memory from the kernel has to be cleared for each.
#[derive(Debug, Default)]
struct SpareBuffer(Mutex<Vec<u8>>);

/// The largest memory that is kept for the next body.
const SPARE_BYTES_MAX: usize = 1 << 20;

/// A body that was decompressed with snappy.
#[derive(Debug)]
pub(crate) struct SnappyBody {
    buffer: BudgetedBuffer,
    spare: Arc<SpareBuffer>,
}

impl Deref for SnappyBody {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.buffer.as_slice()
    }
}

impl Drop for SnappyBody {
    fn drop(&mut self) {
        let bytes = self.buffer.take();
        if bytes.capacity() <= SPARE_BYTES_MAX {
            *self.spare.0.lock() = bytes;
        }
    }
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

impl BodyMemory {
    pub(crate) fn new(settings: &ServeSettings) -> BodyMemory {
        BodyMemory {
            body_bytes_max: settings.limits.body.as_usize(),
            budget: BufferMemoryBudget::new(settings.limits.bodies.as_usize()),
            spare: Arc::default(),
        }
    }

    /// Bytes in use by bodies at this moment, rounded up for each body.
    pub(crate) fn bytes_in_use(&self) -> usize {
        self.budget.bytes_in_use()
    }

    /// The largest body of a client with these rights.
    pub(crate) fn bytes_max(&self, rights: AccessRights) -> usize {
        match rights {
            AccessRights::None => self.body_bytes_max.min(UNKNOWN_CLIENT_BYTES_MAX),
            AccessRights::User | AccessRights::Owner => self.body_bytes_max,
        }
    }

    /// Reads a body to its end. Reserves memory for the bytes received, not for the announced
    /// length: a client that announces much and sends little takes no memory from others.
    pub(crate) async fn read(
        &self,
        mut body: Incoming,
        rights: AccessRights,
    ) -> Result<Bytes, BodyReadError> {
        let mut buffer = self.budget.buffer(self.bytes_max(rights), rights);
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| BodyReadError::Aborted)?;
            if let Some(bytes) = frame.data_ref() {
                let written = buffer.write_all(bytes);
                written.map_err(|error| BodyReadError::from_write_error(&error))?;
            }
        }
        Ok(buffer.into_bytes())
    }

    /// Returns the decompressed body. CPU-bound: must not run on an async worker.
    pub(crate) fn decompress(
        &self,
        headers: &HeaderMap,
        body: Bytes,
        rights: AccessRights,
    ) -> Result<Bytes, (ApiError, DropReason)> {
        let encoding = headers.get(header::CONTENT_ENCODING);
        let encoding = encoding.map_or("identity", |value| value.to_str().unwrap_or("?"));
        match encoding.to_ascii_lowercase().as_str() {
            "identity" | "" => Ok(body),
            "gzip" | "x-gzip" => self.gunzip(&body, rights),
            other => {
                let message = format!("unsupported content encoding {other:?}");
                let failure = ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message);
                let failure = failure.hint("send the body uncompressed or with gzip");
                Err((failure, DropReason::Malformed))
            }
        }
    }

    /// Returns the message of a gRPC request: the body must be exactly one. CPU-bound: must not run
    /// on an async worker.
    pub(crate) fn unframe_grpc(
        &self,
        headers: &HeaderMap,
        body: Bytes,
        rights: AccessRights,
    ) -> Result<Bytes, (ApiError, DropReason)> {
        let refuse =
            |status, message: String| Err((ApiError::new(status, message), DropReason::Malformed));
        let Some((&[flag, ref length @ ..], message)) = body.split_first_chunk::<5>() else {
            let message = "the body is not a gRPC message".to_owned();
            return refuse(StatusCode::BAD_REQUEST, message);
        };
        if u32::from_be_bytes(*length) as usize != message.len() {
            let message = "the body is not exactly one gRPC message".to_owned();
            return refuse(StatusCode::BAD_REQUEST, message);
        }
        let encoding = headers.get("grpc-encoding");
        let encoding = encoding.map_or("identity", |value| value.to_str().unwrap_or("?"));
        match (flag, encoding) {
            (0, _) => Ok(body.slice(5..)),
            (1, "gzip") => self.gunzip(message, rights),
            (1, other) => {
                let message =
                    format!("unsupported grpc-encoding {other:?}; use gzip or no compression");
                refuse(StatusCode::NOT_IMPLEMENTED, message)
            }
            (_, _) => {
                let message =
                    "the compressed flag of the gRPC message is neither 0 nor 1".to_owned();
                refuse(StatusCode::BAD_REQUEST, message)
            }
        }
    }

    /// Returns a body that must be compressed with snappy, in its block format. CPU-bound: must not
    /// run on an async worker.
    pub(crate) fn decompress_snappy(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        rights: AccessRights,
    ) -> Result<SnappyBody, (ApiError, DropReason)> {
        let encoding = headers.get(header::CONTENT_ENCODING);
        if let Some(other) =
            encoding.filter(|value| !value.as_bytes().eq_ignore_ascii_case(b"snappy"))
        {
            let message = format!("unsupported content encoding {other:?}");
            let failure = ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message);
            let failure = failure.hint("compress the body with snappy, in its block format");
            return Err((failure, DropReason::Malformed));
        }
        let malformed = |error: &dyn std::fmt::Display| {
            let message = format!("the body is not valid snappy: {error}");
            (ApiError::bad_request(message), DropReason::Malformed)
        };
        let len = snap::raw::decompress_len(body).map_err(|error| malformed(&error))?;
        let bytes_max = self.bytes_max(rights).saturating_mul(SNAPPY_GROWTH_MAX);
        let mut unpacked = SnappyBody {
            buffer: self.budget.buffer(bytes_max, rights),
            spare: self.spare.clone(),
        };
        let spare = std::mem::take(&mut *self.spare.0.lock());
        let filled = unpacked.buffer.fill(spare, len, |bytes| {
            let written = snap::raw::Decoder::new().decompress(body, bytes);
            written.map(drop).map_err(io::Error::other)
        });
        match filled {
            Ok(()) => Ok(unpacked),
            Err(error) => Err(match BodyReadError::from_write_error(&error) {
                BodyReadError::Aborted => malformed(&error),
                limit => (limit.failure(bytes_max), limit.drop_reason()),
            }),
        }
    }

    fn gunzip(&self, body: &[u8], rights: AccessRights) -> Result<Bytes, (ApiError, DropReason)> {
        let mut buffer = self.budget.buffer(self.bytes_max(rights), rights);
        match io::copy(&mut MultiGzDecoder::new(body), &mut buffer) {
            Ok(_) => Ok(buffer.into_bytes()),
            Err(error) => Err(match BodyReadError::from_write_error(&error) {
                BodyReadError::Aborted => {
                    let message = format!("the body is not valid gzip: {error}");
                    (ApiError::bad_request(message), DropReason::Malformed)
                }
                limit => (limit.failure(self.bytes_max(rights)), limit.drop_reason()),
            }),
        }
    }
}

impl BodyReadError {
    /// The limit that a write to a budgeted buffer exceeded.
    fn from_write_error(error: &io::Error) -> BodyReadError {
        match error.kind() {
            io::ErrorKind::FileTooLarge => BodyReadError::TooLarge,
            io::ErrorKind::OutOfMemory => BodyReadError::MemoryFull,
            _ => BodyReadError::Aborted,
        }
    }

    pub(crate) fn drop_reason(self) -> DropReason {
        match self {
            BodyReadError::TooLarge => DropReason::TooLarge,
            BodyReadError::MemoryFull => DropReason::Busy,
            BodyReadError::Aborted => DropReason::Malformed,
        }
    }

    /// The reason under which the refusal is counted; `None` if no limit was exceeded.
    pub(crate) fn refusal(self) -> Option<ClientRefusal> {
        match self {
            BodyReadError::TooLarge => Some(ClientRefusal::BodySize),
            BodyReadError::MemoryFull => Some(ClientRefusal::BodyMemory),
            BodyReadError::Aborted => None,
        }
    }

    /// The response to a client whose bodies are limited to `bytes_max`.
    pub(crate) fn failure(self, bytes_max: usize) -> ApiError {
        match self {
            BodyReadError::TooLarge => ApiError::body_too_large(bytes_max),
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
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use pegel_config::ByteSize;

    use super::*;

    fn bodies(body_bytes_max: usize, bodies_bytes_max: usize) -> BodyMemory {
        let mut settings = ServeSettings::default();
        settings.limits.body = ByteSize::bytes(body_bytes_max as u64);
        settings.limits.bodies = ByteSize::bytes(bodies_bytes_max as u64);
        BodyMemory::new(&settings)
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
    fn compressed_bodies_are_as_limited_as_others() {
        let bodies = bodies(10_000, 1 << 20);
        let body = gzip(b"hello");
        let unzipped = bodies.decompress(&encoded("GZIP"), body.clone(), AccessRights::Owner);
        assert_eq!(unzipped.as_deref(), Ok(&b"hello"[..]));
        drop(unzipped);
        let plain = bodies.decompress(&HeaderMap::new(), body.clone(), AccessRights::Owner);
        assert_eq!(plain.as_deref(), Ok(&body[..]), "no Content-Encoding");
        let bomb = gzip(&vec![0; 10 << 20]);
        let refused = bodies.decompress(&encoded("gzip"), bomb, AccessRights::Owner);
        let expected = (ApiError::body_too_large(10_000), DropReason::TooLarge);
        assert_eq!(refused.err(), Some(expected));
        assert_eq!(bodies.bytes_in_use(), 0);
        let broken = bodies.decompress(
            &encoded("gzip"),
            Bytes::from_static(b"hello"),
            AccessRights::Owner,
        );
        assert!(
            broken
                .expect_err("refused")
                .0
                .message()
                .starts_with("the body is not valid gzip")
        );
        let unknown = bodies.decompress(&encoded("zstd"), body, AccessRights::Owner);
        assert_eq!(
            unknown.expect_err("refused").0.message(),
            "unsupported content encoding \"zstd\""
        );
    }

    #[test]
    fn bodies_in_snappy_are_limited_before_memory_is_taken() {
        let bodies = bodies(1_000, 1 << 20);
        let pack = |bytes: &[u8]| {
            snap::raw::Encoder::new()
                .compress_vec(bytes)
                .expect("packed")
        };
        let unpack = |headers: &HeaderMap, body: &[u8]| {
            bodies.decompress_snappy(headers, body, AccessRights::Owner)
        };
        let body = pack(&[7; 8_000]);
        for headers in [HeaderMap::new(), encoded("snappy"), encoded("Snappy")] {
            assert_eq!(unpack(&headers, &body).as_deref(), Ok(&[7; 8_000][..]));
        }
        let bomb = unpack(&HeaderMap::new(), &pack(&[7; 8_001])).expect_err("too large");
        assert_eq!(
            bomb,
            (ApiError::body_too_large(8_000), DropReason::TooLarge)
        );
        // It announces four gigabytes.
        let liar = unpack(&HeaderMap::new(), &[0xff, 0xff, 0xff, 0xff, 0x0f, 0]);
        assert_eq!(liar.expect_err("too large").1, DropReason::TooLarge);
        for broken in [
            &b""[..],
            &body[..body.len() - 1],
            &[body.clone(), vec![1]].concat(),
            &[0xff; 12],
        ] {
            let (failure, reason) = unpack(&HeaderMap::new(), broken).expect_err("malformed");
            assert_eq!(
                (failure.status(), reason),
                (StatusCode::BAD_REQUEST, DropReason::Malformed)
            );
        }
        for encoding in ["gzip", "identity", "zstd"] {
            let (failure, _) = unpack(&encoded(encoding), &body).expect_err("refused");
            assert_eq!(
                failure.status(),
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "{encoding}"
            );
        }
        assert_eq!(bodies.bytes_in_use(), 0);
    }

    #[test]
    fn a_client_without_rights_can_only_send_a_key() {
        let bodies = bodies(1 << 20, 32 << 20);
        assert_eq!(bodies.bytes_max(AccessRights::None), 4 << 10);
        assert_eq!(bodies.bytes_max(AccessRights::User), 1 << 20);
    }
}
