//! Tracks what a connection is waiting for, and since when. [`ProgressStream`] reports reads and
//! writes, the HTTP service reports the start and end of requests, and the connection's driver asks
//! for the next deadline.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use crate::refusals::ClientRefusal;
use crate::settings::ServeSettings;

/// What a connection is waiting for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestPhase {
    /// The head of a request, since this time.
    Head(Instant),
    /// The next request, of which nothing has arrived, since this time.
    Idle(Instant),
    /// The response, which has a time limit of its own.
    Busy,
}

/// State shared by a connection's stream, its service and its driver.
#[derive(Debug, Clone)]
pub(crate) struct RequestProgress(Arc<Mutex<ProgressState>>);

#[derive(Debug)]
struct ProgressState {
    phase: RequestPhase,
    /// Requests without a complete response. HTTP/1 has at most one.
    open: usize,
    /// Bytes between requests may belong to the connection itself, as in HTTP/2, and are not the
    /// head of a request.
    is_multiplexed: bool,
    /// Since when the client has accepted no bytes.
    write_stalled_since: Option<Instant>,
}

impl RequestProgress {
    /// A new connection waits for a head: a silent client gets as much time as a slow one.
    pub(crate) fn new(since: Instant) -> RequestProgress {
        RequestProgress::with_phase(RequestPhase::Head(since), false)
    }

    /// The same for a connection with concurrent requests.
    pub(crate) fn multiplexed(since: Instant) -> RequestProgress {
        RequestProgress::with_phase(RequestPhase::Head(since), true)
    }

    fn with_phase(phase: RequestPhase, is_multiplexed: bool) -> RequestProgress {
        RequestProgress(Arc::new(Mutex::new(ProgressState {
            phase,
            open: 0,
            is_multiplexed,
            write_stalled_since: None,
        })))
    }

    fn update(&self, change: impl FnOnce(&mut ProgressState)) {
        change(&mut self.0.lock());
    }

    /// Marks a request's head as complete.
    pub(crate) fn request_begins(&self) {
        self.update(|state| {
            state.open += 1;
            state.phase = RequestPhase::Busy;
        });
    }

    /// Marks the response as handed over in full.
    pub(crate) fn response_ends(&self) {
        self.update(|state| {
            state.open = state.open.saturating_sub(1);
            if state.open == 0 {
                state.phase = RequestPhase::Idle(Instant::now());
            }
        });
    }

    fn bytes_received(&self) {
        self.update(|state| {
            if let (RequestPhase::Idle(_), false) = (state.phase, state.is_multiplexed) {
                state.phase = RequestPhase::Head(Instant::now());
            }
        });
    }

    fn set_write_stalled(&self, stalls: bool) {
        self.update(|state| {
            if stalls {
                state.write_stalled_since =
                    state.write_stalled_since.or_else(|| Some(Instant::now()))
            } else {
                state.write_stalled_since = None
            }
        });
    }

    /// Returns when to check again, or why to close the connection now (`None`: it was only idle
    /// too long).
    pub(crate) fn next_deadline(
        &self,
        now: Instant,
        settings: &ServeSettings,
    ) -> Result<Instant, Option<ClientRefusal>> {
        let state = self.0.lock();
        let stalled = state
            .write_stalled_since
            .map(|since| (since + settings.write_time, Some(ClientRefusal::SlowReader)));
        let phase = match state.phase {
            RequestPhase::Head(since) => {
                Some((since + settings.head_time, Some(ClientRefusal::HeadTime)))
            }
            // A client whose response is still being sent is not idle.
            RequestPhase::Idle(since) if stalled.is_none() => {
                Some((since + settings.idle_time, None))
            }
            RequestPhase::Idle(_) | RequestPhase::Busy => None,
        };
        // A phase that begins later cannot expire before the shortest limit from now.
        let shortest = settings
            .head_time
            .min(settings.idle_time)
            .min(settings.write_time);
        let mut next = now + shortest;
        for (deadline, reason) in stalled.into_iter().chain(phase) {
            if deadline <= now {
                return Err(reason);
            }
            next = next.min(deadline);
        }
        Ok(next)
    }
}

/// A stream that reports to a [`RequestProgress`]. Reads first return the bytes that were read to
/// detect the protocol.
#[derive(Debug)]
pub(crate) struct ProgressStream<S> {
    prefix: Bytes,
    stream: S,
    progress: RequestProgress,
}

impl<S> ProgressStream<S> {
    pub(crate) fn new(prefix: Vec<u8>, stream: S, progress: RequestProgress) -> ProgressStream<S> {
        ProgressStream {
            prefix: prefix.into(),
            stream,
            progress,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ProgressStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = if self.prefix.is_empty() {
            Pin::new(&mut self.stream).poll_read(cx, buffer)
        } else {
            let count = self.prefix.len().min(buffer.remaining());
            buffer.put_slice(&self.prefix.split_to(count));
            Poll::Ready(Ok(()))
        };
        if buffer.filled().len() > before {
            self.progress.bytes_received();
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ProgressStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.progress.set_write_stalled(polled.is_pending());
        polled
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, buffers);
        self.progress.set_write_stalled(polled.is_pending());
        polled
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_phase_has_its_own_limit() {
        let settings = ServeSettings::default();
        let progress = RequestProgress::new(Instant::now());
        let at = |seconds: u64| Instant::now() + Duration::from_secs(seconds);
        assert!(progress.next_deadline(at(4), &settings).is_ok());
        assert_eq!(
            progress.next_deadline(at(6), &settings),
            Err(Some(ClientRefusal::HeadTime))
        );
        progress.request_begins();
        assert!(progress.next_deadline(at(1000), &settings).is_ok());
        progress.set_write_stalled(true);
        assert_eq!(
            progress.next_deadline(at(31), &settings),
            Err(Some(ClientRefusal::SlowReader))
        );
        progress.set_write_stalled(false);
        progress.response_ends();
        assert!(progress.next_deadline(at(59), &settings).is_ok());
        assert_eq!(progress.next_deadline(at(61), &settings), Err(None));
        progress.bytes_received();
        assert_eq!(
            progress.next_deadline(at(6), &settings),
            Err(Some(ClientRefusal::HeadTime))
        );
    }

    #[test]
    fn concurrent_requests_are_idle_when_the_last_has_ended() {
        let settings = ServeSettings::default();
        let progress = RequestProgress::multiplexed(Instant::now());
        let at = |seconds: u64| Instant::now() + Duration::from_secs(seconds);
        let head_time = Err(Some(ClientRefusal::HeadTime));
        assert_eq!(progress.next_deadline(at(6), &settings), head_time);
        progress.request_begins();
        progress.request_begins();
        progress.response_ends();
        assert!(progress.next_deadline(at(1000), &settings).is_ok());
        progress.response_ends();
        progress.bytes_received();
        assert!(progress.next_deadline(at(59), &settings).is_ok());
        assert_eq!(progress.next_deadline(at(61), &settings), Err(None));
    }

    #[test]
    fn the_next_look_is_never_late() {
        let settings = ServeSettings::default();
        let progress = RequestProgress::new(Instant::now());
        progress.request_begins();
        let now = Instant::now();
        assert_eq!(
            progress.next_deadline(now, &settings),
            Ok(now + settings.head_time)
        );
    }
}
