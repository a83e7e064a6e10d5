//! Making answers: off the async workers, a few at a time, within the memory set aside for them.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use pegel_ingest::Ingest;
use serde::Serialize;
use tokio::runtime::Handle;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::failure::Failure;
use crate::guard::Rights;
use crate::query_threads::QueryThreads;
use crate::refusals::{Refusal, Refusals};
use crate::settings::Settings;
use crate::slots::Slots;

/// Memory is handed out in pieces of this size.
const PIECE_BYTES: usize = 1024;
/// A buffer doubles until it has this size, and then grows by it: doubling on would take twice what is needed.
const GROWTH_BYTES_MAX: usize = 1 << 20;
/// Answers up to this size are small.
const SMALL_BYTES: usize = 256 << 10;
/// How many clients may write at one time; the next ones wait.
const WRITES_MAX: usize = 16;
/// How long a reader waits for programs' counters.
const REFRESH_TIME: Duration = Duration::from_millis(250);
/// Smaller answers gain nothing from being compressed.
const GZIP_BYTES_MIN: usize = 512;

#[derive(Debug)]
pub(crate) struct Answers {
    answer_bytes_max: usize,
    /// Questions about the past, which read blocks.
    queries: Slots,
    query_threads: QueryThreads,
    /// Questions about the present: they must not queue behind the others.
    looks: Slots,
    /// What is written: many may wait for the log together.
    writes: Arc<Semaphore>,
    /// Programs' counters are brought up to date by one at a time.
    refreshes: Arc<Semaphore>,
    memory: Memory,
    refusals: Arc<Refusals>,
}

/// For all answers, from their first byte that is made to their last one that is read.
#[derive(Debug, Clone)]
struct Memory {
    all: Arc<Semaphore>,
    /// What large answers may take of it: small ones find room although the readers of large ones are stuck.
    large: Arc<Semaphore>,
}

/// A finished answer that is not yet on its way.
#[derive(Debug)]
pub(crate) struct Finished {
    pub bytes: Bytes,
    pub content_type: &'static str,
    pub gzipped: bool,
}

impl Answers {
    pub fn new(settings: &Settings, refusals: Arc<Refusals>) -> io::Result<Answers> {
        let pieces = settings.answers_bytes_max / PIECE_BYTES;
        Ok(Answers {
            answer_bytes_max: settings.answer_bytes_max,
            queries: Slots::new(settings.queries_max),
            query_threads: QueryThreads::new(settings.queries_max)?,
            looks: Slots::new(settings.queries_max),
            writes: Arc::new(Semaphore::new(WRITES_MAX)),
            refreshes: Arc::new(Semaphore::new(1)),
            memory: Memory {
                all: Arc::new(Semaphore::new(pieces)),
                large: Arc::new(Semaphore::new(pieces / 4 * 3)),
            },
            refusals,
        })
    }

    /// Room for one answer.
    pub fn room(&self) -> Bounded {
        Bounded::new(self.answer_bytes_max, self.memory.clone())
    }

