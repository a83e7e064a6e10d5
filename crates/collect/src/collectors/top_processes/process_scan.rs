//! Keeps track of all processes of the node, reading as little of `/proc` as possible.
//!
//! `/proc` is listed when a process started or ended since the last pass, which `/proc/loadavg`
//! shows, and in every sixth pass. In each pass the `stat` file is read of processes younger than a
//! minute, of those that were active at their last reading, of the top ones, and of a sixth of the
//! others. A process is active if it used CPU time, did I/O, or if children of it ended. If the CPU
//! time of these leaves more than a twentieth of a core of the node's CPU time unexplained, an
//! idle process has become active: then all others are read too. A process that uses less than that
//! may appear up to six passes late. Details and I/O are read of active and top processes only.

use std::collections::BTreeMap;
use std::io;

use pegel_machine::{ProcDir, ProcessIo, ProcessStat, TaskCounts};

use super::process_details::DetailReader;
use super::tracked_process::{IoCounters, KernelUnits, ScanTime, TrackedProcess};

/// Idle processes are read once in this number of passes.
pub(super) const IDLE_PASSES: u64 = 6;
/// The CPU time that may remain unexplained, in cores.
const UNEXPLAINED_CORES: f64 = 0.05;
/// Names and groups are looked up again after this number of passes.
const FORGET_PASSES: u64 = 720;
/// The I/O of this number of active processes is read in one pass.
const IO_READS_MAX: usize = 512;
/// Longer than any `stat` and `io` file of a process.
const FILE_BYTES: usize = 1024;

#[derive(Debug)]
pub(super) struct ProcessScan {
    proc: ProcDir,
    pub units: KernelUnits,
    pub processes: BTreeMap<u32, TrackedProcess>,
    details: DetailReader,
    task_counts: Option<TaskCounts>,
    /// CPU ticks of all processes of the node at the previous pass.
    busy_ticks: Option<u64>,
    listed: Vec<u32>,
}

impl ProcessScan {
    pub(super) fn new(proc: ProcDir, units: KernelUnits, details: DetailReader) -> ProcessScan {
        ProcessScan {
            proc,
            units,
            processes: BTreeMap::new(),
            details,
            task_counts: None,
            busy_ticks: None,
            listed: Vec::new(),
        }
    }

    /// Updates all processes. `busy_ticks`: the node's CPU time in user and kernel mode, if known.
    pub(super) fn pass(&mut self, now: &ScanTime, busy_ticks: Option<u64>) -> io::Result<()> {
        let mut explained = 0;
        for pid in self.due_processes(now)? {
            explained += self.read_stat(pid, now);
        }
        let busy = busy_ticks.zip(self.busy_ticks);
        self.busy_ticks = busy_ticks;
        let unexplained =
            busy.map(|(new, last)| new.saturating_sub(last).saturating_sub(explained));
        let elapsed = now
            .previous
            .map_or(0.0, |last| (now.monotonic - last).as_secs_f64());
        let tolerated = UNEXPLAINED_CORES * elapsed * self.units.user_hz;
        if unexplained.is_some_and(|ticks| ticks as f64 > tolerated) {
            let unread = self
                .processes
                .iter()
                .filter(|(_, known)| !known.was_read(now));
            let unread: Vec<u32> = unread.map(|(pid, _)| *pid).collect();
            for pid in unread {
                self.read_stat(pid, now);
            }
        }
        if now.number.is_multiple_of(FORGET_PASSES) {
            self.details.forget();
        }
        self.read_details(now);
        self.read_io(now);
        Ok(())
    }

