//! Delays the notification of a parent about its child's exit until the child's summary is
//! complete.
//!
//! The kernel reports the exit of a traced process to the tracer first, and to the parent only
//! after the tracer has waited for it. The process is traced for this reason alone: it stops only
//! for signals, which are passed on at once. A dedicated thread does this, because ptrace requests
//! must come from the thread that traces.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::thread::JoinHandleExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use libc::pid_t;

use super::trace_events::{self, TraceEvent};
use super::tracer::ProcessEnd;
use super::{ptrace_requests, tracer};
use crate::capabilities;
use crate::resource_usage::{self, ExitUsage};

/// The thread's stack, several times what it uses.
const STACK_BYTES: usize = 64 << 10;
/// The maximum delay of the notification.
const RELEASE_TIME: Duration = Duration::from_secs(2);

/// Holds back the exit of a process. Dropping it releases the process.
#[derive(Debug)]
pub(crate) struct ExitHold {
    /// Readable when the process has exited or is lost.
    wake_socket: UnixStream,
    end_receiver: mpsc::Receiver<Option<(ProcessEnd, ExitUsage)>>,
    release: mpsc::Sender<()>,
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

/// The state of a held process.
#[derive(Debug, Clone, Copy)]
pub(crate) enum HeldState {
    Running,
    /// It exited, and its parent has not been notified.
    Ended(ProcessEnd, ExitUsage),
    /// It can no longer be held: another of its threads called exec.
    Lost,
}

impl ExitHold {
    /// Seizes a running process.
    pub(crate) fn new(process: pid_t) -> io::Result<ExitHold> {
        // Otherwise a set-user-ID program that it executes later would not get its privileges.
        if !capabilities::has_capability(capabilities::SYS_PTRACE) {
            return Err(io::Error::from_raw_os_error(libc::EPERM));
        }
        let (wake_socket, wake_sender) = UnixStream::pair()?;
        wake_socket.set_nonblocking(true)?;
        let (end_sender, end_receiver) = mpsc::channel();
        let (release, released) = mpsc::channel();
        let (seized_sender, seized_receiver) = mpsc::channel();
        let is_over = Arc::new(AtomicBool::new(false));
        let is_dropped = is_over.clone();
        install_wake_handler();
        let thread = Builder::new()
            .name("hold".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                let seized = ptrace_requests::seize(process, libc::PTRACE_O_TRACEEXIT);
                let is_taken = seized.is_ok();
                if seized_sender.send(seized).is_err() || !is_taken {
                    return;
                }
                let ended = wait_for_end(process, &is_dropped);
                // Errors are ignored: the holder may have been dropped.
                let _ = end_sender.send(ended);
                let _ = (&wake_sender).write_all(&[0]);
                if ended.is_some() {
                    let _ = released.recv_timeout(RELEASE_TIME);
                    let _ = trace_events::wait_for(process);
                }
                // A running process goes on: the kernel detaches it when this thread exits.
            })?;
        let panicked = |_| io::Error::other("the thread that holds the process panicked");
        seized_receiver.recv().map_err(panicked)??;
        Ok(ExitHold {
            wake_socket,
            end_receiver,
            release,
            is_over,
            thread,
        })
    }

    /// Returns the state without waiting.
    pub(crate) fn poll_state(&mut self) -> HeldState {
        // Drain the wake byte, so that the socket does not stay readable.
        let _ = self.wake_socket.read(&mut [0]);
        match self.end_receiver.try_recv() {
            Ok(Some((ending, usage))) => HeldState::Ended(ending, usage),
            Err(mpsc::TryRecvError::Empty) => HeldState::Running,
            Ok(None) | Err(mpsc::TryRecvError::Disconnected) => HeldState::Lost,
        }
    }

    /// Lets the parent be notified, or lets a running process go on untraced.
    pub(crate) fn release(self) {
        drop(self);
    }
}

impl Drop for ExitHold {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = self.release.send(());
        let deadline = Instant::now() + RELEASE_TIME;
        // Repeat: the signal may arrive just before the thread begins to wait.
        while !self.thread.is_finished() && Instant::now() < deadline {
            // The standard library has a number, and musl a pointer.
            #[allow(clippy::unnecessary_cast)]
            let thread = self.thread.as_pthread_t() as libc::pthread_t;
            // SAFETY: the thread is not joined before `self.thread` is dropped, and the signal has
            // a handler.
            unsafe { libc::pthread_kill(thread, wake_signal()) };
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

impl AsFd for ExitHold {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake_socket.as_fd()
    }
}

/// The signal that interrupts the thread's wait and has no other effect.
fn wake_signal() -> libc::c_int {
    libc::SIGRTMIN() + 7
}

fn install_wake_handler() {
    extern "C" fn wake(_: libc::c_int) {}
    // SAFETY: the handler does nothing; without SA_RESTART blocked calls are interrupted.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = wake as *const () as usize;
        libc::sigaction(wake_signal(), &action, std::ptr::null_mut());
    }
}

/// Resumes the process after each stop, until it exits. None if it is lost, or if the holder was
/// dropped.
fn wait_for_end(process: pid_t, is_over: &AtomicBool) -> Option<(ProcessEnd, ExitUsage)> {
    let mut peak = None;
    while !is_over.load(Ordering::Relaxed) {
        match trace_events::peek_own() {
            Ok(Some(ended)) => {
                let usage = ended.usage.with_peak_memory(peak);
                return Some((tracer::process_end(ended.event), usage));
            }
            Ok(None) => resume_stopped(process, &mut peak),
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
            Err(_) => return None,
        }
    }
    None
}

/// Resumes the process. `peak` receives its peak memory when it is about to exit.
fn resume_stopped(process: pid_t, peak: &mut Option<u64>) {
    let Ok((_, report)) = trace_events::wait_for(process) else {
        return;
    };
    // An error means that the process was killed meanwhile.
    let _ = match report {
        TraceEvent::Signal(signal) => ptrace_requests::resume(process, signal),
        TraceEvent::GroupStop(_) => ptrace_requests::listen(process),
        TraceEvent::Exiting => {
            *peak = resource_usage::peak_memory_of(process);
            ptrace_requests::resume(process, 0)
        }
        _ => ptrace_requests::resume(process, 0),
    };
}
