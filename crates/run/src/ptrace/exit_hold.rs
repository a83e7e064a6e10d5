//! Keeps the end of a process from its parent until everything about it is said.
//!
//! A process that is traced is first seen dead by whoever traces it, and by its parent only when that one has taken note. So
//! it is traced for this alone: it stops for signals, which are passed on at once, and for nothing else. A thread does so,
//! since only the thread that traces may answer.

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

/// What the thread needs of a stack, with much to spare.
const STACK_BYTES: usize = 64 << 10;
/// How long an end is kept back for whoever wants to say something about it: a parent waits.
const RELEASE_TIME: Duration = Duration::from_secs(2);

/// Dropped, it lets the process go as if nobody had held it.
#[derive(Debug)]
pub(crate) struct ExitHold {
    /// Readable when the process has ended or is lost.
    wake_socket: UnixStream,
    end_receiver: mpsc::Receiver<Option<ProcessEnd>>,
    release: mpsc::Sender<()>,
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

/// What became of a process that is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeldState {
    Running,
    /// It ended, and its parent does not know yet.
    Ended(ProcessEnd),
    /// It cannot be held any more: another thread took its place by exec.
    Lost,
}

impl ExitHold {
    /// Takes a process that runs.
    pub(crate) fn new(process: pid_t) -> io::Result<ExitHold> {
        // Otherwise a set-uid program that it executes later would not get its rights.
        if !capabilities::has_capability(capabilities::SYS_PTRACE) {
            return Err(io::Error::from_raw_os_error(libc::EPERM));
        }
        let (news, bell) = UnixStream::pair()?;
        news.set_nonblocking(true)?;
        let (tell, outcome) = mpsc::channel();
        let (release, released) = mpsc::channel();
        let (tell_taken, taken) = mpsc::channel();
        let is_over = Arc::new(AtomicBool::new(false));
        let is_dropped = is_over.clone();
        install_wake_handler();
        let thread = Builder::new()
            .name("hold".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                let seized = ptrace_requests::seize(process, 0);
                let is_taken = seized.is_ok();
                if tell_taken.send(seized).is_err() || !is_taken {
                    return;
                }
                let ended = wait_for_end(process, &is_dropped);
                // Nobody listens any more where the one who asked is gone.
                let _ = tell.send(ended);
                let _ = (&bell).write_all(&[0]);
                if ended.is_some() {
                    let _ = released.recv_timeout(RELEASE_TIME);
                    let _ = trace_events::wait_for(process);
                }
                // A process that runs goes on: nobody traces for a thread that ended.
            })?;
        let gone = |_| io::Error::other("a thread panicked");
        taken.recv().map_err(gone)??;
        Ok(ExitHold {
            wake_socket: news,
            end_receiver: outcome,
            release,
            is_over,
            thread,
        })
    }

    /// What there is to know, without waiting.
    pub(crate) fn poll_state(&mut self) -> HeldState {
        // The bell rings once, and is not left ringing.
        let _ = self.wake_socket.read(&mut [0]);
        match self.end_receiver.try_recv() {
            Ok(Some(ending)) => HeldState::Ended(ending),
            Err(mpsc::TryRecvError::Empty) => HeldState::Running,
            Ok(None) | Err(mpsc::TryRecvError::Disconnected) => HeldState::Lost,
        }
    }

    /// Its parent may know now, or it goes on alone.
    pub(crate) fn release(self) {
        drop(self);
    }
}

impl Drop for ExitHold {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = self.release.send(());
        let deadline = Instant::now() + RELEASE_TIME;
        // Again and again: it may be just about to wait.
        while !self.thread.is_finished() && Instant::now() < deadline {
            // SAFETY: a thread that was not joined yet, and a signal that is caught.
            unsafe { libc::pthread_kill(self.thread.as_pthread_t(), wake_signal()) };
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

impl AsFd for ExitHold {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake_socket.as_fd()
    }
}

/// A signal that ends a wait and does nothing else.
fn wake_signal() -> libc::c_int {
    libc::SIGRTMIN() + 7
}

fn install_wake_handler() {
    extern "C" fn wake(_: libc::c_int) {}
    // SAFETY: a handler that does nothing; the structure is zero but for it, so that calls are interrupted.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = wake as *const () as usize;
        libc::sigaction(wake_signal(), &action, std::ptr::null_mut());
    }
}

/// Answers all that the process has to report, until its end. None when it is lost, or nobody wants to know any more.
fn wait_for_end(process: pid_t, is_over: &AtomicBool) -> Option<ProcessEnd> {
    while !is_over.load(Ordering::Relaxed) {
        match trace_events::peek_own() {
            Ok(Some(ended)) => return Some(tracer::process_end(ended)),
            Ok(None) => resume_stopped(process),
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
            Err(_) => return None,
        }
    }
    None
}

fn resume_stopped(process: pid_t) {
    let Ok((_, report)) = trace_events::wait_for(process) else {
        return;
    };
    // An error means that it was killed meanwhile.
    let _ = match report {
        TraceEvent::Signal(signal) => ptrace_requests::resume(process, signal),
        TraceEvent::GroupStop(_) => ptrace_requests::listen(process),
        _ => ptrace_requests::resume(process, 0),
    };
}
