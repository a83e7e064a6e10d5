//! Executes requests off the async workers, with limits on concurrency and on the memory of all
//! responses. Routes call [`RequestExecutor`] with a closure that reads or writes the store; range
//! queries, reads of current values and writes have separate limits, so that one kind cannot starve
//! another. Response memory is reserved while a response is built and released when its last byte
//! has been sent.

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

use crate::api_error::ApiError;
use crate::guard::AccessRights;
use crate::query_threads::QueryThreads;
use crate::refusals::{ClientRefusal, RefusalCounters};
use crate::settings::ServeSettings;
use crate::slots::Slots;

/// Granularity of the memory budget, in bytes per semaphore permit.
const PERMIT_BYTES: usize = 1024;
/// A buffer doubles up to this size and then grows by it: further doubling could take twice the
/// memory needed.
const GROWTH_BYTES_MAX: usize = 1 << 20;
/// Responses up to this size are small.
const SMALL_RESPONSE_BYTES: usize = 256 << 10;
/// How many writes run concurrently; further ones wait.
const WRITES_MAX: usize = 16;
/// How long a read waits for a refresh of programs' counters.
const REFRESH_TIME: Duration = Duration::from_millis(250);
/// Smaller responses gain nothing from compression.
const GZIP_BYTES_MIN: usize = 512;

#[derive(Debug)]
pub(crate) struct RequestExecutor {
    response_bytes_max: usize,
    /// Range queries, which read blocks.
    queries: Slots,
    query_threads: QueryThreads,
    /// Reads of current values: they must not queue behind range queries.
    latest_reads: Slots,
    /// Writes: several may wait for the log together.
    writes: Arc<Semaphore>,
    /// At most one refresh of programs' counters runs at a time.
    refreshes: Arc<Semaphore>,
    memory: ResponseMemory,
    refusals: Arc<RefusalCounters>,
}

/// The memory budget of all responses, from the first byte built to the last byte sent.
#[derive(Debug, Clone)]
struct ResponseMemory {
    all: Arc<Semaphore>,
    /// The part of `all` that large responses may use: small ones find room even if clients of
    /// large ones stall.
    large: Arc<Semaphore>,
}

/// A complete response that is not yet sent.
#[derive(Debug)]
pub(crate) struct FinishedResponse {
    pub bytes: Bytes,
    pub content_type: &'static str,
    pub gzipped: bool,
}

impl RequestExecutor {
    pub fn new(
        settings: &ServeSettings,
        refusals: Arc<RefusalCounters>,
    ) -> io::Result<RequestExecutor> {
        let permits = settings.responses_bytes_max / PERMIT_BYTES;
        Ok(RequestExecutor {
            response_bytes_max: settings.response_bytes_max,
            queries: Slots::new(settings.queries_max),
            query_threads: QueryThreads::new(settings.queries_max)?,
            latest_reads: Slots::new(settings.queries_max),
            writes: Arc::new(Semaphore::new(WRITES_MAX)),
            refreshes: Arc::new(Semaphore::new(1)),
            memory: ResponseMemory {
                all: Arc::new(Semaphore::new(permits)),
                large: Arc::new(Semaphore::new(permits / 4 * 3)),
            },
            refusals,
        })
    }

    /// An empty buffer for one response.
    pub fn response_buffer(&self) -> ResponseBuffer {
        ResponseBuffer::new(self.response_bytes_max, self.memory.clone())
    }

