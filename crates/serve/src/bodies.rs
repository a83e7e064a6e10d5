//! The bodies of requests: each within its limit, and all that are read or worked on within theirs.

use std::future::poll_fn;
use std::io::Read;
use std::pin::Pin;
use std::sync::Arc;

use axum::http::{HeaderMap, StatusCode, header};
use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use hyper::body::{Body as HttpBody, Incoming};
use pegel_metric::Reason;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::failure::Failure;
use crate::refusals::Refusal;
use crate::settings::Settings;

/// Memory is handed out in pieces of this size.
const PIECE_BYTES: usize = 1024;

/// Room for bodies. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Bodies {
    body_bytes_max: usize,
    pieces: usize,
    room: Arc<Semaphore>,
}

/// Why a body was not taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unread {
    /// Larger than one may be.
    TooLarge,
    /// Others take all the room.
    Busy,
    /// The client broke off.
    Gone,
}

/// A body whose room is given back with its last byte.
#[derive(Debug)]
struct Held {
    bytes: Vec<u8>,
    _room: Option<OwnedSemaphorePermit>,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A body that grows.
#[derive(Debug)]
struct Growing<'a> {
    bodies: &'a Bodies,
    bytes: Vec<u8>,
    room: Option<OwnedSemaphorePermit>,
}

impl Bodies {
    pub fn new(settings: &Settings) -> Bodies {
        let pieces = settings.bodies_bytes_max.div_ceil(PIECE_BYTES);
        let pieces = pieces.min(Semaphore::MAX_PERMITS);
        Bodies {
            body_bytes_max: settings.body_bytes_max,
            pieces,
            room: Arc::new(Semaphore::new(pieces)),
        }
    }

    /// How many bytes of bodies are held at this moment, rounded up for each.
    pub fn held(&self) -> usize {
        let free = self.room.available_permits();
        self.pieces.saturating_sub(free) * PIECE_BYTES
    }

    /// Reads a body to its end. Takes room for what came, not for what was announced: a client that
    /// announces much and sends little takes none away from others.
    pub async fn read(&self, mut body: Incoming) -> Result<Bytes, Unread> {
        let mut growing = self.growing();
        loop {
            match poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
                None => return Ok(growing.finish()),
                Some(Err(_)) => return Err(Unread::Gone),
                Some(Ok(frame)) => {
                    if let Some(bytes) = frame.data_ref() {
                        growing.add(bytes)?;
                    }
                }
            }
        }
    }

    fn growing(&self) -> Growing<'_> {
        Growing {
            bodies: self,
            bytes: Vec::new(),
            room: None,
        }
    }

    /// The body as it was before it was compressed. Works hard: not for async workers.
    pub fn plain(&self, headers: &HeaderMap, body: Bytes) -> Result<Bytes, (Failure, Reason)> {
        let encoding = headers.get(header::CONTENT_ENCODING);
        let encoding = encoding.map_or("identity", |value| value.to_str().unwrap_or("?"));
        match encoding.to_ascii_lowercase().as_str() {
            "identity" | "" => Ok(body),
            "gzip" | "x-gzip" => self.unzip(&body),
            other => {
                let message = format!("the body is encoded with {other:?}");
                let failure = Failure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message);
                let failure = failure.hint("send it plain or with gzip");
                Err((failure, Reason::Malformed))
            }
        }
    }

    fn unzip(&self, body: &[u8]) -> Result<Bytes, (Failure, Reason)> {
        let mut growing = self.growing();
        let mut decoder = MultiGzDecoder::new(body);
        let mut piece = [0; 8 << 10];
        loop {
            match decoder.read(&mut piece) {
                Ok(0) => return Ok(growing.finish()),
                Ok(read) => growing
                    .add(&piece[..read])
                    .map_err(|unread| (unread.failure(self), unread.reason()))?,
                Err(error) => {
                    let failure = Failure::bad(format!("the body is not gzip: {error}"));
                    return Err((failure, Reason::Malformed));
                }
            }
        }
    }
}

