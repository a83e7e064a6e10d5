//! What is known about one process between passes, and the rates since its previous reading.

use std::sync::Arc;
use std::time::Duration;

use pegel_machine::ProcessStat;
use pegel_metric::{ProcessIoRates, ProcessRow, escape_unprintable};

use super::process_details::ProcessDetails;
use crate::proc_parse::label_value;

/// The longest interval between two readings of the details, in passes.
const DETAILS_INTERVAL_MAX: u64 = 64;
/// A process of this age, in seconds, has found its program, user and group, and its first I/O was
/// seen.
const SETTLED_AFTER: f64 = 60.0;

/// The units of the kernel, and the time of boot.
#[derive(Debug, Clone, Copy)]
pub(super) struct KernelUnits {
    pub user_hz: f64,
    pub page_bytes: u64,
    /// Seconds since 1970.
    pub boot_time: f64,
}

/// The time of a pass.
#[derive(Debug, Clone, Copy)]
pub(super) struct ScanTime {
    pub number: u64,
    pub monotonic: Duration,
    /// Seconds since 1970.
    pub utc: f64,
    /// The monotonic time of the previous pass; `None` in the first.
    pub previous: Option<Duration>,
}

#[derive(Debug)]
pub(super) struct TrackedProcess {
    /// Detects that the ID was reused.
    pub start_ticks: u64,
    pub comm: Arc<str>,
    pub state: u8,
    pub parent: u32,
    pub threads: u64,
    pub cpu_ticks: u64,
    child_faults: u64,
    /// Whether children ended since the previous reading: their I/O is added to its own.
    has_ended_children: bool,
    pub major_faults: u64,
    pub virtual_bytes: u64,
    pub resident_pages: u64,
    /// Since the previous reading.
    pub cores: f64,
    /// The time over which `cores` is averaged.
    elapsed: f64,
    read_at: Duration,
    pub io: Option<IoCounters>,
    /// Until when the I/O counters are known: when they were last read, or when the process was
    /// last found idle.
    io_known_at: Duration,
    /// Whether its I/O counters had changed when they were last read.
    did_io: bool,
    pub io_rates: Option<ProcessIoRates>,
    pub gpu_memory: Option<u64>,
    pub details: ProcessDetails,
    details_due: u64,
    details_interval: u64,
    /// It is among the top processes, or was until this pass.
    pub top_until: u64,
}

/// Bytes that a process transferred to and from devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IoCounters {
    pub read: u64,
    pub written: u64,
}

impl TrackedProcess {
    /// Starts to track a process. Its CPU time is averaged over the time since the previous pass if
    /// it started after that, otherwise over its life.
    pub(super) fn new(
        stat: &ProcessStat<'_>,
        units: &KernelUnits,
        now: &ScanTime,
    ) -> TrackedProcess {
        let started = units.boot_time + stat.start_ticks as f64 / units.user_hz;
        let life = (now.utc - started).max(0.0);
        let since_pass = now
            .previous
            .map(|previous| (now.monotonic - previous).as_secs_f64());
        let elapsed = since_pass.map_or(life, |since| life.max(since)).max(1.0);
        TrackedProcess {
            start_ticks: stat.start_ticks,
            comm: printable(stat.comm),
            state: stat.state,
            parent: stat.parent,
            threads: stat.threads,
            cpu_ticks: stat.cpu_ticks(),
            child_faults: stat.child_faults,
            has_ended_children: false,
            major_faults: stat.major_faults,
            virtual_bytes: stat.virtual_bytes,
            resident_pages: stat.resident_pages,
            cores: stat.cpu_ticks() as f64 / units.user_hz / elapsed,
            elapsed,
            read_at: now.monotonic,
            io: None,
            io_known_at: now.previous.unwrap_or(now.monotonic),
            did_io: false,
            io_rates: None,
            gpu_memory: None,
            details: ProcessDetails::default(),
            details_due: now.number,
            details_interval: if life > SETTLED_AFTER {
                DETAILS_INTERVAL_MAX
            } else {
                1
            },
            top_until: 0,
        }
    }

