//! The counts of system calls: in a lane, which the agent reads, and in memory for the summary.
//!
//! Called by the tracer for every call, or with sums read from the kernel. Without a lane (no
//! directory, no space) the program runs on, and the summary is still complete.
//!
//! The time of a call that takes long reaches the lane while it runs: a reading publishes the time
//! of completed calls plus that of running ones. The larger of this and what was published before
//! counts, so that the counter never falls, and a call that returns adds only what is missing.

use std::collections::HashMap;

use pegel_lane::{Calls, Counter, Handle, LaneKind, LaneSeriesSpec, ProcessLanes};

use crate::syscall_names::{self, ByteDirection};

/// The totals of one system call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CallCount {
    pub hits: u64,
    pub bytes: u64,
    pub nanos: u64,
    pub errors: u64,
}

impl CallCount {
    /// Returns what was added since an earlier reading.
    pub(crate) fn since(&self, earlier: &CallCount) -> CallCount {
        CallCount {
            hits: self.hits.wrapping_sub(earlier.hits),
            bytes: self.bytes.wrapping_sub(earlier.bytes),
            nanos: self.nanos.wrapping_sub(earlier.nanos),
            errors: self.errors.wrapping_sub(earlier.errors),
        }
    }
}

/// One system call by name, with its totals.
#[derive(Debug, Clone)]
pub struct CountedCall {
    pub name: String,
    pub count: CallCount,
    /// Whether the call reads (true) or writes (false); None for calls that transfer no bytes.
    pub reads: Option<bool>,
}

#[derive(Debug)]
struct SyscallSeries {
    name: String,
    direction: Option<ByteDirection>,
    calls: Calls,
    /// Created at the first error.
    errors: Option<Counter>,
    /// Calls that returned; the time includes calls that their thread's end interrupted.
    count: CallCount,
    /// The time of running calls, only during a reading.
    running_nanos: u64,
    /// The time that was added to the lane.
    published_nanos: u64,
}

/// The counts of all calls of a program and its children.
#[derive(Debug)]
pub(crate) struct SyscallTally {
    home: &'static ProcessLanes,
    /// Native calls, indexed by number.
    native: Vec<Option<SyscallSeries>>,
    /// Calls of 32-bit programs, and numbers beyond [`NATIVE_MAX`].
    compat: HashMap<(u32, u64), SyscallSeries>,
}

/// The size of the indexed table; larger numbers share one entry per architecture.
const NATIVE_MAX: u64 = 1024;

impl SyscallTally {
    /// Creates a tally in the lanes of this process.
    pub(crate) fn new() -> SyscallTally {
        SyscallTally::in_home(pegel_lane::process_lanes())
    }

    fn in_home(home: &'static ProcessLanes) -> SyscallTally {
        SyscallTally {
            home,
            native: Vec::new(),
            compat: HashMap::new(),
        }
    }

    /// Records one call that returned.
    #[inline]
    pub(crate) fn record(&mut self, arch: u32, number: u64, result: i64, nanos: u64) {
        let home = self.home;
        let slot = self.slot(arch, number);
        let is_error = is_error(result);
        let bytes = match slot.direction {
            Some(_) if !is_error => result.unsigned_abs(),
            _ => 0,
        };
        slot.count.hits += 1;
        slot.count.bytes += bytes;
        slot.count.nanos += nanos;
        let unpublished = slot.take_unpublished();
        slot.calls.add(bytes, unpublished);
        if is_error {
            slot.add_errors(home, 1);
        }
    }

    /// Records a call that does not return, because it ends its thread.
    pub(crate) fn record_no_return(&mut self, arch: u32, number: u64) {
        self.record(arch, number, 0, 0);
    }

    /// Records the time of a call that did not return because its thread ended.
    pub(crate) fn record_unfinished(&mut self, arch: u32, number: u64, nanos: u64) {
        let slot = self.slot(arch, number);
        slot.count.nanos += nanos;
        slot.publish_time();
    }

    /// Publishes the time of calls that are running: architecture, number and time since the start
    /// of each.
    pub(crate) fn publish_running(&mut self, running: impl Iterator<Item = (u32, u64, u64)>) {
        for (arch, number, nanos) in running {
            self.slot(arch, number).running_nanos += nanos;
        }
        let slots = self.native.iter_mut().flatten();
        for slot in slots.chain(self.compat.values_mut()) {
            if slot.running_nanos > 0 {
                slot.publish_time();
                slot.running_nanos = 0;
            }
        }
    }

