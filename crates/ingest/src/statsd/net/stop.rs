use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

/// Tells threads that wait in `poll` to end.
#[derive(Debug)]
pub(crate) struct Stop {
    event: OwnedFd,
}

impl Stop {
    pub fn new() -> io::Result<Stop> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Stop { event })
    }

    /// From now on the descriptor is readable.
    pub fn now(&self) {
        // It fails only when it was written 2^64 times.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }
}

impl AsFd for Stop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
