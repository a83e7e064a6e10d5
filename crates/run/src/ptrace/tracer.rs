//! Follows threads from system call to system call and counts the calls.
//!
//! Threads are seized (PTRACE_SEIZE), not attached: they receive no signal, group stops keep their
//! meaning, and they go on if this process dies. Tracing must stay invisible to the program:
//! signals are delivered as they arrive, and a stopped process stays stopped until SIGCONT.

use std::collections::HashMap;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use libc::{c_int, pid_t};

use super::ptrace_requests::{self, SyscallStop};
use super::trace_events::{self, TraceEvent};
use crate::path_resolver::PathResolver;
use crate::reading_timer;
use crate::resource_usage::ExitUsage;
use crate::run_observer::RunObserver;
use crate::syscall_names::{self, SpecialCall};
use crate::syscall_tally::SyscallTally;

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessEnd {
    Exited(i32),
    Killed(i32),
    /// Released while running, or its end is not known.
    Released,
}

/// The position of a thread relative to system calls.
#[derive(Debug, Clone, Copy)]
enum TraceState {
    /// The wrapper before its exec; not counted.
    Waiting,
    /// In user code.
    Outside,
    /// In a system call.
    Inside { arch: u32, number: u64, since: u64 },
}

/// The state of all traced threads. All methods must be called from the thread that created it.
pub(crate) struct Tracer<'a> {
    pub tally: &'a mut SyscallTally,
    threads: HashMap<pid_t, TraceState>,
    /// The first process; its exit ends the command.
    root: pid_t,
    /// Threads stop only at calls that the seccomp filter selects.
    is_filtered: bool,
    is_root_ending: bool,
    is_releasing: bool,
    /// The first process executed a privileged program, which must not be traced.
    pub is_root_privileged: bool,
    pub processes: u64,
    /// Collects the rest of the summary, if one is wanted.
    pub observer: Option<RunObserver>,
    /// The usage of the first process, once it has exited.
    pub exit_usage: Option<ExitUsage>,
}

