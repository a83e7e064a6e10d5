//! Socket errors: counted, shown in `/status`, and retried with backoff.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::stop_signal::StopSignal;

const FIRST_WAIT: Duration = Duration::from_millis(1);
const WAIT_MAX: Duration = Duration::from_secs(1);

/// The errors of all threads that read statsd sockets.
#[derive(Debug, Default)]
pub(crate) struct SocketErrors {
    count: AtomicU64,
    last: Mutex<Option<String>>,
}

impl SocketErrors {
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    pub(crate) fn last(&self) -> Option<String> {
        let last = self.last.lock();
        last.clone()
    }

    fn record(&self, what: &str, error: &io::Error) {
        self.count.fetch_add(1, Ordering::Relaxed);
        let text = format!("{what}: {error}");
        let mut last = self.last.lock();
        if last.as_ref() != Some(&text) {
            tracing::warn!(%error, "statsd: cannot {what}; retrying");
            *last = Some(text);
        }
    }
}

/// The pause after an error of one socket. It doubles while errors continue, so that a persistent
/// error costs little.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
}

impl Backoff {
    pub(super) fn new() -> Backoff {
        Backoff { next: FIRST_WAIT }
    }

    pub(super) fn succeeded(&mut self) {
        self.next = FIRST_WAIT;
    }

    /// Counts the error and returns the pause before the next attempt.
    pub(super) fn failed(
        &mut self,
        errors: &SocketErrors,
        what: &str,
        error: &io::Error,
    ) -> Duration {
        errors.record(what, error);
        let wait = self.next;
        self.next = (wait * 2).min(WAIT_MAX);
        wait
    }

    /// Counts the error and waits for the pause, or until `stop`.
    pub(super) fn wait(
        &mut self,
        errors: &SocketErrors,
        what: &str,
        error: &io::Error,
        stop: &StopSignal,
    ) {
        stop.wait(self.failed(errors, what, error));
    }
}

/// Returns whether the call can be retried at once: nothing is wrong with the socket.
pub(crate) fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock
            | io::ErrorKind::Interrupted
            // The client closed before accept().
            | io::ErrorKind::ConnectionAborted
    )
}
