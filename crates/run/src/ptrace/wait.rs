//! What traced threads report.

use std::io;
use std::mem::MaybeUninit;

use libc::{c_int, pid_t};

/// Why a thread reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Report {
    Exited(c_int),
    Killed(c_int),
    /// At the start or the end of a system call.
    Syscall,
    /// A signal is about to be delivered.
    Signal(c_int),
    /// The whole process was stopped by this signal.
    GroupStop(c_int),
    /// Stopped for no reason of the program's: new, interrupted, or continued.
    Pause,
    Exec,
    /// A filter of the program, or ours, asks about a call.
    Seccomp,
    /// About to end.
    Ending,
    /// It made a process.
    Process,
    /// It made a thread.
    Thread,
}

impl Report {
    fn of(status: c_int) -> Report {
        if libc::WIFEXITED(status) {
            return Report::Exited(libc::WEXITSTATUS(status));
        }
        if libc::WIFSIGNALED(status) {
            return Report::Killed(libc::WTERMSIG(status));
        }
        let signal = libc::WSTOPSIG(status);
        match status >> 16 {
            0 if signal == libc::SIGTRAP | 0x80 => Report::Syscall,
            0 => Report::Signal(signal),
            libc::PTRACE_EVENT_STOP => match signal {
                libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU => {
                    Report::GroupStop(signal)
                }
                _ => Report::Pause,
            },
            libc::PTRACE_EVENT_EXEC => Report::Exec,
            libc::PTRACE_EVENT_EXIT => Report::Ending,
            libc::PTRACE_EVENT_SECCOMP => Report::Seccomp,
            libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK => Report::Process,
            _ => Report::Thread,
        }
    }
}

/// The next report of any thread. An error when there is no thread left, or when a signal came.
pub(super) fn next() -> io::Result<(pid_t, Report)> {
    wait_for(-1)
}

/// The next report of one thread.
pub(super) fn wait_for(thread: pid_t) -> io::Result<(pid_t, Report)> {
    let mut status = 0;
    // SAFETY: the status is ours.
    let found = unsafe { libc::wait4(thread, &mut status, libc::__WALL, std::ptr::null_mut()) };
    match found {
        -1 => Err(io::Error::last_os_error()),
        found => Ok((found, Report::of(status))),
    }
}

/// Which thread reports next, without taking its report: whether it ended, and how.
pub(super) fn peek() -> io::Result<(pid_t, Option<Report>)> {
    peek_with(0)
}

/// The same for the only process that this thread traces. Not by its number: when another of its threads takes its place
/// by exec, the kernel wakes only those who wait for any.
pub(super) fn peek_at_own() -> io::Result<Option<Report>> {
    let (_, ended) = peek_with(libc::__WNOTHREAD)?;
    Ok(ended)
}

fn peek_with(more: c_int) -> io::Result<(pid_t, Option<Report>)> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let options = libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT | libc::__WALL | more;
    // SAFETY: the kernel fills what is ours; zeros are valid for the rest.
    let (result, info) = unsafe {
        let result = libc::waitid(libc::P_ALL, 0, info.as_mut_ptr(), options);
        (result, info.assume_init())
    };
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: waitid fills these fields, or leaves them zero.
    let (thread, status) = unsafe { (info.si_pid(), info.si_status()) };
    let ended = match info.si_code {
        libc::CLD_EXITED => Some(Report::Exited(status)),
        libc::CLD_KILLED | libc::CLD_DUMPED => Some(Report::Killed(status)),
        _ => None,
    };
    Ok((thread, ended))
}