impl Growing<'_> {
    fn add(&mut self, bytes: &[u8]) -> Result<(), Unread> {
        let wanted = self.bytes.len() + bytes.len();
        if wanted > self.bodies.body_bytes_max {
            return Err(Unread::TooLarge);
        }
        if wanted > self.bytes.capacity() {
            // Twice as much, so that it need not grow often; as much as is needed where there is no more.
            let double = (self.bytes.capacity() * 2).min(self.bodies.body_bytes_max);
            self.grow(double.max(wanted))
                .or_else(|_| self.grow(wanted))?;
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn grow(&mut self, capacity: usize) -> Result<(), Unread> {
        let held = self.bytes.capacity().div_ceil(PIECE_BYTES);
        let more = capacity.div_ceil(PIECE_BYTES) - held;
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        let more = self.bodies.room.clone().try_acquire_many_owned(more);
        let more = more.map_err(|_| Unread::Busy)?;
        match &mut self.room {
            Some(room) => room.merge(more),
            None => self.room = Some(more),
        }
        self.bytes.reserve_exact(capacity - self.bytes.len());
        Ok(())
    }

    fn finish(self) -> Bytes {
        Bytes::from_owner(Held {
            bytes: self.bytes,
            _room: self.room,
        })
    }
}

impl Unread {
    pub fn reason(self) -> Reason {
        match self {
            Unread::TooLarge => Reason::TooLarge,
            Unread::Busy => Reason::Busy,
            Unread::Gone => Reason::Malformed,
        }
    }

    /// Under what it is counted, where a limit was met.
    pub fn refusal(self) -> Option<Refusal> {
        match self {
            Unread::TooLarge => Some(Refusal::BodySize),
            Unread::Busy => Some(Refusal::BodyMemory),
            Unread::Gone => None,
        }
    }

    pub fn failure(self, bodies: &Bodies) -> Failure {
        match self {
            Unread::TooLarge => Failure::body_large(bodies.body_bytes_max),
            Unread::Busy => Failure::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "bodies that are on their way take all the memory set aside for them (limits.bodies)",
            )
            .hint("try again later, or send less at once"),
            Unread::Gone => Failure::bad("the body broke off"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn bodies(body_bytes_max: usize, bodies_bytes_max: usize) -> Bodies {
        Bodies::new(&Settings {
            body_bytes_max,
            bodies_bytes_max,
            ..Settings::default()
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
        let mut first = bodies.growing();
        first.add(&[0; 3 << 10]).expect("room");
        assert_eq!(bodies.held(), 3 << 10);
        let first = first.finish();
        assert_eq!(bodies.growing().add(&[0; 2 << 10]), Err(Unread::Busy));
        let slice = first.slice(5..6);
        drop(first);
        assert_eq!(bodies.growing().add(&[0; 2 << 10]), Err(Unread::Busy));
        drop(slice);
        assert_eq!(bodies.held(), 0);
        assert_eq!(bodies.growing().add(&[0; 4 << 10]), Ok(()));
    }

    #[test]
    fn compressed_bodies_are_as_limited_as_others() {
        let bodies = bodies(10_000, 1 << 20);
        let body = gzip(b"hello");
        let unzipped = bodies.plain(&encoded("GZIP"), body.clone());
        assert_eq!(unzipped.as_deref(), Ok(&b"hello"[..]));
        drop(unzipped);
        let plain = bodies.plain(&HeaderMap::new(), body.clone());
        assert_eq!(
            plain.as_deref(),
            Ok(&body[..]),
            "nobody said that it is gzip"
        );
        let bomb = gzip(&vec![0; 10 << 20]);
        let refused = bodies.plain(&encoded("gzip"), bomb);
        let expected = (Failure::body_large(10_000), Reason::TooLarge);
        assert_eq!(refused.err(), Some(expected));
        assert_eq!(bodies.held(), 0);
        let broken = bodies.plain(&encoded("gzip"), Bytes::from_static(b"hello"));
        assert!(
            broken
                .expect_err("refused")
                .0
                .message()
                .starts_with("the body is not gzip")
        );
        let unknown = bodies.plain(&encoded("zstd"), body);
        assert_eq!(
            unknown.expect_err("refused").0.message(),
            "the body is encoded with \"zstd\""
        );
    }
}