impl<'a> Tracer<'a> {
    /// Traces the program that `root` will execute. Calls of `root` before its exec are not
    /// counted.
    pub(crate) fn for_exec(root: pid_t, tally: &'a mut SyscallTally) -> io::Result<Tracer<'a>> {
        let mut tracer = Tracer::new(root, tally);
        ptrace_requests::seize(root, ptrace_requests::TRACE_OPTIONS)?;
        tracer.threads.insert(root, TraceState::Waiting);
        Ok(tracer)
    }

    /// Like [`Tracer::for_exec`], with stops only at calls that the seccomp filter selects.
    pub(crate) fn for_filter(root: pid_t, tally: &'a mut SyscallTally) -> io::Result<Tracer<'a>> {
        let mut tracer = Tracer::new(root, tally);
        ptrace_requests::seize(
            root,
            ptrace_requests::TRACE_OPTIONS | libc::PTRACE_O_TRACESECCOMP,
        )?;
        tracer.is_filtered = true;
        tracer.threads.insert(root, TraceState::Waiting);
        Ok(tracer)
    }

    pub(super) fn new(root: pid_t, tally: &'a mut SyscallTally) -> Tracer<'a> {
        Tracer {
            tally,
            threads: HashMap::new(),
            root,
            is_filtered: false,
            is_root_ending: false,
            is_releasing: false,
            is_root_privileged: false,
            processes: 1,
            observer: None,
            exit_usage: None,
        }
    }

    /// Seizes a running thread, which stops and is counted from then on.
    pub(super) fn seize(&mut self, thread: pid_t) -> io::Result<()> {
        ptrace_requests::seize(thread, ptrace_requests::TRACE_OPTIONS)?;
        self.threads.insert(thread, TraceState::Outside);
        ptrace_requests::interrupt(thread)
    }

    pub(super) fn is_tracing(&self, thread: pid_t) -> bool {
        self.threads.contains_key(&thread)
    }

    /// Requests all threads to stop; [`Tracer::step`] then detaches them.
    pub(super) fn release_all(&mut self) {
        self.is_releasing = true;
        for thread in self.threads.keys() {
            // An error means that the thread has exited, which it reports itself.
            let _ = ptrace_requests::interrupt(*thread);
        }
    }

    /// Waits for the next event and handles it. The exit of the first process is returned before
    /// its parent is notified, so that everything written now is visible to the parent;
    /// [`Tracer::reap_root`] then lets the notification pass.
    pub(crate) fn step(&mut self) -> io::Result<TraceStep> {
        let (thread, report) = if self.is_root_ending {
            // Peeking costs one more system call per step, but only while the first process is
            // exiting.
            match trace_events::peek()? {
                (thread, Some(ended)) if thread == self.root => {
                    self.exit_usage = Some(ended.usage);
                    return Ok(TraceStep::RootEnded(process_end(ended.event)));
                }
                (thread, _) => trace_events::wait_for(thread)?,
            }
        } else {
            trace_events::wait_any()?
        };
        let is_root = thread == self.root;
        match report {
            // Killed without an exit stop: its parent has been notified already.
            TraceEvent::Exited(_) | TraceEvent::Killed(_) if is_root => {
                self.end_call(thread);
                return Ok(TraceStep::RootEnded(process_end(report)));
            }
            TraceEvent::Exited(_) | TraceEvent::Killed(_) => {
                self.end_call(thread);
                self.threads.remove(&thread);
            }
            report if self.is_releasing => self.release(thread, report),
            report => self.handle(thread, report),
        }
        Ok(if self.threads.is_empty() {
            TraceStep::AllExited
        } else {
            TraceStep::Running
        })
    }

    /// Takes a reading if one is due.
    pub(crate) fn take_reading(&mut self) {
        if !reading_timer::take_due() {
            return;
        }
        let now = pegel_lane::monotonic_ns();
        let running = self.threads.values().filter_map(|state| match *state {
            TraceState::Inside {
                arch,
                number,
                since,
            } => Some((arch, number, now.saturating_sub(since))),
            TraceState::Waiting | TraceState::Outside => None,
        });
        self.tally.publish_running(running);
        if let Some(observer) = &mut self.observer {
            observer.tick();
        }
    }

    /// Records the time of the call in which a thread ends or is released, if it is in one.
    fn end_call(&mut self, thread: pid_t) {
        if let Some(state) = self.threads.get_mut(&thread)
            && let TraceState::Inside {
                arch,
                number,
                since,
            } = *state
        {
            *state = TraceState::Outside;
            let nanos = pegel_lane::monotonic_ns().saturating_sub(since);
            self.tally.record_unfinished(arch, number, nanos);
        }
    }

    /// Returns whether the wrapper has executed the program.
    pub(crate) fn has_started(&self) -> bool {
        !matches!(self.threads.get(&self.root), Some(TraceState::Waiting))
    }

    /// Lets the parent of the first process be notified of its exit. Returns whether no thread is
    /// left.
    pub(crate) fn reap_root(&mut self) -> bool {
        if std::mem::take(&mut self.is_root_ending) {
            let _ = trace_events::wait_for(self.root);
        }
        self.threads.remove(&self.root);
        self.threads.is_empty()
    }

    fn release(&mut self, thread: pid_t, report: TraceEvent) {
        let signal = match report {
            TraceEvent::Signal(signal) => signal,
            _ => 0,
        };
        let _ = ptrace_requests::detach(thread, signal);
        self.end_call(thread);
        self.threads.remove(&thread);
    }

    fn handle(&mut self, thread: pid_t, report: TraceEvent) {
        // An error means that the thread was killed meanwhile; its exit is the next event.
        let _ = match report {
            TraceEvent::Syscall => return self.at_syscall(thread),
            TraceEvent::Seccomp => return self.at_filter(thread),
            TraceEvent::Signal(signal) => self.resume(thread, signal),
            TraceEvent::GroupStop(_) => ptrace_requests::listen(thread),
            TraceEvent::Exec => {
                self.at_exec(thread);
                self.resume(thread, 0)
            }
            TraceEvent::Exiting => {
                self.is_root_ending |= thread == self.root;
                self.end_call(thread);
                if let Some(observer) = &mut self.observer {
                    observer.at_exit_of(thread);
                }
                self.resume(thread, 0)
            }
            TraceEvent::Stopped => {
                // A new thread; the event of its creator comes before or after.
                self.threads.entry(thread).or_insert(TraceState::Outside);
                self.resume(thread, 0)
            }
            TraceEvent::NewProcess => {
                self.processes += 1;
                self.resume(thread, 0)
            }
            TraceEvent::NewThread => self.resume(thread, 0),
            TraceEvent::Exited(_) | TraceEvent::Killed(_) => return,
        };
    }

    fn resume(&self, thread: pid_t, signal: c_int) -> io::Result<()> {
        match self.threads.get(&thread) {
            Some(TraceState::Waiting) => ptrace_requests::resume(thread, signal),
            Some(TraceState::Inside { .. }) => ptrace_requests::resume_to_syscall(thread, signal),
            _ if self.is_filtered => ptrace_requests::resume(thread, signal),
            _ => ptrace_requests::resume_to_syscall(thread, signal),
        }
    }

    /// Handles an exec: the calling thread has taken the process ID, and all other threads are
    /// gone.
    fn at_exec(&mut self, thread: pid_t) {
        let before = ptrace_requests::event_message(thread).unwrap_or(0) as pid_t;
        let known = self.threads.remove(&before);
        // The former main thread ended without an event of its own.
        self.end_call(thread);
        let state = match known {
            Some(state @ TraceState::Inside { .. }) => state,
            // The first exec starts the program and is its first call.
            _ => TraceState::Inside {
                arch: syscall_names::ARCH_NATIVE,
                number: syscall_names::syscall_number("execve").map_or(u64::MAX, u64::from),
                since: pegel_lane::monotonic_ns(),
            },
        };
        // With a filter, exec is not among the counted calls.
        let is_wanted = !self.is_filtered;
        let state = if is_wanted {
            state
        } else {
            TraceState::Outside
        };
        self.threads.insert(thread, state);
    }

    fn at_syscall(&mut self, thread: pid_t) {
        let is_inside = matches!(self.threads.get(&thread), Some(TraceState::Inside { .. }));
        match ptrace_requests::syscall_stop(thread, is_inside) {
            Ok(SyscallStop::Entry {
                arch,
                number,
                arguments,
            }) => self.enter(thread, arch, number, &arguments),
            Ok(SyscallStop::Exit { result }) => self.leave(thread, result),
            // The call is not counted; or the thread was killed, and its exit is the next event.
            Ok(SyscallStop::Other) | Err(_) => {}
        }
        if self.threads.contains_key(&thread) {
            let _ = self.resume(thread, 0);
        }
    }

    /// Handles a stop by the seccomp filter: the entry of a call, whose exit is wanted too.
    fn at_filter(&mut self, thread: pid_t) {
        if self.is_filtered
            && let Ok(SyscallStop::Entry {
                arch,
                number,
                arguments,
            }) = ptrace_requests::syscall_stop(thread, false)
        {
            self.enter(thread, arch, number, &arguments);
        }
        if self.threads.contains_key(&thread) {
            let _ = self.resume(thread, 0);
        }
    }

    fn enter(&mut self, thread: pid_t, arch: u32, number: u64, arguments: &[u64; 6]) {
        match syscall_names::special_call(arch, number) {
            Some(SpecialCall::Exit) => {
                self.tally.record_no_return(arch, number);
                self.threads.insert(thread, TraceState::Outside);
                return;
            }
            Some(exec) if gains_privileges(thread, exec, arguments) => {
                // A traced program would not get its privileges.
                let _ = ptrace_requests::detach(thread, 0);
                self.threads.remove(&thread);
                self.is_root_privileged |= thread == self.root;
                return;
            }
            _ => {}
        }
        let since = pegel_lane::monotonic_ns();
        let state = TraceState::Inside {
            arch,
            number,
            since,
        };
        self.threads.insert(thread, state);
    }

    fn leave(&mut self, thread: pid_t, result: i64) {
        let before = self.threads.insert(thread, TraceState::Outside);
        // Otherwise the call was entered before the thread was seized.
        if let Some(TraceState::Inside {
            arch,
            number,
            since,
        }) = before
        {
            let nanos = pegel_lane::monotonic_ns().saturating_sub(since);
            self.tally.record(arch, number, result, nanos);
        }
    }
}

/// The result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TraceStep {
    Running,
    RootEnded(ProcessEnd),
    AllExited,
}

pub(super) fn process_end(report: TraceEvent) -> ProcessEnd {
    match report {
        TraceEvent::Killed(signal) => ProcessEnd::Killed(signal),
        TraceEvent::Exited(code) => ProcessEnd::Exited(code),
        _ => ProcessEnd::Released,
    }
}

/// Returns whether the program that a thread is about to execute gains privileges. True if that
/// cannot be determined: a program that runs uncounted is better than one that fails.
fn gains_privileges(thread: pid_t, exec: SpecialCall, arguments: &[u64; 6]) -> bool {
    let (descriptor, address, flags) = match exec {
        SpecialCall::Execveat => (arguments[0] as i32, arguments[1], arguments[4] as i32),
        _ => (libc::AT_FDCWD, arguments[0], 0),
    };
    let path = match read_text(thread, address) {
        Ok(path) => path,
        // The memory of a program that its user may execute but not read is not accessible.
        Err(error) => return error.kind() == io::ErrorKind::PermissionDenied,
    };
    if path.is_empty() && flags & libc::AT_EMPTY_PATH == 0 {
        return false;
    }
    let path = Path::new(std::ffi::OsStr::from_bytes(&path));
    let resolver = PathResolver::for_thread(thread);
    let program = resolver.open_at(descriptor, path);
    program.is_some_and(|program| resolver.interpreter(program).changes_privileges())
}

/// Reads a NUL-terminated string of another process.
fn read_text(thread: pid_t, address: u64) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let mut buffer = [0; 4096];
    while text.len() <= libc::PATH_MAX as usize {
        let count = ptrace_requests::read_memory(thread, address + text.len() as u64, &mut buffer)?;
        let bytes = &buffer[..count];
        match bytes.iter().position(|byte| *byte == 0) {
            Some(end) => {
                text.extend_from_slice(&bytes[..end]);
                return Ok(text);
            }
            None if bytes.is_empty() => break,
            None => text.extend_from_slice(bytes),
        }
    }
    Err(io::ErrorKind::InvalidInput.into())
}