    /// Works on a question about the past.
    pub async fn query<T: Send + 'static>(
        &self,
        rights: Rights,
        work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let slot = self.queries.take(rights);
        self.work(slot, self.query_threads.handle(), work).await
    }

    /// Works on a question about current values.
    pub async fn look<T: Send + 'static>(
        &self,
        rights: Rights,
        work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let slot = self.looks.take(rights);
        self.work(slot, &Handle::current(), work).await
    }

    /// Writes something, which may wait for the log.
    pub async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let slot = self.writes.clone().acquire_owned();
        self.work(slot, &Handle::current(), work).await
    }

    /// Brings programs' counters up to date, so that a look finds what they counted until now. A store that
    /// hangs does not keep the reader waiting for long: what is there is shown.
    pub async fn refresh(&self, intake: &Arc<Ingest>) {
        let intake = intake.clone();
        let slot = self.refreshes.clone().acquire_owned();
        let threads = Handle::current();
        let refresh = self.work(slot, &threads, move || {
            // What cannot be written now is as old as the last tick; `/status` says why.
            let _ = intake.refresh();
            Ok(())
        });
        let _ = timeout(REFRESH_TIME, refresh).await;
    }

    /// Waits for a slot, then works on one of the blocking threads of a runtime.
    async fn work<T: Send + 'static, S: Send + 'static>(
        &self,
        slot: impl Future<Output = Result<S, AcquireError>>,
        threads: &Handle,
        work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let slot = slot.await.map_err(|_| Failure::broken())?;
        // The slot goes with the work: it stays taken when the client leaves before the end.
        let done = threads.spawn_blocking(move || {
            let result = work();
            drop(slot);
            result
        });
        let result = done.await.map_err(|_| Failure::broken())?;
        if let Err(failure) = &result {
            if *failure == Failure::answer_large(self.answer_bytes_max) {
                self.refusals.count(Refusal::AnswerSize);
            } else if *failure == Failure::answers_many() {
                self.refusals.count(Refusal::AnswerMemory);
            }
        }
        result
    }
}

impl IntoResponse for Finished {
    fn into_response(self) -> Response {
        let mut response = Body::from(self.bytes).into_response();
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static(self.content_type),
        );
        headers.insert(
            header::VARY,
            HeaderValue::from_static("accept, accept-encoding"),
        );
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if self.gzipped {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        response
    }
}

/// The bytes of an answer, whose memory is given back with the last of them.
struct Held {
    bytes: Vec<u8>,
    _permits: Vec<OwnedSemaphorePermit>,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The buffer of one answer: it grows to the largest answer at most, and takes from the memory of all as it grows.
#[derive(Debug)]
pub(crate) struct Bounded {
    bytes: Vec<u8>,
    bytes_max: usize,
    memory: Memory,
    /// What it took of the memory, of which the pieces beyond [`SMALL_BYTES`] twice.
    permits: Vec<OwnedSemaphorePermit>,
    pieces: usize,
}

impl Bounded {
    fn new(bytes_max: usize, memory: Memory) -> Bounded {
        Bounded {
            bytes: Vec::new(),
            bytes_max,
            memory,
            permits: Vec::new(),
            pieces: 0,
        }
    }

    pub fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        let bytes_max = self.bytes_max;
        serde_json::to_writer(self, value)
            .map_err(|error| failure(error.io_error_kind(), bytes_max))
    }

    pub fn text(&mut self, text: &str) -> Result<(), Failure> {
        let bytes_max = self.bytes_max;
        io::Write::write_all(self, text.as_bytes())
            .map_err(|error| failure(Some(error.kind()), bytes_max))
    }

    /// Why something could not be written to it.
    pub fn failure(&self, error: &io::Error) -> Failure {
        failure(Some(error.kind()), self.bytes_max)
    }

    /// Takes over a buffer that was made elsewhere, unless it is too large.
    pub fn admit(&mut self, bytes: Vec<u8>) -> Result<(), Failure> {
        let fits = if bytes.len() > self.bytes_max {
            Err(io::ErrorKind::FileTooLarge.into())
        } else {
            self.take(bytes.capacity())
        };
        fits.map_err(|error: io::Error| failure(Some(error.kind()), self.bytes_max))?;
        self.bytes = bytes;
        Ok(())
    }

    /// An answer, compressed where the client wants it and it pays.
    pub fn finish(self, content_type: &'static str, gzip: bool) -> Result<Finished, Failure> {
        let gzipped = gzip && self.bytes.len() >= GZIP_BYTES_MIN;
        let done = if gzipped { self.gzip()? } else { self };
        Ok(Finished {
            bytes: done.into_bytes(),
            content_type,
            gzipped,
        })
    }

    pub fn into_bytes(self) -> Bytes {
        Bytes::from_owner(Held {
            bytes: self.bytes,
            _permits: self.permits,
        })
    }

