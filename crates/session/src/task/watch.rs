//! Samples a task, and reports its out-of-memory kills and its end.

use std::io;
use std::os::fd::AsFd;

use pegel_machine::MachineFiles;
use pegel_metric::Millis;
use rustix::event::PollFd;
use serde::{Deserialize, Serialize};

use super::cgroup_usage::{CgroupUsage, read_oom_kills};
use super::descriptors::TaskDescriptors;
use super::exit_info::{TaskExit, exit_of};
use super::own_cgroup::{CgroupVersion, agent_processes};
use super::peaks::{PeakSource, TaskPeaks, raise};
use super::process_tree::{ProcessTree, TreeState, TreeUsage};
use super::scope::TaskScope;
use super::task_process::{IoTotals, STAT_BUFFER, read_stat};

/// If cgroups account for everything, processes are read in one of this number of samples.
const PROCESS_SAMPLES: u64 = 5;
/// From this share of the memory limit on they are read in every sample: the largest ones should
/// be known when the kernel kills one of them.
const NEAR_LIMIT: f64 = 0.8;

/// Whether a task runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskLife {
    Running,
    /// The root process has ended; other processes run in the task's own cgroup.
    RootEnded,
    /// The root process has ended, and the task's own cgroup is empty or removed, if it has one.
    Ended,
}

/// The events since the previous check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskEvents {
    /// Processes that the kernel killed in the task's cgroup because memory ran out.
    pub new_oom_kills: u64,
    /// Memory has run out in a cgroup v1, and the kernel is about to kill: check again soon.
    pub is_out_of_memory: bool,
    pub life: TaskLife,
}

/// A watch that continues after a restart of the agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TaskCheckpoint {
    scope: TaskScope,
    tree: TreeState,
    /// The cgroup's counters when the watch was started.
    initial: CgroupUsage,
    /// OOM kills that were reported.
    reported_kills: u64,
    peaks: TaskPeaks,
}

impl TaskCheckpoint {
    pub fn scope(&self) -> &TaskScope {
        &self.scope
    }
}

/// Watches one task.
#[derive(Debug)]
pub struct TaskWatch {
    pub(super) machine: MachineFiles,
    pub(super) scope: TaskScope,
    pub(super) tree: ProcessTree,
    pub(super) peaks: TaskPeaks,
    initial: CgroupUsage,
    reported_kills: u64,
    descriptors: TaskDescriptors,
    /// Processes that never belong to the task: this agent, and parents of the root process.
    excluded: Vec<u32>,
    is_this_boot: bool,
}

impl TaskWatch {
    /// Starts to watch a task and takes the first sample: usage counts from here. Fails only if
    /// `/proc` cannot be opened.
    pub fn start(machine: MachineFiles, scope: TaskScope, now: Millis) -> io::Result<TaskWatch> {
        let initial = CgroupUsage::read(&machine, &scope.cgroups);
        let checkpoint = TaskCheckpoint {
            reported_kills: initial.oom_kills.unwrap_or(0),
            scope,
            tree: TreeState::default(),
            initial,
            peaks: TaskPeaks::default(),
        };
        let mut watch = TaskWatch::resume(machine, checkpoint)?;
        let in_cgroup = watch.cgroup_processes();
        watch
            .tree
            .start(&watch.scope, now, &in_cgroup, &watch.excluded);
        watch.sample(now);
        Ok(watch)
    }

    /// Continues to watch a task from a checkpoint.
    pub fn resume(machine: MachineFiles, checkpoint: TaskCheckpoint) -> io::Result<TaskWatch> {
        let scope = checkpoint.scope;
        let is_this_boot = scope.is_this_boot(&machine);
        let mut descriptors = TaskDescriptors::default();
        if is_this_boot {
            descriptors = TaskDescriptors::open(&machine, &scope);
        }
        let mut excluded = agent_processes(&machine);
        excluded.extend(scope.ancestors.iter().map(|ancestor| ancestor.pid));
        let mut watch = TaskWatch {
            tree: ProcessTree::open(&machine, checkpoint.tree)?,
            peaks: checkpoint.peaks,
            initial: checkpoint.initial,
            reported_kills: checkpoint.reported_kills,
            machine,
            scope,
            descriptors,
            excluded,
            is_this_boot,
        };
        if !watch.is_root_there() {
            // The pidfd may be of another process with the same ID.
            watch.descriptors.root = None;
        }
        Ok(watch)
    }

