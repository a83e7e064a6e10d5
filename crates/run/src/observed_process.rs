//! Follows a process whose system calls are not counted to its end.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::ptrace::{ExitHold, HeldState, ProcessEnd};
use crate::resource_usage::ExitUsage;
use crate::run_observer::RunObserver;

/// A process of which only the end is of interest. Dropping it lets its parent be notified.
#[derive(Debug)]
pub(crate) struct ObservedProcess {
    process: OwnedFd,
    /// None if holding is not permitted: the parent is then notified at the same time.
    exit_hold: Option<ExitHold>,
}

impl ObservedProcess {
    pub(crate) fn new(pid: i32) -> io::Result<ObservedProcess> {
        let number = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(ObservedProcess {
            process: pidfd_open(number, PidfdFlags::empty())?,
            exit_hold: ExitHold::new(pid).ok(),
        })
    }

    /// Waits until the process has exited. Its status and usage are known only if it is held.
    pub(crate) fn wait(&mut self, observer: &mut RunObserver) -> (ProcessEnd, Option<ExitUsage>) {
        loop {
            let is_ready = self.wait_once(observer);
            observer.tick();
            match self.exit_hold.as_mut().map(ExitHold::poll_state) {
                Some(HeldState::Running) => {}
                Some(HeldState::Ended(end, usage)) => return (end, Some(usage)),
                Some(HeldState::Lost) => self.exit_hold = None,
                None if is_ready => return (ProcessEnd::Released, None),
                None => {}
            }
        }
    }

    /// Waits until the next sample is due. Returns whether the process may have exited.
    fn wait_once(&self, observer: &RunObserver) -> bool {
        let exit_fd = match &self.exit_hold {
            Some(hold) => hold.as_fd(),
            None => self.process.as_fd(),
        };
        let mut descriptors = vec![PollFd::from_borrowed_fd(exit_fd, PollFlags::IN)];
        let changes = observer.changes();
        descriptors.extend(changes.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let timeout = Timespec::try_from(observer.wait_time()).ok();
        // EINTR is treated as a timeout.
        let _ = poll(&mut descriptors, timeout.as_ref());
        !descriptors[0].revents().is_empty()
    }
}
