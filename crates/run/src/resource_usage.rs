//! CPU time, memory and I/O of a program and its descendants, for the summary at its end.
//!
//! The kernel adds the usage of a process to that of its parent when the parent waits for it, so
//! the totals of the first process are complete when it has exited. They are read then if its exit
//! is held back, and sampled from `/proc` while it runs: a process that cannot be held is gone
//! before its totals can be read, and descendants that no process waits for are in samples only.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use libc::pid_t;

use crate::process::{self, ProcessStatus};

/// The most processes of a program that are sampled.
const PROCESSES_MAX: usize = 4096;
/// How much the wrapper may grow between its measurement and its exec.
const WRAPPER_GROWTH: u64 = 1 << 20;

/// What a program and its descendants used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ResourceUsage {
    pub user: Duration,
    pub system: Duration,
    /// Peak resident memory of the largest process; None if it ended before it could be read.
    pub peak_memory: Option<u64>,
    /// None if the kernel does not account I/O or does not permit reading it.
    pub io: Option<IoBytes>,
}

/// Bytes of a program's I/O.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IoBytes {
    /// Passed to read and write calls, whatever was behind them.
    pub read: u64,
    pub written: u64,
    /// Fetched from and sent to storage.
    pub storage_read: u64,
    pub storage_written: u64,
}

/// The usage of an exited process and the children it waited for, as the kernel reports it to
/// wait4(2).
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExitUsage {
    user: Duration,
    system: Duration,
    /// Of the largest process; includes the process before its exec.
    peak_memory: u64,
    /// Of the process itself since its exec; None if unknown.
    own_peak_memory: Option<u64>,
}

impl ExitUsage {
    /// Adds the peak memory of the process itself, which can be read only before it has exited.
    pub(crate) fn with_peak_memory(self, own_peak_memory: Option<u64>) -> ExitUsage {
        ExitUsage {
            own_peak_memory,
            ..self
        }
    }
}

impl From<&libc::rusage> for ExitUsage {
    fn from(usage: &libc::rusage) -> ExitUsage {
        let time = |time: libc::timeval| {
            Duration::from_secs(time.tv_sec.unsigned_abs())
                + Duration::from_micros(time.tv_usec.unsigned_abs())
        };
        ExitUsage {
            user: time(usage.ru_utime),
            system: time(usage.ru_stime),
            peak_memory: usage.ru_maxrss.unsigned_abs() * 1024,
            own_peak_memory: None,
        }
    }
}

impl IoBytes {
    fn of(pid: pid_t) -> Option<IoBytes> {
        IoBytes::parse(&fs::read_to_string(format!("/proc/{pid}/io")).ok()?)
    }

    fn parse(text: &str) -> Option<IoBytes> {
        let field = |name: &str| {
            let mut lines = text.lines();
            let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            value?.parse().ok()
        };
        Some(IoBytes {
            read: field("rchar")?,
            written: field("wchar")?,
            storage_read: field("read_bytes")?,
            storage_written: field("write_bytes")?,
        })
    }

    fn combine(self, other: IoBytes, with: impl Fn(u64, u64) -> u64) -> IoBytes {
        IoBytes {
            read: with(self.read, other.read),
            written: with(self.written, other.written),
            storage_read: with(self.storage_read, other.storage_read),
            storage_written: with(self.storage_written, other.storage_written),
        }
    }
}

/// The CPU time of a process and the children it waited for, in clock ticks.
#[derive(Debug, Clone, Copy, Default)]
struct CpuTicks {
    user: u64,
    system: u64,
    /// When the process started: detects a reused process ID.
    start: u64,
}