    /// Adds calls that were counted elsewhere.
    pub(crate) fn add(&mut self, arch: u32, number: u64, more: CallCount) {
        let home = self.home;
        let slot = self.slot(arch, number);
        let bytes = if slot.direction.is_some() {
            more.bytes
        } else {
            0
        };
        slot.count.hits += more.hits;
        slot.count.bytes += bytes;
        slot.count.nanos += more.nanos;
        let unpublished = slot.take_unpublished();
        slot.calls.add_many(more.hits, bytes, unpublished);
        if more.errors > 0 {
            slot.add_errors(home, more.errors);
        }
    }

    fn slot(&mut self, arch: u32, number: u64) -> &mut SyscallSeries {
        let home = self.home;
        if arch == syscall_names::ARCH_NATIVE && number < NATIVE_MAX {
            let index = number as usize;
            if self.native.len() <= index {
                self.native.resize_with(index + 1, || None);
            }
            return self.native[index]
                .get_or_insert_with(|| SyscallSeries::new(home, arch, number));
        }
        // Invalid numbers share one entry, so that a program that tries them all cannot exhaust the
        // memory.
        let number = number.min(NATIVE_MAX);
        let slot = self.compat.entry((arch, number));
        slot.or_insert_with(|| SyscallSeries::new(home, arch, number))
    }

    /// Returns the calls that were made, most frequent first.
    pub(crate) fn counted_calls(&self) -> Vec<CountedCall> {
        let slots = self.native.iter().flatten().chain(self.compat.values());
        let mut all: Vec<CountedCall> = slots
            .map(|slot| CountedCall {
                name: slot.name.clone(),
                count: slot.count,
                reads: slot.direction.map(|flow| flow == ByteDirection::In),
            })
            .collect();
        all.sort_by(|a, b| (b.count.hits, &a.name).cmp(&(a.count.hits, &b.name)));
        all
    }
}

impl SyscallSeries {
    fn new(home: &'static ProcessLanes, arch: u32, number: u64) -> SyscallSeries {
        let name = syscall_names::syscall_name(arch, number);
        let labels = [("scall", name.as_str())];
        let spec = LaneSeriesSpec {
            help: "System calls of programs under pegel run",
            labels: &labels,
            ..LaneSeriesSpec::new(LaneKind::Calls, "strace")
        };
        // Without a lane the summary still has the counts.
        let calls = Calls::create_in(home, &spec).unwrap_or_else(|_| Calls::none());
        SyscallSeries {
            direction: syscall_names::byte_direction(&name),
            calls,
            errors: None,
            count: CallCount::default(),
            running_nanos: 0,
            published_nanos: 0,
            name,
        }
    }

    /// Returns the time that is not in the lane yet, and marks it as published.
    #[inline]
    fn take_unpublished(&mut self) -> u64 {
        let total = self.count.nanos + self.running_nanos;
        let unpublished = total.saturating_sub(self.published_nanos);
        self.published_nanos += unpublished;
        unpublished
    }

    fn publish_time(&mut self) {
        let unpublished = self.take_unpublished();
        self.calls.add_many(0, 0, unpublished);
    }

    fn add_errors(&mut self, home: &'static ProcessLanes, more: u64) {
        self.count.errors += more;
        let counter = self.errors.get_or_insert_with(|| {
            let labels = [("scall", self.name.as_str())];
            let spec = LaneSeriesSpec {
                help: "System calls of programs under pegel run that returned an error.",
                labels: &labels,
                ..LaneSeriesSpec::new(LaneKind::Counter, "strace_errors_total")
            };
            Counter::create_in(home, &spec).unwrap_or_else(|_| Counter::none())
        });
        counter.add(more);
    }
}

/// Returns whether a result is an error: the kernel returns -errno, from -4095 to -1.
fn is_error(result: i64) -> bool {
    (-4095..0).contains(&result)
}

/// Counts a launch of this command.
pub(crate) fn count_launch() {
    let labels = [("operation", "exec")];
    let spec = LaneSeriesSpec {
        help: "Number of launch with the tau_metric_proxy_run command",
        labels: &labels,
        ..LaneSeriesSpec::new(LaneKind::Counter, "tau_metric_proxy_run_total")
    };
    if let Ok(counter) = Counter::create(&spec) {
        counter.add(1);
    }
}

