//! A connection's stream that knows what it is waiting for, and since when.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use crate::refusals::Refusal;
use crate::settings::Settings;

/// What a connection waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The head of a request, from this moment on.
    Head(Instant),
    /// The next request, of which nothing came yet.
    Idle(Instant),
    /// Its own answer: that has its own time limit.
    Busy,
}

/// The state that a connection's stream, its service and its watcher share.
#[derive(Debug, Clone)]
pub(crate) struct Progress(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    phase: Phase,
    /// Since when the client takes nothing of what is written.
    stalled: Option<Instant>,
}

impl Progress {
    /// A connection that says nothing at all is given as long as one that is slow to say it.
    pub fn new(since: Instant) -> Progress {
        let phase = Phase::Head(since);
        Progress(Arc::new(Mutex::new(State {
            phase,
            stalled: None,
        })))
    }

    fn update(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// A request's head is complete.
    pub fn request_begins(&self) {
        self.update(|state| state.phase = Phase::Busy);
    }

    /// Its answer is handed over in full.
    pub fn answer_ends(&self) {
        self.update(|state| state.phase = Phase::Idle(Instant::now()));
    }

    fn bytes_came(&self) {
        self.update(|state| {
            if let Phase::Idle(_) = state.phase {
                state.phase = Phase::Head(Instant::now());
            }
        });
    }

    fn write_stalls(&self, stalls: bool) {
        self.update(|state| match stalls {
            true => state.stalled = state.stalled.or_else(|| Some(Instant::now())),
            false => state.stalled = None,
        });
    }

    /// When to look again, or why to close now (`None`: it only rested too long).
    pub fn check(&self, now: Instant, settings: &Settings) -> Result<Instant, Option<Refusal>> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let stalled = state
            .stalled
            .map(|since| (since + settings.write_time, Some(Refusal::SlowReader)));
        let phase = match state.phase {
            Phase::Head(since) => Some((since + settings.head_time, Some(Refusal::HeadTime))),
            // While the answer stalls on its way the client is not idle.
            Phase::Idle(since) if stalled.is_none() => Some((since + settings.idle_time, None)),
            Phase::Idle(_) | Phase::Busy => None,
        };
        // Whatever begins later ends no earlier than the shortest limit from now.
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

/// A stream that reports to a [`Progress`].
#[derive(Debug)]
pub(crate) struct Watched<S> {
    stream: S,
    progress: Progress,
}

impl<S> Watched<S> {
    pub fn new(stream: S, progress: Progress) -> Watched<S> {
        Watched { stream, progress }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.progress.bytes_came();
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.progress.write_stalls(polled.is_pending());
        polled
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, buffers);
        self.progress.write_stalls(polled.is_pending());
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
        let settings = Settings::default();
        let progress = Progress::new(Instant::now());
        let at = |seconds: u64| Instant::now() + Duration::from_secs(seconds);
        assert!(progress.check(at(4), &settings).is_ok());
        assert_eq!(
            progress.check(at(6), &settings),
            Err(Some(Refusal::HeadTime))
        );
        progress.request_begins();
        assert!(progress.check(at(1000), &settings).is_ok());
        progress.write_stalls(true);
        assert_eq!(
            progress.check(at(31), &settings),
            Err(Some(Refusal::SlowReader))
        );
        progress.write_stalls(false);
        progress.answer_ends();
        assert!(progress.check(at(59), &settings).is_ok());
        assert_eq!(progress.check(at(61), &settings), Err(None));
        progress.bytes_came();
        assert_eq!(
            progress.check(at(6), &settings),
            Err(Some(Refusal::HeadTime))
        );
    }

    #[test]
    fn the_next_look_is_never_late() {
        let settings = Settings::default();
        let progress = Progress::new(Instant::now());
        progress.request_begins();
        let now = Instant::now();
        assert_eq!(progress.check(now, &settings), Ok(now + settings.head_time));
    }
}