impl CpuTicks {
    fn of(pid: pid_t) -> Option<CpuTicks> {
        CpuTicks::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(stat: &str) -> Option<CpuTicks> {
        // The name is in parentheses and may contain any character.
        let (_, behind) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = behind.split_ascii_whitespace().collect();
        let field = |index: usize| -> Option<u64> { fields.get(index)?.parse().ok() };
        Some(CpuTicks {
            user: field(11)? + field(13)?,
            system: field(12)? + field(14)?,
            start: field(19)?,
        })
    }
}

/// Samples the usage of a process and its descendants.
#[derive(Debug)]
pub(crate) struct UsageSampler {
    root: pid_t,
    /// At the start: the wrapper's own, which is not the program's.
    initial: CpuTicks,
    initial_io: IoBytes,
    initial_peak: u64,
    wrapper_file: Option<(u64, u64)>,
    /// The largest values seen.
    seen: ResourceUsage,
}

impl UsageSampler {
    /// Starts with the present usage of a process as zero.
    pub(crate) fn new(root: pid_t) -> UsageSampler {
        let own = executable_of("self");
        // A wrapper executes the program later; an attached process runs already.
        let wrapper_file = own.filter(|own| executable_of(&root.to_string()) == Some(*own));
        UsageSampler {
            root,
            initial: CpuTicks::of(root).unwrap_or_default(),
            initial_io: IoBytes::of(root).unwrap_or_default(),
            initial_peak: wrapper_file.map_or(0, |_| peak_memory_of(root).unwrap_or(0)),
            wrapper_file,
            seen: ResourceUsage::default(),
        }
    }

    /// Reads the usage of the processes that run now.
    pub(crate) fn sample(&mut self) {
        let mut ticks = CpuTicks::default();
        let mut io = None;
        for pid in self.processes() {
            let Some(own) = CpuTicks::of(pid) else {
                continue;
            };
            if pid == self.root && own.start != self.initial.start {
                return;
            }
            ticks.user += own.user;
            ticks.system += own.system;
            if let Some(own) = IoBytes::of(pid) {
                io = Some(
                    io.unwrap_or(IoBytes::default())
                        .combine(own, u64::saturating_add),
                );
            }
            self.record_peak_of(pid);
        }
        self.record(ticks, io);
    }

    /// Records the peak memory of a process, which is gone once it has exited.
    pub(crate) fn record_peak_of(&mut self, pid: pid_t) {
        // Before its exec, the memory is the wrapper's.
        let is_wrapper = self.wrapper_file.is_some()
            && pid == self.root
            && executable_of(&pid.to_string()) == self.wrapper_file;
        if !is_wrapper {
            self.record_peak(peak_memory_of(pid));
        }
    }

    /// Returns the usage at the end: of the first process with `exit`, or from the last sample.
    pub(crate) fn finish(&mut self, exit: Option<ExitUsage>) -> ResourceUsage {
        // The process may still exist as a zombie, whose totals include its children.
        let last = CpuTicks::of(self.root).filter(|ticks| ticks.start == self.initial.start);
        if let Some(ticks) = last {
            self.record(ticks, IoBytes::of(self.root));
        }
        let Some(exit) = exit else {
            return self.seen;
        };
        let initial = (
            ticks_time(self.initial.user),
            ticks_time(self.initial.system),
        );
        self.seen.user = self.seen.user.max(exit.user.saturating_sub(initial.0));
        self.seen.system = self.seen.system.max(exit.system.saturating_sub(initial.1));
        let is_wrapper = exit.peak_memory <= self.initial_peak + WRAPPER_GROWTH;
        self.record_peak(Some(exit.peak_memory).filter(|_| !is_wrapper));
        self.record_peak(exit.own_peak_memory);
        self.seen
    }

    fn record(&mut self, ticks: CpuTicks, io: Option<IoBytes>) {
        let user = ticks_time(ticks.user.saturating_sub(self.initial.user));
        let system = ticks_time(ticks.system.saturating_sub(self.initial.system));
        self.seen.user = self.seen.user.max(user);
        self.seen.system = self.seen.system.max(system);
        let io = io.map(|io| io.combine(self.initial_io, u64::saturating_sub));
        self.seen.io = match (self.seen.io, io) {
            (Some(seen), Some(io)) => Some(seen.combine(io, u64::max)),
            (seen, io) => seen.or(io),
        };
    }

