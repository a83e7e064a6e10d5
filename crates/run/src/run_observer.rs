//! Collects what the summary of a run contains besides system calls: resource usage and MPI calls.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use libc::pid_t;

use crate::mpi_lanes::{MpiLanes, MpiSummary};
use crate::resource_usage::{ExitUsage, ResourceUsage, UsageSampler};

/// The shortest and the longest interval between samples. In between they are a twentieth of the
/// time since the start, so that the part of a run after its last sample is small.
const INTERVAL_MIN: Duration = Duration::from_millis(20);
const INTERVAL_MAX: Duration = Duration::from_secs(2);

/// Observes a program from the helper process.
#[derive(Debug)]
pub(crate) struct RunObserver {
    usage: UsageSampler,
    mpi: Option<MpiLanes>,
    started: Instant,
    next_sample: Instant,
}

impl RunObserver {
    pub(crate) fn new(root: pid_t, mpi: Option<MpiLanes>) -> RunObserver {
        let started = Instant::now();
        RunObserver {
            usage: UsageSampler::new(root),
            mpi,
            started,
            next_sample: started + INTERVAL_MIN,
        }
    }

    /// Returns a descriptor that is readable when [`RunObserver::tick`] should be called early.
    pub(crate) fn changes(&self) -> Option<BorrowedFd<'_>> {
        self.mpi.as_ref()?.changes()
    }

    /// Returns the time until the next sample.
    pub(crate) fn wait_time(&self) -> Duration {
        self.next_sample.saturating_duration_since(Instant::now())
    }

    /// Opens new lanes, and takes a sample if one is due. Called often.
    pub(crate) fn tick(&mut self) {
        if let Some(mpi) = &mut self.mpi {
            mpi.update();
        }
        let now = Instant::now();
        if now >= self.next_sample {
            self.usage.sample();
            let interval = (now - self.started) / 20;
            self.next_sample = now + interval.clamp(INTERVAL_MIN, INTERVAL_MAX);
        }
    }

    /// Records what is lost when a process has exited. Called while it is still there.
    pub(crate) fn at_exit_of(&mut self, pid: pid_t) {
        self.usage.record_peak_of(pid);
        if let Some(mpi) = &mut self.mpi {
            mpi.update();
        }
    }

    /// Returns the totals at the end of the program.
    pub(crate) fn finish(
        &mut self,
        exit: Option<ExitUsage>,
    ) -> (ResourceUsage, Option<MpiSummary>) {
        let usage = self.usage.finish(exit);
        (usage, self.mpi.as_mut().map(MpiLanes::summary))
    }
}
