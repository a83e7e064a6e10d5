//! A process that is counted: its place in the kernel, and the hold on it that keeps its end back.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::programs::TaskState;
use super::task;
use super::watch_protocol::CountsReading;
use super::watch_slot::WatchSlot;
use crate::ptrace::{ExitHold, HeldState, ProcessEnd};

/// Fields are dropped in this order: the process is let go before the kernel's tables are removed, which takes milliseconds.
#[derive(Debug)]
pub(super) struct WatchedProcess {
    /// None where the kernel does not allow to hold the process: then its parent learns of its end when we do.
    exit_hold: Option<ExitHold>,
    pub slot: WatchSlot,
    process: OwnedFd,
    end: Option<ProcessEnd>,
}

impl WatchedProcess {
    /// From its exec on. An error if somebody counts it already.
    pub(super) fn from_exec(
        mut place: WatchSlot,
        pid: i32,
        process: OwnedFd,
    ) -> io::Result<WatchedProcess> {
        if !place.add_task(process.as_fd(), TaskState::AwaitsExec)? {
            return Err(io::Error::from_raw_os_error(libc::EEXIST));
        }
        Ok(WatchedProcess {
            slot: place,
            process,
            exit_hold: ExitHold::new(pid).ok(),
            end: None,
        })
    }

    /// All threads of a process, from now on. Says how many there are.
    pub(super) fn from_now(
        mut place: WatchSlot,
        pid: i32,
        process: OwnedFd,
    ) -> io::Result<(WatchedProcess, usize)> {
        let threads = task::add_all_threads(&mut place, pid)?;
        let watched = WatchedProcess {
            slot: place,
            process,
            exit_hold: None,
            end: None,
        };
        Ok((watched, threads))
    }

    /// Whether it has ended, known to all.
    pub(super) fn has_exited(&self) -> bool {
        has_ended(&self.process)
    }

    /// Readable when the process may have ended.
    pub(super) fn exit_fd(&self) -> BorrowedFd<'_> {
        match &self.exit_hold {
            Some(hold) => hold.as_fd(),
            None => self.process.as_fd(),
        }
    }

    pub(super) fn read(&mut self) -> CountsReading {
        // First: what it counted is complete when it has ended.
        self.poll_end();
        CountsReading {
            progress: self.slot.progress(),
            end: self.end,
            rows: self.slot.read(),
        }
    }

    /// Whether it has ended. How, is known to the one who holds it, or to its parent.
    fn poll_end(&mut self) {
        if self.end.is_some() {
            return;
        }
        match self.exit_hold.as_mut().map(ExitHold::poll_state) {
            Some(HeldState::Running) => {}
            Some(HeldState::Ended(ending)) => self.end = Some(ending),
            Some(HeldState::Lost) => self.exit_hold = None,
            None => self.end = has_ended(&self.process).then_some(ProcessEnd::Released),
        }
    }

    /// Its end may be known now.
    pub(super) fn release(&mut self) {
        if self.end.is_some()
            && let Some(hold) = self.exit_hold.take()
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
