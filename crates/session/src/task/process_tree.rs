//! Follows the processes of a task and sums what they used.
//!
//! The kernel adds CPU time and I/O of a process to its parent when the parent waits for it. The
//! sum over live processes, each with the children that it waited for, therefore contains every
//! process that another member of the tree waited for. Of a process that vanished otherwise (its
//! parent ignores SIGCHLD, or is outside of the tree) the last reading is kept in `ended`.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;

use pegel_machine::{MachineFiles, ProcDir, TaskCounts};
use pegel_metric::Millis;
use serde::{Deserialize, Serialize};

use super::scope::{ProcessKey, TaskScope};
use super::task_process::{IoTotals, STAT_BUFFER, TaskCpu, TaskProcess, read_stat};

/// The most processes of a task that are followed.
const MEMBERS_MAX: usize = 4096;
/// The processes whose command lines are known.
pub(super) const LARGEST_COUNT: usize = 10;
/// How long processes that ended are kept for an autopsy.
const VANISHED_MILLIS: Millis = 60_000;
/// After this number of samples all processes are read again: a process ID may have been
/// reused by a new process of the task.
const FORGET_SAMPLES: u32 = 60;

/// What is kept over a restart of the agent.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct TreeState {
    members: BTreeMap<u32, TaskProcess>,
    /// Usage of processes that vanished without being waited for by a member.
    ended_cpu: TaskCpu,
    ended_io: IoTotals,
    /// Usage of the first members before the task was watched.
    initial_cpu: TaskCpu,
    initial_io: IoTotals,
}

/// A process that ended recently, as it was when it was last seen.
#[derive(Debug, Clone)]
pub(super) struct VanishedProcess {
    /// When its end was detected.
    time: Millis,
    pub pid: u32,
    pub process: TaskProcess,
}

/// The sums over all processes, since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct TreeUsage {
    pub cpu: TaskCpu,
    /// `None` if no process's I/O may be read.
    pub io: Option<IoTotals>,
    pub resident_bytes: u64,
    pub processes: u64,
}

#[derive(Debug)]
pub(super) struct ProcessTree {
    pub proc: ProcDir,
    pub state: TreeState,
    /// The largest processes that ended recently.
    pub vanished: Vec<VanishedProcess>,
    /// Processes that do not belong to the task.
    others: HashSet<u32>,
    task_counts: Option<TaskCounts>,
    listed: Vec<u32>,
    samples: u32,
}

impl ProcessTree {
    pub(super) fn open(machine: &MachineFiles, state: TreeState) -> io::Result<ProcessTree> {
        Ok(ProcessTree {
            proc: ProcDir::open(&machine.resolve("proc"))?,
            state,
            vanished: Vec::new(),
            others: HashSet::new(),
            task_counts: None,
            listed: Vec::new(),
            samples: 0,
        })
    }

    /// Finds the first members. What they used so far does not count.
    pub(super) fn start(
        &mut self,
        scope: &TaskScope,
        now: Millis,
        in_cgroup: &[u32],
        excluded: &[u32],
    ) {
        let root = scope.root;
        let mut buffer = STAT_BUFFER;
        if let Some(stat) = read_stat(&self.proc, root.pid, &mut buffer)
            && stat.start_ticks == root.start_ticks
        {
            self.state.members.insert(root.pid, TaskProcess::new(&stat));
        }
        self.sample(now, in_cgroup, excluded);
        let usage = self.totals();
        self.state.initial_cpu = usage.0;
        self.state.initial_io = usage.1.unwrap_or_default();
        for process in self.state.members.values_mut() {
            process.earlier_peak_bytes = process.peak_bytes;
            process.peak_bytes = process.resident_bytes;
        }
    }

    /// Reads all processes of the task. `in_cgroup`: processes of its cgroup, sorted;
    /// `excluded`: those that never belong to it.
    pub(super) fn sample(&mut self, now: Millis, in_cgroup: &[u32], excluded: &[u32]) -> TreeUsage {
        self.discover(in_cgroup, excluded);
        let gone = self.read_members();
        self.settle(now, gone);
        self.read_commands();
        let (cpu, io) = self.totals();
        let state = &self.state;
        let live = state.members.values().filter(|member| !member.is_zombie());
        let resident = live.clone().map(|member| member.resident_bytes);
        TreeUsage {
            cpu: cpu.minus(state.initial_cpu),
            io: io.map(|io| io.minus(state.initial_io)),
            resident_bytes: resident.fold(0, u64::saturating_add),
            processes: live.count() as u64,
        }
    }