    /// Returns the processes whose `stat` is read in this pass, and drops those that ended.
    fn due_processes(&mut self, now: &ScanTime) -> io::Result<Vec<u32>> {
        let counts = self.proc.task_counts();
        let is_unchanged = counts.is_some() && counts == self.task_counts;
        self.task_counts = counts;
        let mut due = Vec::new();
        if !is_unchanged || now.number.is_multiple_of(IDLE_PASSES) {
            self.proc.list(&mut self.listed)?;
            self.listed.sort_unstable();
            let listed = &self.listed;
            let known = self.processes.keys().copied();
            let ended: Vec<u32> = known
                .filter(|pid| listed.binary_search(pid).is_err())
                .collect();
            for pid in ended {
                self.remove(pid);
            }
            let listed = &self.listed;
            let is_new = |pid: &&u32| !self.processes.contains_key(pid);
            due.extend(listed.iter().filter(is_new).copied());
        }
        let is_due = |(pid, process): &(&u32, &TrackedProcess)| {
            let is_turn = u64::from(**pid) % IDLE_PASSES == now.number % IDLE_PASSES;
            let is_in_motion = process.is_active() || process.is_young(&self.units, now);
            is_turn || is_in_motion || process.is_top(now)
        };
        due.extend(self.processes.iter().filter(is_due).map(|(pid, _)| *pid));
        Ok(due)
    }

    /// Reads the `stat` file of a process; one that ended is dropped. Returns the CPU ticks that it
    /// used since its last reading.
    fn read_stat(&mut self, pid: u32, now: &ScanTime) -> u64 {
        let mut text = [0; FILE_BYTES];
        let length = self.proc.read(pid, "stat", &mut text).unwrap_or(0);
        let Some(stat) = ProcessStat::parse(&text[..length]) else {
            self.remove(pid);
            return 0;
        };
        let units = &self.units;
        match self.processes.get_mut(&pid) {
            Some(known) if known.start_ticks == stat.start_ticks => known.update(&stat, units, now),
            _ => {
                let process = TrackedProcess::new(&stat, units, now);
                self.processes.insert(pid, process);
                stat.cpu_ticks()
            }
        }
    }

    /// Drops a process that ended. Its parent has waited for it.
    fn remove(&mut self, pid: u32) {
        if let Some(ended) = self.processes.remove(&pid)
            && let Some(io) = ended.io
            && let Some(parent) = self.processes.get_mut(&ended.parent)
        {
            parent.inherit_io(io);
        }
    }

    fn read_details(&mut self, now: &ScanTime) {
        for (pid, process) in &mut self.processes {
            if process.are_details_due(now)
                && let Ok(folder) = self.proc.process(*pid)
            {
                let may_hang = process.state == b'D';
                let details = self.details.read(&folder, may_hang, &process.details);
                process.set_details(details, now);
            }
        }
    }

    /// Reads the I/O counters of processes that were active since their last reading, the busiest
    /// first, and of top and young ones whose counters are not known. The counters include those of
    /// children that ended.
    fn read_io(&mut self, now: &ScanTime) {
        let wanted = self.processes.iter().filter(|(_, process)| {
            let is_wanted = process.is_top(now) || process.is_young(&self.units, now);
            process.was_read(now) && (process.is_active() || is_wanted && process.io.is_none())
        });
        let mut wanted: Vec<(bool, f64, u32)> = wanted
            .map(|(pid, process)| (process.is_top(now), process.cores, *pid))
            .collect();
        wanted.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(b.1.total_cmp(&a.1)));
        wanted.truncate(IO_READS_MAX);
        for (_, _, pid) in wanted {
            let counters = self.io_counters(pid);
            let previous = now
                .previous
                .map(|last| now.utc - (now.monotonic - last).as_secs_f64());
            if let Some(process) = self.processes.get_mut(&pid) {
                let started =
                    self.units.boot_time + process.start_ticks as f64 / self.units.user_hz;
                let started_now = previous.is_some_and(|previous| started >= previous);
                process.set_io(counters, started_now, now);
            }
        }
    }

    /// Reads the I/O counters of a process. `None` for processes of other users, unless the agent
    /// runs as root.
    fn io_counters(&self, pid: u32) -> Option<IoCounters> {
        let mut text = [0; FILE_BYTES];
        let length = self.proc.read(pid, "io", &mut text).ok()?;
        let io = ProcessIo::parse(&text[..length])?;
        Some(IoCounters {
            read: io.read_bytes,
            written: io.write_bytes,
        })
    }

    /// Reads the whole `status` file of a process.
    pub(super) fn status(&self, pid: u32) -> Vec<u8> {
        let mut text = vec![0; 8 * FILE_BYTES];
        let length = self.proc.read(pid, "status", &mut text).unwrap_or(0);
        text.truncate(length);
        text
    }
}