#[cfg(test)]
mod tests {
    use pegel_testkit::TempDir;

    use super::*;

    #[test]
    fn bytes_are_those_of_io_calls_that_worked() {
        let dir = TempDir::new();
        let mut tally = SyscallTally::in_home(ProcessLanes::in_directory(dir.path()));
        let arch = syscall_names::ARCH_NATIVE;
        let read = libc::SYS_read.unsigned_abs();
        let lseek = libc::SYS_lseek.unsigned_abs();
        tally.record(arch, read, 100, 5);
        tally.record(arch, read, -11, 7);
        tally.record(arch, read, 0, 1);
        tally.record(arch, lseek, 4096, 1);
        let counted = tally.counted_calls();
        assert_eq!(counted.len(), 2);
        assert_eq!(counted[0].name, "read");
        let expected = CallCount {
            hits: 3,
            bytes: 100,
            nanos: 13,
            errors: 1,
        };
        assert_eq!(counted[0].count, expected);
        assert_eq!((counted[1].count.bytes, counted[1].reads), (0, None));
    }

    /// Returns the nanoseconds in the lanes of a directory, and checks that they did not fall.
    fn published(dir: &TempDir, before: &mut u64) -> u64 {
        let mut sum = 0;
        for lane in &mut pegel_testkit::open_ready_lanes(dir.path()) {
            let mut buffer = Vec::new();
            let view = lane.read(&mut buffer).expect("readable");
            for (_, value) in view.iter() {
                if let Some(pegel_lane::reader::LaneValue::Calls { nanos, .. }) = value {
                    sum += nanos;
                }
            }
        }
        assert!(sum >= *before, "{sum} after {before}");
        *before = sum;
        sum
    }

    #[test]
    fn running_calls_are_published_and_never_counted_twice() {
        let dir = TempDir::new();
        let mut tally = SyscallTally::in_home(ProcessLanes::in_directory(dir.path()));
        let arch = syscall_names::ARCH_NATIVE;
        let read = libc::SYS_read.unsigned_abs();
        let mut last = 0;
        tally.publish_running([(arch, read, 100)].into_iter());
        assert_eq!(published(&dir, &mut last), 100);
        // Two threads in the same call, one of which returns.
        tally.publish_running([(arch, read, 200), (arch, read, 50)].into_iter());
        assert_eq!(published(&dir, &mut last), 250);
        tally.record(arch, read, 1, 60);
        assert_eq!(published(&dir, &mut last), 250);
        tally.publish_running([(arch, read, 300)].into_iter());
        assert_eq!(published(&dir, &mut last), 360);
        // The other one returns after a last reading.
        tally.record(arch, read, 1, 310);
        assert_eq!(published(&dir, &mut last), 370);
        assert_eq!(tally.counted_calls()[0].count.nanos, 370);
        // A thread that ends inside a call has spent the time; the next call adds all of its own.
        tally.publish_running([(arch, read, 500)].into_iter());
        tally.record_unfinished(arch, read, 550);
        assert_eq!(published(&dir, &mut last), 920);
        tally.record(arch, read, 1, 80);
        assert_eq!(published(&dir, &mut last), 1000);
        assert_eq!(tally.counted_calls()[0].count.hits, 3);
    }

    #[test]
    fn addresses_are_no_errors() {
        assert!(!is_error(0x7fff_ffff_f000));
        assert!(!is_error(i64::MIN));
        assert!(is_error(-1) && is_error(-4095) && !is_error(-4096));
    }

    #[test]
    fn a_program_that_tries_every_number_does_not_fill_the_memory() {
        let dir = TempDir::new();
        let mut tally = SyscallTally::in_home(ProcessLanes::in_directory(dir.path()));
        for number in 0..100_000 {
            tally.record(syscall_names::ARCH_NATIVE, number, -38, 1);
            tally.record(0x4000_0003, number, -38, 1);
        }
        assert!(tally.counted_calls().len() <= 2 * NATIVE_MAX as usize + 2);
        let hits: u64 = tally
            .counted_calls()
            .iter()
            .map(|call| call.count.hits)
            .sum();
        assert_eq!(hits, 200_000);
    }
}