    /// Returns what [`resume`](TaskWatch::resume) needs.
    pub fn checkpoint(&self) -> TaskCheckpoint {
        TaskCheckpoint {
            scope: self.scope.clone(),
            tree: self.tree.state.clone(),
            initial: self.initial,
            reported_kills: self.reported_kills,
            peaks: self.peaks.clone(),
        }
    }

    pub fn scope(&self) -> &TaskScope {
        &self.scope
    }

    /// Returns the peaks of the last sample.
    pub fn peaks(&self) -> &TaskPeaks {
        &self.peaks
    }

    /// Reads what the task used. To be called about once a second, and when the task has ended.
    pub fn sample(&mut self, now: Millis) -> &TaskPeaks {
        let usage = match self.is_this_boot {
            true => CgroupUsage::read(&self.machine, &self.scope.cgroups),
            false => CgroupUsage::default(),
        };
        let tree = self.sample_processes(now, &usage);
        self.record_cgroup(&usage);
        if let Some(tree) = tree {
            self.record_tree(&tree);
        }
        self.peaks.samples += 1;
        self.peaks.first_sample = self.peaks.first_sample.or(Some(now));
        self.peaks.last_sample = Some(now);
        &self.peaks
    }

    fn sample_processes(&mut self, now: Millis, usage: &CgroupUsage) -> Option<TreeUsage> {
        if !self.is_this_boot {
            self.tree.end_all(now);
        }
        let in_cgroup = self.cgroup_processes();
        if !in_cgroup.is_empty() {
            let count = in_cgroup.iter().filter(|pid| !self.excluded.contains(pid));
            raise(&mut self.peaks.processes, Some(count.count() as u64));
        }
        let is_near_limit = usage.memory.zip(usage.memory_limit);
        let is_near_limit =
            is_near_limit.is_some_and(|(used, limit)| used as f64 >= limit as f64 * NEAR_LIMIT);
        let is_turn = self.peaks.samples.is_multiple_of(PROCESS_SAMPLES);
        let is_complete = self.scope.cgroups.are_complete();
        let is_due = is_turn || is_near_limit || !is_complete || self.has_root_ended();
        is_due.then(|| self.tree.sample(now, &in_cgroup, &self.excluded))
    }

    fn record_cgroup(&mut self, usage: &CgroupUsage) {
        let (peaks, initial) = (&mut self.peaks, &self.initial);
        let since =
            |now: Option<u64>, then: Option<u64>| Some(now?.saturating_sub(then.unwrap_or(0)));
        let time_since =
            |now: Option<f64>, then: Option<f64>| Some((now? - then.unwrap_or(0.0)).max(0.0));
        if let Some(memory) = usage.memory {
            // The largest that is known to have been reached while the task was watched.
            let is_new = usage.memory_peak > initial.memory_peak;
            let kernel_peak = usage.memory_peak.filter(|_| is_new);
            let kernel_peak = kernel_peak.or_else(|| self.descriptors.peak_since_start());
            let version = self
                .scope
                .cgroups
                .memory
                .as_ref()
                .map(|group| group.version);
            let source = match (kernel_peak, version) {
                (None, _) => PeakSource::CgroupSamples,
                (_, Some(CgroupVersion::V1)) => PeakSource::CgroupPeakV1,
                (_, _) => PeakSource::CgroupPeak,
            };
            let peak = kernel_peak.unwrap_or(memory).max(memory);
            if peaks.memory_bytes.is_none_or(|known| peak >= known) {
                peaks.memory_bytes = Some(peak);
                peaks.memory_source = Some(source);
            }
        }
        raise(
            &mut peaks.oom_kills,
            since(usage.oom_kills, initial.oom_kills),
        );
        let cpu = time_since(usage.cpu_seconds, initial.cpu_seconds);
        raise(&mut peaks.cpu_seconds, cpu);
        let user = time_since(usage.user_seconds, initial.user_seconds);
        raise(&mut peaks.user_seconds, user);
        let system = time_since(usage.system_seconds, initial.system_seconds);
        raise(&mut peaks.system_seconds, system);
        raise(
            &mut peaks.read_bytes,
            since(usage.read_bytes, initial.read_bytes),
        );
        let written = since(usage.written_bytes, initial.written_bytes);
        raise(&mut peaks.written_bytes, written);
    }

