//! Follows a watched process to its end and transfers its counts into the tally.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::program_set::{self, ProgramSet};
use super::programs::{ROW_COMPAT, ROW_LARGE, ROWS};
use super::remote_counter::{CountingAgents, RemoteCounter};
use super::set_sharing::{self, SetServer, SharedSetLookup};
use super::watch_protocol::{CountFrom, CountsReading};
use super::watch_slot::{TaskProgress, WatchSlot, possible_processors};
use super::watched_process::WatchedProcess;
use super::{CallTiming, EbpfError, kernel_refused, task};
use crate::ptrace::ProcessEnd;
use crate::resource_usage::ExitUsage;
use crate::run_observer::RunObserver;
use crate::syscall_names;
use crate::syscall_tally::{CallCount, SyscallTally};

/// A watched process, the source of its counts, and the last reading.
#[derive(Debug)]
pub(crate) struct ProcessFollower {
    source: CountSource,
    process: OwnedFd,
    /// At the last reading.
    progress: TaskProgress,
    /// The interval between readings.
    poll_interval: Duration,
    last_rows: Vec<CallCount>,
}

/// The end of the first process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FollowedEnd {
    pub end: ProcessEnd,
    /// Whether it had executed the program.
    pub has_started: bool,
    /// Whether the counts are complete: the agent that counted is still there.
    pub is_complete: bool,
    pub usage: Option<ExitUsage>,
}

#[derive(Debug)]
enum CountSource {
    /// This process counts; it shares the set with others if it loaded it.
    Local(Box<WatchedProcess>, Option<SetServer>),
    Agent(RemoteCounter),
    /// The agent is gone; the counts since the last reading are lost.
    AgentLost,
}

impl ProcessFollower {
    /// Counts the program that the wrapper executes, from its exec on.
    pub(crate) fn for_program(
        wrapper: i32,
        time: CallTiming,
        agents: &CountingAgents,
    ) -> Result<ProcessFollower, EbpfError> {
        let process = task::open_process(wrapper).map_err(kernel_refused("the process"))?;
        let source = match allocate_local_slot(time) {
            Ok((slot, server)) => {
                let handle = process.try_clone().map_err(kernel_refused("the process"))?;
                let watched = WatchedProcess::from_exec(slot, wrapper, handle);
                let watched = watched.map_err(kernel_refused("the process"))?;
                CountSource::Local(Box::new(watched), server)
            }
            Err(EbpfError::Permission) => {
                CountSource::Agent(agents.request_counting(wrapper, CountFrom::Exec, time)?)
            }
            Err(error) => return Err(error),
        };
        let follower = ProcessFollower::new(source, process);
        follower.serve();
        Ok(follower)
    }

    fn new(source: CountSource, process: OwnedFd) -> ProcessFollower {
        // Readings take longer on large machines: each processor has a table.
        let factor = (possible_processors() / 32).clamp(1, 5) as u32;
        ProcessFollower {
            source,
            process,
            progress: TaskProgress::default(),
            poll_interval: Duration::from_millis(200) * factor,
            last_rows: vec![CallCount::default(); ROWS],
        }
    }

    /// Returns whether an agent counts.
    pub(crate) fn is_by_agent(&self) -> bool {
        matches!(self.source, CountSource::Agent(_))
    }

    /// Adds counts to the tally until the first process has exited.
    pub(crate) fn follow_first(
        &mut self,
        tally: &mut SyscallTally,
        mut observer: Option<&mut RunObserver>,
    ) -> FollowedEnd {
        loop {
            self.wait(observer.as_deref());
            let reading = self.read(tally);
            if let Some(observer) = &mut observer {
                observer.tick();
            }
            if let Some(end) = reading.end {
                return FollowedEnd {
                    end,
                    has_started: reading.progress.has_started,
                    is_complete: !matches!(self.source, CountSource::AgentLost),
                    usage: match &self.source {
                        CountSource::Local(watched, _) => watched.exit_usage,
                        CountSource::Agent(_) | CountSource::AgentLost => None,
                    },
                };
            }
        }
    }

    /// Lets the parent of the first process be notified, and adds counts until all tasks have
    /// exited.
    pub(crate) fn follow_rest(&mut self, tally: &mut SyscallTally) {
        let mut progress = self.progress;
        match &mut self.source {
            CountSource::Local(watched, _) => watched.release(),
            CountSource::Agent(remote) => remote.release(),
            CountSource::AgentLost => {}
        }
        // Children that outlive it are counted as well. A process that exited before its exec has
        // none, but its exit may have been missed.
        while progress.has_started && progress.is_alive {
            std::thread::sleep(self.poll_interval);
            self.serve();
            progress = self.read(tally).progress;
        }
    }

    fn serve(&self) {
        if let CountSource::Local(watched, Some(server)) = &self.source {
            server.serve(watched.slot.set());
        }
    }