    fn gzip(self) -> Result<Bounded, Failure> {
        let room = Bounded::new(self.bytes_max, self.memory);
        let mut encoder = GzEncoder::new(room, Compression::fast());
        io::Write::write_all(&mut encoder, &self.bytes)
            .and_then(|()| encoder.finish())
            .map_err(|error| failure(Some(error.kind()), self.bytes_max))
    }

    /// Takes what is missing for a buffer of this size.
    fn take(&mut self, capacity: usize) -> io::Result<()> {
        let wanted = capacity.div_ceil(PIECE_BYTES).max(self.pieces);
        let large = |pieces: usize| pieces.saturating_sub(SMALL_BYTES / PIECE_BYTES);
        for (memory, more) in [
            (&self.memory.large, large(wanted) - large(self.pieces)),
            (&self.memory.all, wanted - self.pieces),
        ] {
            let more = u32::try_from(more).unwrap_or(u32::MAX);
            let permit = memory.clone().try_acquire_many_owned(more);
            self.permits
                .push(permit.map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?);
        }
        self.pieces = wanted;
        Ok(())
    }
}

fn failure(kind: Option<io::ErrorKind>, bytes_max: usize) -> Failure {
    match kind {
        Some(io::ErrorKind::OutOfMemory) => Failure::answers_many(),
        _ => Failure::answer_large(bytes_max),
    }
}

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let wanted = self.bytes.len() + bytes.len();
        if wanted > self.bytes_max {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        if wanted > self.bytes.capacity() {
            let growth = self.bytes.capacity().clamp(PIECE_BYTES, GROWTH_BYTES_MAX);
            let capacity = wanted
                .max(self.bytes.capacity() + growth)
                .min(self.bytes_max);
            self.take(capacity)?;
            self.bytes.reserve_exact(capacity - self.bytes.len());
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
        Answers::new(&settings, Arc::new(Refusals::default())).expect("started")
    }

    #[test]
    fn memory_is_given_back_when_the_last_byte_is_gone() {
        let answers = answers(1 << 20, 8 << 10);
        let text = "x".repeat(6 << 10);
        let mut first = answers.room();
        first.text(&text).expect("room");
        assert_eq!(
            answers.room().text(&text),
            Err(Failure::answers_many()),
            "while it is made"
        );
        let first = first.into_bytes();
        let slice = first.slice(10..20);
        drop(first);
        assert_eq!(
            answers.room().text(&text),
            Err(Failure::answers_many()),
            "while it is read"
        );
        drop(slice);
        assert_eq!(answers.room().text(&text), Ok(()));
    }

    #[test]
    fn large_answers_leave_room_for_small_ones() {
        let answers = answers(8 << 20, 4 << 20);
        let mut large = answers.room();
        large.text(&"x".repeat(5 << 19)).expect("room");
        let rest = "x".repeat(5 << 18);
        assert_eq!(answers.room().text(&rest), Err(Failure::answers_many()));
        assert_eq!(answers.room().text("x"), Ok(()));
        drop(large);
        assert_eq!(answers.room().text(&rest), Ok(()));
    }

    #[test]
    fn an_answer_stops_at_its_largest_size() {
        let mut room = answers(10, 1 << 20).room();
        assert_eq!(room.json(&"1234567"), Ok(()));
        assert_eq!(room.text("ab"), Err(Failure::answer_large(10)));
        assert_eq!(room.into_bytes(), b"\"1234567\""[..]);
    }

    #[test]
    fn only_what_gains_is_compressed() {
        let answers = answers(1 << 20, 1 << 20);
        let finished = |bytes: usize| {
            let mut room = answers.room();
            room.text(&"a".repeat(bytes)).expect("room");
            room.finish("text/plain", true).expect("finished")
        };
        let small = finished(100);
        assert!(!small.gzipped && small.bytes.len() == 100);
        let large = finished(10_000);
        assert!(large.gzipped && large.bytes.len() < 200);
        assert!(large.bytes.starts_with(&[0x1f, 0x8b]));
    }
}