    pub(super) fn members(&self) -> impl Iterator<Item = (u32, &TaskProcess)> {
        self.state
            .members
            .iter()
            .map(|(pid, member)| (*pid, member))
    }

    /// Removes all processes: they are of an earlier boot.
    pub(super) fn end_all(&mut self, now: Millis) {
        let all = std::mem::take(&mut self.state.members);
        self.settle(now, all);
    }

    /// Adds new descendants of members. `/proc` is listed only if a process was started or ended.
    fn discover(&mut self, in_cgroup: &[u32], excluded: &[u32]) {
        self.samples = self.samples.wrapping_add(1);
        if self.samples.is_multiple_of(FORGET_SAMPLES) {
            self.others.clear();
            self.task_counts = None;
        }
        let counts = self.proc.task_counts();
        let is_unchanged = counts.is_some() && counts == self.task_counts;
        self.task_counts = counts;
        if is_unchanged || self.proc.list(&mut self.listed).is_err() {
            self.listed.clear();
        } else {
            let listed: HashSet<u32> = self.listed.iter().copied().collect();
            self.others.retain(|pid| listed.contains(pid));
        }
        let mut new = HashMap::new();
        let mut buffer = STAT_BUFFER;
        let is_of_group = |pid: &u32| in_cgroup.binary_search(pid).is_ok();
        for pid in self.listed.iter().chain(in_cgroup) {
            let is_known = self.state.members.contains_key(pid) || excluded.contains(pid);
            if !is_known
                && (is_of_group(pid) || !self.others.contains(pid))
                && let Some(stat) = read_stat(&self.proc, *pid, &mut buffer)
            {
                new.insert(*pid, TaskProcess::new(&stat));
            }
        }
        self.add_descendants(new, is_of_group);
    }

    /// Adds the new processes whose parents are members, generation by generation.
    fn add_descendants(
        &mut self,
        mut new: HashMap<u32, TaskProcess>,
        is_of_group: impl Fn(&u32) -> bool,
    ) {
        loop {
            let members = &self.state.members;
            let room = MEMBERS_MAX.saturating_sub(members.len());
            let belongs = |(pid, process): &(&u32, &TaskProcess)| {
                let parent = members.get(&process.parent);
                // A parent that is younger than its child has a reused ID.
                parent.is_some_and(|parent| parent.start_ticks <= process.start_ticks)
                    || is_of_group(pid)
            };
            let found = new.iter().filter(belongs).map(|(pid, _)| *pid).take(room);
            let found: Vec<u32> = found.collect();
            if found.is_empty() {
                break;
            }
            for pid in found {
                if let Some(process) = new.remove(&pid) {
                    self.state.members.insert(pid, process);
                }
            }
        }
        self.others.extend(new.into_keys());
    }

    /// Reads the members again and removes those that have ended.
    fn read_members(&mut self) -> BTreeMap<u32, TaskProcess> {
        let mut gone = Vec::new();
        let mut buffer = STAT_BUFFER;
        for (pid, member) in &mut self.state.members {
            let stat = read_stat(&self.proc, *pid, &mut buffer);
            let Some(stat) = stat.filter(|stat| stat.start_ticks == member.start_ticks) else {
                gone.push(*pid);
                continue;
            };
            member.update(&self.proc, *pid, &stat);
            member.read_io(&self.proc, *pid);
        }
        let take = |pid: u32| Some((pid, self.state.members.remove(&pid)?));
        gone.into_iter().filter_map(take).collect()
    }

