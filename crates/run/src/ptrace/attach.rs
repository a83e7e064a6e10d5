//! Counts the calls of a running process by ptrace. The process is released unharmed on an
//! interrupt or an error.

use std::fs;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use libc::c_int;

use super::tracer::{ProcessEnd, TraceStep, Tracer};
use crate::process::{self, ProcessStatus};
use crate::reading_timer;
use crate::resource_usage::ExitUsage;
use crate::run_observer::RunObserver;
use crate::syscall_tally::SyscallTally;

/// The reason why a process cannot be watched. The process is not affected.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    #[error("no such process: {0}")]
    NoProcess(i32),
    #[error("process {pid} is already traced by process {by} ({name})")]
    Traced { pid: i32, by: i32, name: String },
    #[error("process {pid} belongs to user {uid}; only that user and root may watch it")]
    Foreign { pid: i32, uid: u32 },
    #[error(
        "the kernel does not permit tracing process {pid}{}",
        hint.map(|hint| format!(": {hint}")).unwrap_or_default()
    )]
    Forbidden {
        pid: i32,
        hint: Option<&'static str>,
    },
    #[error("process {0} is this command itself")]
    Itself(i32),
    #[error("cannot trace process {pid}")]
    Io {
        pid: i32,
        #[source]
        source: io::Error,
    },
}

/// How long to wait for threads to stop when they are released.
const RELEASE_TIME: Duration = Duration::from_secs(2);
/// The interval at which waits are interrupted while threads are released.
const STOP_INTERVAL: Duration = Duration::from_millis(20);

/// Counts until the process exits or this command is interrupted. `ready` is called when all
/// threads are seized.
pub(crate) fn attach(
    pid: i32,
    tally: &mut SyscallTally,
    observer: &mut Option<RunObserver>,
    ready: &dyn Fn(usize),
) -> Result<AttachedEnd, AttachError> {
    let mut tracer = Tracer::new(pid, tally);
    let count = match seize_threads(&mut tracer, pid) {
        Ok(count) => count,
        Err(error) => {
            tracer.release_all();
            detach_all(&mut tracer);
            return Err(error);
        }
    };
    tracer.observer = observer.take();
    reading_timer::set_interval(reading_timer::READING_INTERVAL);
    ready(count);
    let end = trace_until_end(&mut tracer);
    *observer = tracer.observer.take();
    Ok(AttachedEnd {
        end,
        processes: tracer.processes,
        usage: tracer.exit_usage,
    })
}

/// The end of an attached process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AttachedEnd {
    pub end: ProcessEnd,
    pub processes: u64,
    pub usage: Option<ExitUsage>,
}

fn trace_until_end(tracer: &mut Tracer<'_>) -> ProcessEnd {
    let mut ending = None;
    loop {
        tracer.take_reading();
        if STOP_REQUESTED.load(Ordering::Relaxed) {
            tracer.release_all();
            detach_all(tracer);
            return ending.unwrap_or(ProcessEnd::Released);
        }
        match tracer.step() {
            Ok(TraceStep::Running) => {}
            Ok(TraceStep::RootEnded(how)) => {
                ending = Some(how);
                if tracer.reap_root() {
                    return how;
                }
            }
            Ok(TraceStep::AllExited) => return ending.unwrap_or(ProcessEnd::Released),
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
            Err(_) => return ending.unwrap_or(ProcessEnd::Released),
        }
    }
}

/// Detaches each thread as it stops. The kernel detaches the remaining ones when this process
/// exits.
fn detach_all(tracer: &mut Tracer<'_>) {
    // The timer interrupts the wait for a thread that never stops.
    reading_timer::set_interval(STOP_INTERVAL);
    let deadline = Instant::now() + RELEASE_TIME;
    while Instant::now() < deadline {
        match tracer.step() {
            Ok(TraceStep::AllExited) => return,
            Ok(TraceStep::RootEnded(_)) if tracer.reap_root() => return,
            Err(error) if error.raw_os_error() != Some(libc::EINTR) => return,
            _ => {}
        }
    }
}

