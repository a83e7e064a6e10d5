//! Making answers: off the async workers, a few at a time, within the memory set aside for them.

use std::io;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::failure::Failure;
use crate::refusals::{Refusal, Refusals};
use crate::settings::Settings;

/// Memory is handed out in pieces of this size.
const PIECE_BYTES: usize = 1024;
/// Smaller answers gain nothing from being compressed.
const GZIP_BYTES_MIN: usize = 512;

#[derive(Debug)]
pub(crate) struct Answers {
    answer_bytes_max: usize,
    /// Questions about the past, which read blocks.
    queries: Arc<Semaphore>,
    /// Questions about the present: they must not queue behind the others.
    looks: Arc<Semaphore>,
    memory: Arc<Semaphore>,
    refusals: Arc<Refusals>,
}

/// A finished answer that is not yet on its way.
#[derive(Debug)]
pub(crate) struct Finished {
    pub bytes: Vec<u8>,
    pub content_type: &'static str,
    pub gzipped: bool,
}

impl Answers {
    pub fn new(settings: &Settings, refusals: Arc<Refusals>) -> Answers {
        Answers {
            answer_bytes_max: settings.answer_bytes_max,
            queries: Arc::new(Semaphore::new(settings.queries_max)),
            looks: Arc::new(Semaphore::new(settings.queries_max)),
            memory: Arc::new(Semaphore::new(settings.answers_bytes_max / PIECE_BYTES)),
            refusals,
        }
    }

    /// Room for one answer.
    pub fn room(&self) -> Bounded {
        Bounded {
            bytes: Vec::new(),
            bytes_max: self.answer_bytes_max,
        }
    }

    /// Works on a question about the past.
    pub async fn query<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        self.work(&self.queries, work).await
    }

    /// Works on a question about current values.
    pub async fn look<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        self.work(&self.looks, work).await
    }

    async fn work<T: Send + 'static>(
        &self,
        places: &Arc<Semaphore>,
        work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let place = places
            .clone()
            .acquire_owned()
            .await
            .map_err(|_| Failure::broken())?;
        // The place goes with the work: it stays taken when the client leaves before the end.
        let done = tokio::task::spawn_blocking(move || {
            let result = work();
            drop(place);
            result
        });
        let result = done.await.map_err(|_| Failure::broken())?;
        if let Err(failure) = &result
            && *failure == Failure::answer_large(self.answer_bytes_max)
        {
            self.refusals.count(Refusal::AnswerSize);
        }
        result
    }

    /// Takes an answer's memory into account until its last byte is gone.
    pub fn hold(&self, bytes: Vec<u8>) -> Result<Bytes, Failure> {
        let pieces = u32::try_from(bytes.capacity().div_ceil(PIECE_BYTES)).unwrap_or(u32::MAX);
        match self.memory.clone().try_acquire_many_owned(pieces) {
            Ok(permit) => Ok(Bytes::from_owner(Held {
                bytes,
                _permit: permit,
            })),
            Err(_) => {
                self.refusals.count(Refusal::AnswerMemory);
                Err(Failure::answers_many())
            }
        }
    }

    pub fn respond(&self, finished: Finished) -> Result<Response, Failure> {
        let mut response = Body::from(self.hold(finished.bytes)?).into_response();
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static(finished.content_type),
        );
        headers.insert(
            header::VARY,
            HeaderValue::from_static("accept, accept-encoding"),
        );
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if finished.gzipped {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        Ok(response)
    }
}

struct Held {
    bytes: Vec<u8>,
    _permit: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Finished {
    /// Compresses where the client wants it and it pays.
    pub fn new(mut bytes: Vec<u8>, content_type: &'static str, gzip: bool) -> Finished {
        let gzipped = gzip && bytes.len() >= GZIP_BYTES_MIN;
        if gzipped {
            bytes = gzip_of(&bytes);
        } else {
            bytes.shrink_to_fit();
        }
        Finished {
            bytes,
            content_type,
            gzipped,
        }
    }
}

fn gzip_of(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 8), Compression::fast());
    io::Write::write_all(&mut encoder, bytes)
        .and_then(|()| encoder.finish())
        .expect("writing to memory cannot fail")
}

/// A buffer that does not grow beyond the largest answer.
#[derive(Debug)]
pub(crate) struct Bounded {
    bytes: Vec<u8>,
    bytes_max: usize,
}

impl Bounded {
    pub fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        let bytes_max = self.bytes_max;
        serde_json::to_writer(self, value).map_err(|_| Failure::answer_large(bytes_max))
    }

    pub fn text(&mut self, text: &str) -> Result<(), Failure> {
        let bytes_max = self.bytes_max;
        io::Write::write_all(self, text.as_bytes()).map_err(|_| Failure::answer_large(bytes_max))
    }

    /// Lets a buffer through that was made elsewhere, unless it is too large.
    pub fn admit(&self, bytes: Vec<u8>) -> Result<Vec<u8>, Failure> {
        match bytes.len() > self.bytes_max {
            true => Err(Failure::answer_large(self.bytes_max)),
            false => Ok(bytes),
        }
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > self.bytes_max {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(answer_bytes_max: usize, answers_bytes_max: usize) -> Answers {
        let settings = Settings {
            answer_bytes_max,
            answers_bytes_max,
            ..Settings::default()
        };
        Answers::new(&settings, Arc::new(Refusals::default()))
    }

    #[test]
    fn memory_is_given_back_when_the_last_byte_is_gone() {
        let answers = answers(1 << 20, 8 << 10);
        let first = answers.hold(vec![1; 6 << 10]).expect("room");
        let slice = first.slice(10..20);
        drop(first);
        assert_eq!(answers.hold(vec![0; 6 << 10]), Err(Failure::answers_many()));
        drop(slice);
        assert!(answers.hold(vec![0; 6 << 10]).is_ok());
        assert!(answers.refusals.all().contains(&("answer_memory", 1)));
    }

    #[test]
    fn an_answer_stops_at_its_largest_size() {
        let mut room = answers(10, 0).room();
        assert_eq!(room.json(&"1234567"), Ok(()));
        assert_eq!(room.text("ab"), Err(Failure::answer_large(10)));
        assert_eq!(room.into_bytes(), b"\"1234567\"");
    }

    #[test]
    fn only_what_gains_is_compressed() {
        let small = Finished::new(vec![b'a'; 100], "text/plain", true);
        assert!(!small.gzipped && small.bytes.len() == 100);
        let large = Finished::new(vec![b'a'; 10_000], "text/plain", true);
        assert!(large.gzipped && large.bytes.len() < 200);
        assert!(large.bytes.starts_with(&[0x1f, 0x8b]));
    }
}