    fn record_peak(&mut self, peak: Option<u64>) {
        self.seen.peak_memory = self.seen.peak_memory.max(peak);
    }

    /// Returns the first process and its descendants.
    fn processes(&self) -> Vec<pid_t> {
        let mut found = vec![self.root];
        let mut known = HashSet::from([self.root]);
        let mut next = 0;
        while let Some(&pid) = found.get(next) {
            next += 1;
            for thread in process::threads(pid) {
                let path = format!("/proc/{pid}/task/{thread}/children");
                let children = fs::read_to_string(path).unwrap_or_default();
                for child in children.split_ascii_whitespace() {
                    if let Ok(child) = child.parse()
                        && found.len() < PROCESSES_MAX
                        && known.insert(child)
                    {
                        found.push(child);
                    }
                }
            }
        }
        found
    }
}

/// Returns the peak resident memory of a process since its exec.
pub(crate) fn peak_memory_of(pid: pid_t) -> Option<u64> {
    let kilobytes = *ProcessStatus::of(pid).numbers("VmHWM").first()?;
    Some(u64::from(kilobytes) * 1024)
}

/// Returns device and inode of the program that a process runs.
fn executable_of(process: &str) -> Option<(u64, u64)> {
    let file = fs::metadata(format!("/proc/{process}/exe")).ok()?;
    Some((file.dev(), file.ino()))
}

fn ticks_time(ticks: u64) -> Duration {
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    Duration::from_secs_f64(ticks as f64 / per_second as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_proc_are_read() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4 9 9 9 9 10 20 3 4 20 0 1 0 4711 5 6";
        let ticks = CpuTicks::parse(stat).expect("complete");
        assert_eq!((ticks.user, ticks.system, ticks.start), (13, 24, 4711));
        assert!(CpuTicks::parse("7 (a) S 1").is_none());
        let io = "rchar: 1\nwchar: 2\nsyscr: 9\nsyscw: 9\nread_bytes: 3\nwrite_bytes: 4\n\
                  cancelled_write_bytes: 9\n";
        let expected = IoBytes {
            read: 1,
            written: 2,
            storage_read: 3,
            storage_written: 4,
        };
        assert_eq!(IoBytes::parse(io), Some(expected));
        assert_eq!(IoBytes::parse("rchar: 1\n"), None);
    }

    #[test]
    fn usage_never_falls_and_the_peak_before_exec_is_left_out() {
        let mut sampler = UsageSampler::new(std::process::id().cast_signed());
        sampler.initial_peak = 100 << 20;
        let usage = |seconds, megabytes: u64| ExitUsage {
            user: Duration::from_secs(seconds),
            system: Duration::ZERO,
            peak_memory: megabytes << 20,
            own_peak_memory: None,
        };
        let base = ticks_time(sampler.initial.user);
        assert_eq!(sampler.finish(Some(usage(3600, 100))).peak_memory, None);
        let last = sampler.finish(Some(usage(1800, 150)));
        assert_eq!(last.user, Duration::from_secs(3600) - base);
        assert_eq!(last.peak_memory, Some(150 << 20));
    }

    #[test]
    fn descendants_are_included() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "sleep 100 & wait"])
            .spawn()
            .expect("a shell");
        let sampler = UsageSampler::new(child.id().cast_signed());
        let processes = pegel_testkit::eventually("a child of the shell", || {
            let processes = sampler.processes();
            (processes.len() == 2)
                .then_some(processes.clone())
                .ok_or(processes)
        });
        for pid in processes.into_iter().rev() {
            // SAFETY: passes integers only; the shell is not reaped yet and its child is alive.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        child.wait().expect("ended");
    }
}