/// Checks that the process exists and is not this one.
pub(crate) fn check_process(pid: i32) -> Result<(), AttachError> {
    if !fs::exists(format!("/proc/{pid}")).unwrap_or(false) || pid <= 0 {
        return Err(AttachError::NoProcess(pid));
    }
    let own = std::process::id().cast_signed();
    if ProcessStatus::of(pid).process("Tgid") == Some(own) {
        return Err(AttachError::Itself(pid));
    }
    Ok(())
}

/// Checks that no other process traces it.
pub(crate) fn check_untraced(pid: i32) -> Result<(), AttachError> {
    let tracer = ProcessStatus::of(pid).process("TracerPid");
    match tracer.filter(|by| *by != 0) {
        Some(by) => {
            let name = fs::read_to_string(format!("/proc/{by}/comm")).unwrap_or_default();
            let name = name.trim_end().to_owned();
            Err(AttachError::Traced { pid, by, name })
        }
        None => Ok(()),
    }
}

/// Seizes all threads, including those created meanwhile.
fn seize_threads(tracer: &mut Tracer<'_>, pid: i32) -> Result<usize, AttachError> {
    let seized = process::add_threads(pid, |thread, count| {
        if tracer.is_tracing(thread) {
            return Ok(false);
        }
        match tracer.seize(thread) {
            Ok(()) => Ok(true),
            // It exited meanwhile, or the thread that created it was seized first and it is traced
            // already.
            Err(_) if count > 0 && thread != pid => Ok(false),
            Err(error) => Err(attach_error(pid, error)),
        }
    });
    match seized? {
        0 => Err(AttachError::NoProcess(pid)),
        count => Ok(count),
    }
}

fn attach_error(pid: i32, error: io::Error) -> AttachError {
    match error.raw_os_error() {
        Some(libc::ESRCH) => return AttachError::NoProcess(pid),
        Some(libc::EPERM) => {}
        _ => return AttachError::Io { pid, source: error },
    }
    if let Err(traced) = check_untraced(pid) {
        return traced;
    }
    let uid = ProcessStatus::of(pid)
        .numbers("Uid")
        .first()
        .copied()
        .unwrap_or(0);
    let own = rustix::process::geteuid().as_raw();
    if uid != own && own != 0 {
        return AttachError::Foreign { pid, uid };
    }
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    let hint = match scope.trim() {
        "1" => Some("kernel.yama.ptrace_scope is 1, only root may attach"),
        "2" => Some("kernel.yama.ptrace_scope is 2, only root may trace"),
        "3" => Some("kernel.yama.ptrace_scope is 3, tracing is disabled"),
        _ if uid == 0 || own == 0 => Some("it has privileges that this command lacks"),
        _ => None,
    };
    AttachError::Forbidden { pid, hint }
}

/// Set by the signal handler: this command is to release the process and exit.
pub(crate) static STOP_REQUESTED: AtomicBool = AtomicBool::new(false);

/// Installs the signal handlers. A signal sets [`STOP_REQUESTED`] and interrupts the wait; the
/// timer repeats the interrupt, in case the signal arrives just before the wait begins. Must be
/// called before any thread is seized: from then on every signal must release the threads in order.
pub(crate) fn catch_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
        on_signal(signal, on_stop_signal);
    }
    reading_timer::install();
}

fn on_signal(signal: c_int, handler: extern "C" fn(c_int)) {
    // SAFETY: the handlers are async-signal-safe: they only store to an atomic and call setitimer.
    // Without SA_RESTART blocked calls are interrupted.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as usize;
        libc::sigaction(signal, &action, std::ptr::null_mut());
    }
}

extern "C" fn on_stop_signal(_: c_int) {
    STOP_REQUESTED.store(true, Ordering::Relaxed);
    reading_timer::set_interval(STOP_INTERVAL);
}
