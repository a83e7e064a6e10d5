//! A stop signal for threads that wait in `poll`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

/// Wakes threads that wait in `poll`, so that they end.
#[derive(Debug)]
pub(crate) struct StopSignal {
    event: OwnedFd,
    is_triggered: AtomicBool,
}

impl StopSignal {
    pub(crate) fn new() -> io::Result<StopSignal> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(StopSignal {
            event,
            is_triggered: AtomicBool::new(false),
        })
    }

    /// Makes the descriptor readable, permanently.
    pub(crate) fn trigger(&self) {
        self.is_triggered.store(true, Ordering::SeqCst);
        // Fails only after 2^64 writes.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }
}

impl StopSignal {
    /// Waits for this time, or until the stop.
    pub(crate) fn wait(&self, time: Duration) {
        let timeout = Timespec {
            tv_sec: time.as_secs() as i64,
            tv_nsec: time.subsec_nanos().into(),
        };
        // EINTR only ends the wait early.
        let _ = poll(&mut [PollFd::new(self, PollFlags::IN)], Some(&timeout));
    }

    pub(crate) fn is_triggered(&self) -> bool {
        self.is_triggered.load(Ordering::SeqCst)
    }
}

impl AsFd for StopSignal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