    /// Executes a range query.
    pub async fn query<T: Send + 'static>(
        &self,
        rights: AccessRights,
        work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let slot = self.queries.take(rights);
        self.run_blocking(slot, self.query_threads.handle(), work)
            .await
    }

    /// Executes a read of current values.
    pub async fn read_latest<T: Send + 'static>(
        &self,
        rights: AccessRights,
        work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let slot = self.latest_reads.take(rights);
        self.run_blocking(slot, &Handle::current(), work).await
    }

    /// Executes a write, which may wait for the log.
    pub async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let slot = self.writes.clone().acquire_owned();
        self.run_blocking(slot, &Handle::current(), work).await
    }

    /// Refreshes programs' counters, so that a read sees what they counted until now. If the store
    /// hangs, the read does not wait for long and returns the values that are there.
    pub async fn refresh(&self, ingest: &Arc<Ingest>) {
        let ingest = ingest.clone();
        let slot = self.refreshes.clone().acquire_owned();
        let threads = Handle::current();
        let refresh = self.run_blocking(slot, &threads, move || {
            // Values that cannot be written now are as old as the last tick; `/status` reports the
            // reason.
            let _ = ingest.refresh();
            Ok(())
        });
        let _ = timeout(REFRESH_TIME, refresh).await;
    }

    /// Waits for a slot, then runs the work on a blocking thread of a runtime.
    async fn run_blocking<T: Send + 'static, S: Send + 'static>(
        &self,
        slot: impl Future<Output = Result<S, AcquireError>>,
        threads: &Handle,
        work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let slot = slot.await.map_err(|_| ApiError::internal())?;
        // The slot moves with the work: it stays taken if the client disconnects before the end.
        let done = threads.spawn_blocking(move || {
            let result = work();
            drop(slot);
            result
        });
        let result = done.await.map_err(|_| ApiError::internal())?;
        if let Err(failure) = &result {
            if *failure == ApiError::response_too_large(self.response_bytes_max) {
                self.refusals.count(ClientRefusal::AnswerSize);
            } else if *failure == ApiError::response_memory_full() {
                self.refusals.count(ClientRefusal::AnswerMemory);
            }
        }
        result
    }
}

impl IntoResponse for FinishedResponse {
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

/// The bytes of a response. Its permits are released with the last reference.
struct ResponseBytes {
    bytes: Vec<u8>,
    _permits: Vec<OwnedSemaphorePermit>,
}

impl AsRef<[u8]> for ResponseBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The buffer of one response: grows up to the largest response, and reserves from the shared
/// budget as it grows.
#[derive(Debug)]
pub(crate) struct ResponseBuffer {
    bytes: Vec<u8>,
    bytes_max: usize,
    memory: ResponseMemory,
    /// Permits held; those beyond [`SMALL_RESPONSE_BYTES`] count twice, in `all` and in `large`.
    permits: Vec<OwnedSemaphorePermit>,
    reserved: usize,
}

impl ResponseBuffer {
    fn new(bytes_max: usize, memory: ResponseMemory) -> ResponseBuffer {
        ResponseBuffer {
            bytes: Vec::new(),
            bytes_max,
            memory,
            permits: Vec::new(),
            reserved: 0,
        }
    }

    pub fn json(&mut self, value: &impl Serialize) -> Result<(), ApiError> {
        let bytes_max = self.bytes_max;
        serde_json::to_writer(self, value)
            .map_err(|error| buffer_error(error.io_error_kind(), bytes_max))
    }

    pub fn text(&mut self, text: &str) -> Result<(), ApiError> {
        let bytes_max = self.bytes_max;
        io::Write::write_all(self, text.as_bytes())
            .map_err(|error| buffer_error(Some(error.kind()), bytes_max))
    }

    /// Maps a write error of this buffer to an API error.
    pub fn write_error(&self, error: &io::Error) -> ApiError {
        buffer_error(Some(error.kind()), self.bytes_max)
    }

    /// Takes over a buffer that was built elsewhere, unless it is too large.
    pub fn adopt(&mut self, bytes: Vec<u8>) -> Result<(), ApiError> {
        let fits = if bytes.len() > self.bytes_max {
            Err(io::ErrorKind::FileTooLarge.into())
        } else {
            self.reserve(bytes.capacity())
        };
        fits.map_err(|error: io::Error| buffer_error(Some(error.kind()), self.bytes_max))?;
        self.bytes = bytes;
        Ok(())
    }

    /// Completes the response; compresses it if the client accepts gzip and it is large enough.
    pub fn finish(
        self,
        content_type: &'static str,
        gzip: bool,
    ) -> Result<FinishedResponse, ApiError> {
        let gzipped = gzip && self.bytes.len() >= GZIP_BYTES_MIN;
        let done = if gzipped { self.gzip()? } else { self };
        Ok(FinishedResponse {
            bytes: done.into_bytes(),
            content_type,
            gzipped,
        })
    }

    pub fn into_bytes(self) -> Bytes {
        Bytes::from_owner(ResponseBytes {
            bytes: self.bytes,
            _permits: self.permits,
        })
    }