    /// Records what the processes used, where no own cgroup accounts for it.
    fn record_tree(&mut self, tree: &TreeUsage) {
        let (peaks, cgroups) = (&mut self.peaks, &self.scope.cgroups);
        let is_own = |group: &Option<super::own_cgroup::TaskCgroup>| {
            group
                .as_ref()
                .is_some_and(|group| group.own_path().is_some())
        };
        // `pegel session start` is a child of the task, not a part of it.
        let members = self.tree.members();
        for (pid, process) in members.filter(|(_, process)| process.name != "pegel") {
            peaks.record_process(&process.name, pid, process.peak_bytes);
        }
        raise(&mut peaks.rss_sum_bytes, Some(tree.resident_bytes));
        raise(&mut peaks.processes, Some(tree.processes));
        if !is_own(&cgroups.memory) {
            let largest = peaks.largest_process.as_ref();
            peaks.memory_bytes = largest.map(|largest| largest.memory_bytes);
            peaks.memory_source = largest.map(|_| PeakSource::LargestProcess);
        }
        if !is_own(&cgroups.cpu_time) {
            let hz = rustix::param::clock_ticks_per_second().max(1) as f64;
            let (user, system) = (tree.cpu.user as f64 / hz, tree.cpu.system as f64 / hz);
            raise(&mut peaks.cpu_seconds, Some(user + system));
            raise(&mut peaks.user_seconds, Some(user));
            raise(&mut peaks.system_seconds, Some(system));
        }
        let field = |field: fn(IoTotals) -> u64| tree.io.map(field);
        raise(&mut peaks.rchar, field(|io| io.rchar));
        raise(&mut peaks.wchar, field(|io| io.wchar));
        if !is_own(&cgroups.io) {
            raise(&mut peaks.read_bytes, field(|io| io.read));
            raise(&mut peaks.written_bytes, field(|io| io.written));
        }
    }

    /// Returns descriptors that become ready when [`check`](TaskWatch::check) has something to
    /// report. To be requested again after every check: some are dropped.
    pub fn poll_fds(&self) -> Vec<PollFd<'_>> {
        self.descriptors.poll_fds()
    }

    /// Checks for OOM kills and the end of the task. Cheap: reads at most a few small files.
    pub fn check(&mut self) -> TaskEvents {
        let is_out_of_memory = self.descriptors.has_memory_run_out();
        let kills = self.descriptors.oom_kills();
        let kills = kills.or_else(|| read_oom_kills(&self.machine, &self.scope.cgroups));
        let kills = kills.filter(|_| self.is_this_boot);
        let new_oom_kills = kills.map_or(0, |kills| kills.saturating_sub(self.reported_kills));
        if let Some(kills) = kills {
            // The sum over groups of version 1 falls when one of them is removed.
            self.reported_kills = kills;
        }
        TaskEvents {
            new_oom_kills,
            is_out_of_memory,
            life: self.life(),
        }
    }

    /// Returns whether the task runs.
    pub fn life(&mut self) -> TaskLife {
        if !self.has_root_ended() {
            TaskLife::Running
        } else if self.has_cgroup_processes() {
            TaskLife::RootEnded
        } else {
            TaskLife::Ended
        }
    }

    /// Whether the root process has ended and the own cgroup, if any, is empty or removed.
    pub fn has_ended(&mut self) -> bool {
        self.life() == TaskLife::Ended
    }

    /// Returns how the root process ended, if the kernel reports it (since Linux 6.15, after its
    /// parent has waited for it).
    pub fn exit(&self) -> Option<TaskExit> {
        exit_of(self.descriptors.root.as_ref()?.as_fd())
    }

    fn has_root_ended(&mut self) -> bool {
        match self.descriptors.has_root_ended() {
            Some(has_ended) => has_ended,
            None => !self.is_root_there(),
        }
    }

    /// Whether the root process exists and has not exited.
    fn is_root_there(&self) -> bool {
        let mut buffer = STAT_BUFFER;
        let root = self.scope.root;
        let stat = read_stat(&self.tree.proc, root.pid, &mut buffer);
        let is_same = stat.is_some_and(|stat| {
            stat.start_ticks == root.start_ticks && !matches!(stat.state, b'Z' | b'X')
        });
        self.is_this_boot && is_same
    }

    /// Whether processes other than this agent and parents of the root are in the own cgroup.
    fn has_cgroup_processes(&mut self) -> bool {
        let is_empty = self.descriptors.is_populated() == Some(false);
        let processes = || self.cgroup_processes();
        !is_empty && processes().iter().any(|pid| !self.excluded.contains(pid))
    }

    fn cgroup_processes(&self) -> Vec<u32> {
        let group = self.scope.cgroups.population();
        let group = group.filter(|_| self.is_this_boot);
        let processes = group.and_then(|group| group.processes(&self.machine));
        processes.unwrap_or_default()
    }
}
