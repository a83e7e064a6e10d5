//! A process that is counted: its place in the kernel, and the hold on it that keeps its end back.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::place::Place;
use super::programs::State;
use super::reading::Reading;
use super::task;
use crate::ptrace::{Ending, Held, Hold};

/// Fields are dropped in this order: the process is let go before the kernel's tables are removed, which takes milliseconds.
#[derive(Debug)]
pub(super) struct Watched {
    /// None where the kernel does not allow to hold the process: then its parent learns of its end when we do.
    hold: Option<Hold>,
    pub place: Place,
    process: OwnedFd,
    ending: Option<Ending>,
}

impl Watched {
    /// From its exec on. An error if somebody counts it already.
    pub(super) fn from_exec(mut place: Place, pid: i32, process: OwnedFd) -> io::Result<Watched> {
        if !place.put(process.as_fd(), State::Waits)? {
            return Err(io::Error::from_raw_os_error(libc::EEXIST));
        }
        Ok(Watched {
            place,
            process,
            hold: Hold::new(pid).ok(),
            ending: None,
        })
    }

    /// All threads of a process, from now on. Says how many there are.
    pub(super) fn from_now(
        mut place: Place,
        pid: i32,
        process: OwnedFd,
    ) -> io::Result<(Watched, usize)> {
        let threads = task::put_all(&mut place, pid)?;
        let watched = Watched {
            place,
            process,
            hold: None,
            ending: None,
        };
        Ok((watched, threads))
    }

    /// Whether it has ended, known to all.
    pub(super) fn is_gone(&self) -> bool {
        has_ended(&self.process)
    }

    /// Readable when the process may have ended.
    pub(super) fn news(&self) -> BorrowedFd<'_> {
        match &self.hold {
            Some(hold) => hold.as_fd(),
            None => self.process.as_fd(),
        }
    }

    pub(super) fn read(&mut self) -> Reading {
        // First: what it counted is complete when it has ended.
        self.look();
        Reading {
            progress: self.place.progress(),
            ending: self.ending,
            rows: self.place.read(),
        }
    }

    /// Whether it has ended. How, is known to the one who holds it, or to its parent.
    fn look(&mut self) {
        if self.ending.is_some() {
            return;
        }
        match self.hold.as_mut().map(Hold::look) {
            Some(Held::Running) => {}
            Some(Held::Ended(ending)) => self.ending = Some(ending),
            Some(Held::Lost) => self.hold = None,
            None => self.ending = has_ended(&self.process).then_some(Ending::Released),
        }
    }

    /// Its end may be known now.
    pub(super) fn release(&mut self) {
        if self.ending.is_some()
            && let Some(hold) = self.hold.take()
        {
            hold.release();
        }
    }
}

pub(super) fn has_ended(process: &OwnedFd) -> bool {
    let mut descriptors = [PollFd::new(process, PollFlags::IN)];
    let at_once = Timespec::default();
    poll(&mut descriptors, Some(&at_once)).is_ok_and(|ready| ready > 0)
}
