//! Events of traced threads, from wait4(2) and waitid(2).

use std::io;
use std::mem::MaybeUninit;

use libc::{c_int, pid_t};

use crate::resource_usage::ExitUsage;

/// The event of a traced thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TraceEvent {
    Exited(c_int),
    Killed(c_int),
    /// At the start or the end of a system call.
    Syscall,
    /// A signal is about to be delivered.
    Signal(c_int),
    /// The whole process is stopped by this signal.
    GroupStop(c_int),
    /// Stopped by tracing: new, interrupted or continued.
    Stopped,
    Exec,
    /// Stopped by a seccomp filter: ours or one of the program.
    Seccomp,
    /// About to exit.
    Exiting,
    /// Created a process.
    NewProcess,
    /// Created a thread.
    NewThread,
}

impl TraceEvent {
    fn from_status(status: c_int) -> TraceEvent {
        if libc::WIFEXITED(status) {
            return TraceEvent::Exited(libc::WEXITSTATUS(status));
        }
        if libc::WIFSIGNALED(status) {
            return TraceEvent::Killed(libc::WTERMSIG(status));
        }
        let signal = libc::WSTOPSIG(status);
        match status >> 16 {
            0 if signal == libc::SIGTRAP | 0x80 => TraceEvent::Syscall,
            0 => TraceEvent::Signal(signal),
            libc::PTRACE_EVENT_STOP => match signal {
                libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU => {
                    TraceEvent::GroupStop(signal)
                }
                _ => TraceEvent::Stopped,
            },
            libc::PTRACE_EVENT_EXEC => TraceEvent::Exec,
            libc::PTRACE_EVENT_EXIT => TraceEvent::Exiting,
            libc::PTRACE_EVENT_SECCOMP => TraceEvent::Seccomp,
            libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK => TraceEvent::NewProcess,
            _ => TraceEvent::NewThread,
        }
    }
}

/// Waits for the next event of any thread. An error if no thread is left, or on a signal.
pub(super) fn wait_any() -> io::Result<(pid_t, TraceEvent)> {
    wait_for(-1)
}

/// Waits for the next event of one thread.
pub(super) fn wait_for(thread: pid_t) -> io::Result<(pid_t, TraceEvent)> {
    let mut status = 0;
    // SAFETY: `status` is local; a null usage pointer is permitted.
    let found = unsafe { libc::wait4(thread, &mut status, libc::__WALL, std::ptr::null_mut()) };
    match found {
        -1 => Err(io::Error::last_os_error()),
        found => Ok((found, TraceEvent::from_status(status))),
    }
}

/// The end of a thread, and the usage of its process and the children that it waited for.
#[derive(Debug, Clone, Copy)]
pub(super) struct ThreadEnd {
    pub event: TraceEvent,
    pub usage: ExitUsage,
}

/// Waits for the next event without consuming it. Returns the thread, and how it ended if it did.
pub(super) fn peek() -> io::Result<(pid_t, Option<ThreadEnd>)> {
    peek_with(0)
}

/// Like [`peek`], for the only process that this thread traces. Waits for any process rather than
/// by ID: when another of its threads calls exec, the kernel wakes only waits for any.
pub(super) fn peek_own() -> io::Result<Option<ThreadEnd>> {
    let (_, ended) = peek_with(libc::__WNOTHREAD)?;
    Ok(ended)
}

fn peek_with(more: c_int) -> io::Result<(pid_t, Option<ThreadEnd>)> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    let options = libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT | libc::__WALL | more;
    // The C library's function lacks the last argument, the usage.
    // SAFETY: `info` and `usage` are local and zeroed; zero is valid for the fields that the kernel
    // does not write.
    let (result, info, usage) = unsafe {
        let result = libc::syscall(
            libc::SYS_waitid,
            libc::P_ALL,
            0,
            info.as_mut_ptr(),
            options,
            usage.as_mut_ptr(),
        );
        (result, info.assume_init(), usage.assume_init())
    };
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: waitid has set these fields, or they are zero.
    let (thread, status) = unsafe { (info.si_pid(), info.si_status()) };
    let event = match info.si_code {
        libc::CLD_EXITED => Some(TraceEvent::Exited(status)),
        libc::CLD_KILLED | libc::CLD_DUMPED => Some(TraceEvent::Killed(status)),
        _ => None,
    };
    let usage = ExitUsage::from(&usage);
    Ok((thread, event.map(|event| ThreadEnd { event, usage })))
}
