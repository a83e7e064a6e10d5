//! A watched process: its slot in the kernel, and the hold that delays the notification of its
//! exit.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::programs::TaskState;
use super::task;
use super::watch_protocol::CountsReading;
use super::watch_slot::WatchSlot;
use crate::ptrace::{ExitHold, HeldState, ProcessEnd};
use crate::resource_usage::ExitUsage;

/// A watched process. The order of the fields matters for drop: the process is released before the
/// kernel's tables are removed, which takes milliseconds.
#[derive(Debug)]
pub(super) struct WatchedProcess {
    /// None if the kernel does not permit holding the process; its parent is then notified at the
    /// same time as we are.
    exit_hold: Option<ExitHold>,
    pub slot: WatchSlot,
    process: OwnedFd,
    end: Option<ProcessEnd>,
    /// Known with the end if the process was held.
    pub exit_usage: Option<ExitUsage>,
}

impl WatchedProcess {
    /// Watches a process from its exec on. An error if it is watched already.
    pub(super) fn from_exec(
        mut slot: WatchSlot,
        pid: i32,
        process: OwnedFd,
    ) -> io::Result<WatchedProcess> {
        if !slot.add_task(process.as_fd(), TaskState::AwaitsExec)? {
            return Err(io::Error::from_raw_os_error(libc::EEXIST));
        }
        Ok(WatchedProcess {
            slot,
            process,
            exit_hold: ExitHold::new(pid).ok(),
            end: None,
            exit_usage: None,
        })
    }

    /// Watches all threads of a process from now on, and returns their number.
    pub(super) fn from_now(
        mut slot: WatchSlot,
        pid: i32,
        process: OwnedFd,
    ) -> io::Result<(WatchedProcess, usize)> {
        let threads = task::add_all_threads(&mut slot, pid)?;
        let watched = WatchedProcess {
            slot,
            process,
            exit_hold: None,
            end: None,
            exit_usage: None,
        };
        Ok((watched, threads))
    }

    /// Returns whether the process has exited and its parent may be notified.
    pub(super) fn has_exited(&self) -> bool {
        has_ended(&self.process)
    }

    /// Returns a descriptor that is readable when the process may have exited.
    pub(super) fn exit_fd(&self) -> BorrowedFd<'_> {
        match &self.exit_hold {
            Some(hold) => hold.as_fd(),
            None => self.process.as_fd(),
        }
    }

    pub(super) fn read(&mut self) -> CountsReading {
        // Poll the end first: counts read after the exit are complete.
        self.poll_end();
        CountsReading {
            progress: self.slot.progress(),
            end: self.end,
            rows: self.slot.read(),
        }
    }

    /// Updates `end`. The exit status is known only if the process is held.
    fn poll_end(&mut self) {
        if self.end.is_some() {
            return;
        }
        match self.exit_hold.as_mut().map(ExitHold::poll_state) {
            Some(HeldState::Running) => {}
            Some(HeldState::Ended(ending, usage)) => {
                (self.end, self.exit_usage) = (Some(ending), Some(usage));
            }
            Some(HeldState::Lost) => self.exit_hold = None,
            None => self.end = has_ended(&self.process).then_some(ProcessEnd::Released),
        }
    }

    /// Lets the parent be notified of the exit.
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