    /// Accounts for processes that have ended: under the live member that waited for them, where
    /// the kernel added them, else in `ended`.
    fn settle(&mut self, now: Millis, gone: BTreeMap<u32, TaskProcess>) {
        let mut by_reaper: BTreeMap<Option<u32>, Vec<&TaskProcess>> = BTreeMap::new();
        for process in gone.values() {
            let reaper = self.reaper(process, &gone);
            by_reaper.entry(reaper).or_default().push(process);
        }
        for (reaper, processes) in by_reaper {
            let sum = |sum: TaskCpu, one: &&TaskProcess| sum.plus(one.own).plus(one.children);
            let cpu = processes.iter().fold(TaskCpu::default(), sum);
            let io = processes.iter().filter_map(|process| process.io);
            let io = io.fold(IoTotals::default(), IoTotals::plus);
            let added = reaper.map_or(TaskCpu::default(), |reaper| self.newly_added(reaper));
            if added.faults < cpu.faults || reaper.is_none() {
                self.state.ended_cpu = self.state.ended_cpu.plus(cpu.minus(added));
                self.state.ended_io = self.state.ended_io.plus(io);
            }
        }
        self.keep_vanished(now, gone);
    }

    /// Returns the nearest live member above a process that has ended.
    fn reaper(&self, process: &TaskProcess, gone: &BTreeMap<u32, TaskProcess>) -> Option<u32> {
        let mut child = process;
        // A chain of parents is not longer than the number of processes.
        for _ in 0..=gone.len() {
            let parent = child.parent;
            let live = self.state.members.get(&parent);
            if live.is_some_and(|live| live.start_ticks <= child.start_ticks) {
                return Some(parent);
            }
            child = gone.get(&parent)?;
        }
        None
    }

    /// Reads a member once more and returns what was added for its children since the previous
    /// sample. The kernel adds a child's usage before the child vanishes.
    fn newly_added(&mut self, pid: u32) -> TaskCpu {
        let Some(member) = self.state.members.get_mut(&pid) else {
            return TaskCpu::default();
        };
        let mut buffer = STAT_BUFFER;
        if let Some(stat) = read_stat(&self.proc, pid, &mut buffer)
            && stat.start_ticks == member.start_ticks
        {
            member.update(&self.proc, pid, &stat);
            member.read_io(&self.proc, pid);
        }
        member.children.minus(member.previous_children)
    }

    /// Keeps the largest of the processes that have ended, for an autopsy.
    fn keep_vanished(&mut self, now: Millis, gone: BTreeMap<u32, TaskProcess>) {
        let vanished = &mut self.vanished;
        vanished.retain(|known| now.saturating_sub(known.time) < VANISHED_MILLIS);
        vanished.extend(gone.into_iter().map(|(pid, process)| VanishedProcess {
            time: now,
            pid,
            process,
        }));
        vanished.sort_by_key(|known| std::cmp::Reverse(known.process.resident_bytes));
        vanished.truncate(LARGEST_COUNT);
    }

    fn read_commands(&mut self) {
        for key in self.largest() {
            if let Some(member) = self.state.members.get_mut(&key.pid) {
                member.read_command(&self.proc, key.pid);
            }
        }
        for member in self.state.members.values_mut() {
            member.previous_children = member.children;
        }
    }

    /// Returns the members with the most resident memory.
    fn largest(&self) -> Vec<ProcessKey> {
        let mut sizes: Vec<(u64, ProcessKey)> = self
            .members()
            .map(|(pid, member)| {
                let start_ticks = member.start_ticks;
                (member.resident_bytes, ProcessKey { pid, start_ticks })
            })
            .collect();
        if sizes.len() > LARGEST_COUNT {
            sizes.select_nth_unstable_by(LARGEST_COUNT - 1, |a, b| b.cmp(a));
            sizes.truncate(LARGEST_COUNT);
        }
        sizes.into_iter().map(|(_, key)| key).collect()
    }

    /// Returns the sums with what was used before the start.
    fn totals(&self) -> (TaskCpu, Option<IoTotals>) {
        let state = &self.state;
        let mut cpu = state.ended_cpu;
        let mut io = (state.ended_io != IoTotals::default()).then_some(state.ended_io);
        for member in state.members.values() {
            cpu = cpu.plus(member.own).plus(member.children);
            if let Some(own) = member.io {
                io = Some(io.unwrap_or_default().plus(own));
            }
        }
        (cpu, io)
    }
}