    /// Waits one interval, or until the process exits, another wrapper requests the set, or the
    /// observer has work.
    fn wait(&self, observer: Option<&RunObserver>) {
        let (exit_fd, server) = match &self.source {
            CountSource::Local(watched, server) => (watched.exit_fd(), server.as_ref()),
            CountSource::Agent(_) | CountSource::AgentLost => (self.process.as_fd(), None),
        };
        let mut descriptors = vec![PollFd::from_borrowed_fd(exit_fd, PollFlags::IN)];
        descriptors
            .extend(server.map(|server| PollFd::from_borrowed_fd(server.as_fd(), PollFlags::IN)));
        let changes = observer.and_then(RunObserver::changes);
        descriptors.extend(changes.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let interval = observer.map_or(self.poll_interval, |observer| {
            observer.wait_time().min(self.poll_interval)
        });
        let moment = Timespec::try_from(interval).ok();
        // EINTR is treated as a timeout.
        let _ = poll(&mut descriptors, moment.as_ref());
        drop(descriptors);
        self.serve();
    }

    fn read(&mut self, tally: &mut SyscallTally) -> CountsReading {
        let reading = match &mut self.source {
            CountSource::Local(watched, _) => Some(watched.read()),
            CountSource::Agent(remote) => remote.read().ok(),
            CountSource::AgentLost => None,
        };
        let Some(reading) = reading else {
            self.source = CountSource::AgentLost;
            let ending =
                super::watched_process::has_ended(&self.process).then_some(ProcessEnd::Released);
            // The state of children is no longer known.
            self.progress.is_alive = false;
            return CountsReading {
                progress: self.progress,
                end: ending,
                rows: Vec::new(),
            };
        };
        self.progress = reading.progress;
        for (row, now) in &reading.rows {
            let before = std::mem::replace(&mut self.last_rows[*row], *now);
            add_row(tally, *row, now.since(&before));
        }
        reading
    }
}

/// Counts a running process until it exits or `is_over` is set. `ready` is called with the number
/// of its threads.
pub(crate) fn attach(
    pid: i32,
    time: CallTiming,
    agents: &CountingAgents,
    tally: &mut SyscallTally,
    mut observer: Option<&mut RunObserver>,
    ready: impl FnOnce(usize),
    is_over: &AtomicBool,
) -> Result<ProcessEnd, EbpfError> {
    let process = task::open_process(pid).map_err(kernel_refused("the process"))?;
    let (source, threads) = match allocate_local_slot(time) {
        Ok((slot, server)) => {
            let handle = process.try_clone().map_err(kernel_refused("the process"))?;
            let taken = WatchedProcess::from_now(slot, pid, handle)
                .map_err(kernel_refused("the threads"))?;
            if taken.0.has_exited() {
                let exited = std::io::Error::from_raw_os_error(libc::ESRCH);
                return Err(kernel_refused("the process")(exited));
            }
            (CountSource::Local(Box::new(taken.0), server), taken.1)
        }
        Err(EbpfError::Permission) => {
            let remote = agents.request_counting(pid, CountFrom::Now, time)?;
            (
                CountSource::Agent(remote),
                crate::process::threads(pid).len(),
            )
        }
        Err(error) => return Err(error),
    };
    let mut follower = ProcessFollower::new(source, process);
    ready(threads);
    loop {
        follower.wait(observer.as_deref());
        let is_last = is_over.load(Ordering::Relaxed);
        let reading = follower.read(tally);
        if let Some(observer) = &mut observer {
            observer.tick();
        }
        match reading.end {
            // Do not wait for its children: the command is interactive.
            Some(ending) => return Ok(ending),
            None if is_last => return Ok(ProcessEnd::Released),
            None => {}
        }
    }
}

/// Allocates a slot in a shared set, or in a set loaded by this process.
fn allocate_local_slot(time: CallTiming) -> Result<(WatchSlot, Option<SetServer>), EbpfError> {
    // Fails first if BPF is not permitted.
    let table = program_set::create_table().map_err(kernel_refused("maps"))?;
    let load = |table: OwnedFd| {
        let set = ProgramSet::load(&table, time)?;
        WatchSlot::first(Arc::new(set), table)
    };
    Ok(match set_sharing::find_shared_set(time) {
        SharedSetLookup::Shared(set, slot) => (WatchSlot::another(Arc::new(set), slot)?, None),
        SharedSetLookup::NotLoaded(listener) => (load(table)?, Some(SetServer::new(listener))),
        SharedSetLookup::Unavailable => (load(table)?, None),
    })
}

fn add_row(tally: &mut SyscallTally, row: usize, count: CallCount) {
    match row {
        ROW_COMPAT => tally.add(syscall_names::ARCH_I386, u64::MAX, count),
        ROW_LARGE => tally.add(syscall_names::ARCH_NATIVE, u64::MAX, count),
        row => tally.add(syscall_names::ARCH_NATIVE, row as u64, count),
    }
}