    /// Takes over a new reading of the same process. Returns the CPU ticks since the last one.
    pub(super) fn update(
        &mut self,
        stat: &ProcessStat<'_>,
        units: &KernelUnits,
        now: &ScanTime,
    ) -> u64 {
        let ticks = stat.cpu_ticks().saturating_sub(self.cpu_ticks);
        self.elapsed = (now.monotonic.saturating_sub(self.read_at))
            .as_secs_f64()
            .max(0.001);
        self.cores = ticks as f64 / units.user_hz / self.elapsed;
        self.read_at = now.monotonic;
        let comm = label_value(stat.comm);
        if *self.comm != *escape_unprintable(&comm) {
            // A program was started: everything about the process may be different.
            self.comm = printable(stat.comm);
            self.details_due = now.number;
            self.details_interval = 1;
        }
        self.state = stat.state;
        self.parent = stat.parent;
        self.threads = stat.threads;
        self.cpu_ticks = stat.cpu_ticks();
        self.has_ended_children = stat.child_faults != self.child_faults;
        self.child_faults = stat.child_faults;
        self.major_faults = stat.major_faults;
        self.virtual_bytes = stat.virtual_bytes;
        self.resident_pages = stat.resident_pages;
        // Counted again below if it did anything.
        self.io_rates = self.io.map(|_| ProcessIoRates::default());
        if !self.is_active() {
            self.io_known_at = now.monotonic;
        }
        ticks
    }

    /// Whether it was read in this pass.
    pub(super) fn was_read(&self, now: &ScanTime) -> bool {
        self.read_at == now.monotonic
    }

    /// Whether it used CPU time or did I/O before its last reading, or is about to.
    pub(super) fn is_active(&self) -> bool {
        let may_do_io = self.has_ended_children || self.did_io;
        self.cores > 0.0 || may_do_io || matches!(self.state, b'R' | b'D')
    }

    /// Whether it started recently.
    pub(super) fn is_young(&self, units: &KernelUnits, now: &ScanTime) -> bool {
        let started = units.boot_time + self.start_ticks as f64 / units.user_hz;
        now.utc - started < SETTLED_AFTER
    }

    pub(super) fn is_top(&self, now: &ScanTime) -> bool {
        self.top_until >= now.number
    }

    pub(super) fn are_details_due(&self, now: &ScanTime) -> bool {
        self.was_read(now) && now.number >= self.details_due
    }

    /// Stores details. Programs, users and groups change mostly right after a process starts.
    pub(super) fn set_details(&mut self, details: ProcessDetails, now: &ScanTime) {
        self.details = details;
        self.details_due = now.number + self.details_interval;
        self.details_interval = (2 * self.details_interval).min(DETAILS_INTERVAL_MAX);
    }

    /// Stores the I/O counters, read after [`TrackedProcess::update`]. `started_now`: the process
    /// started after the previous pass, so all of its I/O is recent.
    pub(super) fn set_io(&mut self, io: Option<IoCounters>, started_now: bool, now: &ScanTime) {
        let start = IoCounters {
            read: 0,
            written: 0,
        };
        let last = self.io.or(started_now.then_some(start));
        let elapsed = now.monotonic.saturating_sub(self.io_known_at);
        let elapsed = elapsed.as_secs_f64().max(0.001);
        self.io_rates = io.zip(last).map(|(io, last)| ProcessIoRates {
            read: io.read.saturating_sub(last.read) as f64 / elapsed,
            write: io.written.saturating_sub(last.written) as f64 / elapsed,
        });
        self.io = io;
        self.io_known_at = now.monotonic;
        self.did_io = self.io_rate() > 0.0;
    }

    /// Takes over the I/O of a child that ended, which the kernel has added to its counters: it was
    /// shown with the child.
    pub(super) fn inherit_io(&mut self, child: IoCounters) {
        if let Some(io) = &mut self.io {
            io.read = io.read.saturating_add(child.read);
            io.written = io.written.saturating_add(child.written);
        }
    }

    /// Returns bytes read and written per second.
    pub(super) fn io_rate(&self) -> f64 {
        self.io_rates.map_or(0.0, |rates| rates.read + rates.write)
    }

    pub(super) fn row(&self, pid: u32, units: &KernelUnits) -> ProcessRow {
        let details = &self.details;
        ProcessRow {
            pid,
            comm: self.comm.clone(),
            uid: details.uid,
            user: details.user.clone(),
            threads: self.threads,
            state: char::from(self.state),
            cpu: self.cores,
            memory: self.resident_pages.saturating_mul(units.page_bytes),
            io: self.io_rates,
            gpu_memory: self.gpu_memory,
            cgroup: details.cgroup.clone(),
            job: details.job.clone(),
            started: (units.boot_time + self.start_ticks as f64 / units.user_hz) as i64,
            command: details.command.clone(),
            owner: details.owner,
        }
    }
}

fn printable(comm: &[u8]) -> Arc<str> {
    escape_unprintable(&label_value(comm)).into()
}
