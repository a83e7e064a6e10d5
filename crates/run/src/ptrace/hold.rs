//! Keeps the end of a process from its parent until everything about it is said.
//!
//! A process that is traced is first seen dead by whoever traces it, and by its parent only when that one has taken note. So
//! it is traced for this alone: it stops for signals, which are passed on, and for nothing else.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

use libc::pid_t;

use super::tracer::Ending;
use super::wait::{self, Report};
use super::{call, tracer};

#[derive(Debug)]
pub(crate) struct Hold {
    process: pid_t,
    /// Readable when the process may have something to report.
    news: OwnedFd,
}

/// What became of a process that is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Held {
    Running,
    /// It ended, and its parent does not know yet.
    Ended(Ending),
    /// It cannot be held any more: another thread took its place by exec.
    Lost,
}

impl Hold {
    /// Takes a process that runs. In the helper, which has no other children.
    pub(crate) fn new(process: pid_t) -> io::Result<Hold> {
        // Otherwise a set-uid program that it executes later would not get its rights.
        if !can_trace_all() {
            return Err(io::Error::from_raw_os_error(libc::EPERM));
        }
        let news = child_signals()?;
        call::seize(process, 0)?;
        Ok(Hold { process, news })
    }

    /// Answers all that the process has to report.
    pub(crate) fn look(&mut self) -> Held {
        let mut signals = [MaybeUninit::<u8>::uninit(); 512];
        // Only to be woken again by the next one.
        let _ = rustix::io::read(&self.news, &mut signals[..]);
        loop {
            match wait::peek_at(self.process) {
                Ok(None) => return Held::Running,
                Ok(Some(Some(ended))) => return Held::Ended(tracer::ended_by(ended)),
                Ok(Some(None)) => self.answer(),
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                Err(_) => return Held::Lost,
            }
        }
    }

    fn answer(&self) {
        let Ok((_, report)) = wait::wait_for(self.process) else {
            return;
        };
        // An error means that it was killed meanwhile.
        let _ = match report {
            Report::Signal(signal) => call::go_on(self.process, signal),
            Report::GroupStop(_) => call::listen(self.process),
            _ => call::go_on(self.process, 0),
        };
    }

    /// Its parent may know now.
    pub(crate) fn release(self) {
        let _ = wait::wait_for(self.process);
    }
}

impl AsFd for Hold {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.news.as_fd()
    }
}

/// Whether this process has CAP_SYS_PTRACE.
fn can_trace_all() -> bool {
    const BIT: u64 = 1 << 19;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut lines = status.lines();
    let rights = lines.find_map(|line| line.strip_prefix("CapEff:"));
    rights
        .and_then(|rights| u64::from_str_radix(rights.trim(), 16).ok())
        .is_some_and(|rights| rights & BIT != 0)
}

/// A descriptor that is readable after each SIGCHLD, which is blocked for that.
fn child_signals() -> io::Result<OwnedFd> {
    // SAFETY: the set is ours and filled before it is used; the descriptor is new.
    unsafe {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGCHLD);
        libc::sigprocmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
        let descriptor = libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        match descriptor {
            -1 => Err(io::Error::last_os_error()),
            descriptor => Ok(OwnedFd::from_raw_fd(descriptor)),
        }
    }
}