    fn gzip(self) -> Result<ResponseBuffer, ApiError> {
        let buffer = ResponseBuffer::new(self.bytes_max, self.memory);
        let mut encoder = GzEncoder::new(buffer, Compression::fast());
        io::Write::write_all(&mut encoder, &self.bytes)
            .and_then(|()| encoder.finish())
            .map_err(|error| buffer_error(Some(error.kind()), self.bytes_max))
    }

    /// Reserves what is missing for a buffer of this capacity.
    fn reserve(&mut self, capacity: usize) -> io::Result<()> {
        let wanted = capacity.div_ceil(PERMIT_BYTES).max(self.reserved);
        let large = |permits: usize| permits.saturating_sub(SMALL_RESPONSE_BYTES / PERMIT_BYTES);
        for (memory, more) in [
            (&self.memory.large, large(wanted) - large(self.reserved)),
            (&self.memory.all, wanted - self.reserved),
        ] {
            let more = u32::try_from(more).unwrap_or(u32::MAX);
            let permit = memory.clone().try_acquire_many_owned(more);
            self.permits
                .push(permit.map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?);
        }
        self.reserved = wanted;
        Ok(())
    }
}

fn buffer_error(kind: Option<io::ErrorKind>, bytes_max: usize) -> ApiError {
    match kind {
        Some(io::ErrorKind::OutOfMemory) => ApiError::response_memory_full(),
        _ => ApiError::response_too_large(bytes_max),
    }
}

impl io::Write for ResponseBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let wanted = self.bytes.len() + bytes.len();
        if wanted > self.bytes_max {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        if wanted > self.bytes.capacity() {
            let growth = self.bytes.capacity().clamp(PERMIT_BYTES, GROWTH_BYTES_MAX);
            let capacity = wanted
                .max(self.bytes.capacity() + growth)
                .min(self.bytes_max);
            self.reserve(capacity)?;
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

    fn answers(answer_bytes_max: usize, answers_bytes_max: usize) -> RequestExecutor {
        let settings = ServeSettings {
            response_bytes_max: answer_bytes_max,
            responses_bytes_max: answers_bytes_max,
            ..ServeSettings::default()
        };
        RequestExecutor::new(&settings, Arc::new(RefusalCounters::default())).expect("started")
    }

    #[test]
    fn memory_is_given_back_when_the_last_byte_is_gone() {
        let answers = answers(1 << 20, 8 << 10);
        let text = "x".repeat(6 << 10);
        let mut first = answers.response_buffer();
        first.text(&text).expect("room");
        assert_eq!(
            answers.response_buffer().text(&text),
            Err(ApiError::response_memory_full()),
            "while it is made"
        );
        let first = first.into_bytes();
        let slice = first.slice(10..20);
        drop(first);
        assert_eq!(
            answers.response_buffer().text(&text),
            Err(ApiError::response_memory_full()),
            "while it is read"
        );
        drop(slice);
        assert_eq!(answers.response_buffer().text(&text), Ok(()));
    }

    #[test]
    fn large_answers_leave_room_for_small_ones() {
        let answers = answers(8 << 20, 4 << 20);
        let mut large = answers.response_buffer();
        large.text(&"x".repeat(5 << 19)).expect("room");
        let rest = "x".repeat(5 << 18);
        assert_eq!(
            answers.response_buffer().text(&rest),
            Err(ApiError::response_memory_full())
        );
        assert_eq!(answers.response_buffer().text("x"), Ok(()));
        drop(large);
        assert_eq!(answers.response_buffer().text(&rest), Ok(()));
    }

    #[test]
    fn an_answer_stops_at_its_largest_size() {
        let mut buffer = answers(10, 1 << 20).response_buffer();
        assert_eq!(buffer.json(&"1234567"), Ok(()));
        assert_eq!(buffer.text("ab"), Err(ApiError::response_too_large(10)));
        assert_eq!(buffer.into_bytes(), b"\"1234567\""[..]);
    }

    #[test]
    fn only_what_gains_is_compressed() {
        let answers = answers(1 << 20, 1 << 20);
        let finished = |bytes: usize| {
            let mut buffer = answers.response_buffer();
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
