//! Run-time statistics of the collectors and the schedule: states, costs, failures. Written by the
//! sampler thread, read by `/status` and by the `agent` collector. Readers never block a pass for
//! longer than copying one state.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use pegel_metric::{Clock, Millis};
use serde::Serialize;

use crate::schedule::ScheduleCounts;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CollectorState {
    /// Publishes values.
    Active,
    /// The node has no such source.
    Absent,
    /// Disabled by the configuration, or above the agent's level.
    Disabled,
    /// Its source exists but cannot be read; retried.
    Failed,
}

/// The status of one collector, as `/status` shows it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CollectorStatus {
    pub name: &'static str,
    pub state: CollectorState,
    /// The reason of a failure.
    pub error: Option<String>,
    /// When it entered this state.
    pub since: Millis,
    /// The path that an absent collector looked for.
    pub looked_for: Option<String>,
    /// Seconds per pass, averaged over the last passes; CPU time for a threaded collector.
    pub cost: f64,
    /// Series with a value in the last pass.
    pub series: u64,
    /// How often it changed to failed.
    pub failures: u64,
}

/// The statistics of all collectors and of the schedule.
#[derive(Debug, Default)]
pub struct SamplerStats {
    late: AtomicU64,
    missed: AtomicU64,
    clock_steps: AtomicU64,
    /// Passes of threaded collectors that were requested in time.
    thread_late: AtomicU64,
    thread_missed: AtomicU64,
    collectors: Vec<CollectorStats>,
}

#[derive(Debug)]
pub(crate) struct CollectorStats {
    pub(crate) name: &'static str,
    nanos: AtomicU64,
    recent_nanos: AtomicU64,
    series: AtomicU64,
    failures: AtomicU64,
    state_since: Mutex<StateSince>,
}

#[derive(Debug, Clone)]
struct StateSince {
    state: CollectorState,
    since: Millis,
    detail: Option<String>,
}

impl SamplerStats {
    pub(crate) fn new(names: impl Iterator<Item = &'static str>) -> SamplerStats {
        SamplerStats {
            collectors: names.map(CollectorStats::new).collect(),
            ..SamplerStats::default()
        }
    }

    pub(crate) fn set_schedule_counts(&self, counts: ScheduleCounts) {
        self.late.store(counts.late, Relaxed);
        self.missed.store(counts.missed, Relaxed);
        self.clock_steps.store(counts.clock_steps, Relaxed);
    }

    /// Returns late and missed passes and clock steps since the start.
    pub fn schedule_counts(&self) -> ScheduleCounts {
        ScheduleCounts {
            late: self.late.load(Relaxed) + self.thread_late.load(Relaxed),
            missed: self.missed.load(Relaxed) + self.thread_missed.load(Relaxed),
            clock_steps: self.clock_steps.load(Relaxed),
        }
    }

    /// Counts a pass that a thread ran more than half an interval after the request.
    pub(crate) fn count_late_thread(&self) {
        self.thread_late.fetch_add(1, Relaxed);
    }

    /// Counts a requested pass that a thread did not complete before the next one was due.
    pub(crate) fn count_missed_thread(&self) {
        self.thread_missed.fetch_add(1, Relaxed);
    }

    pub(crate) fn collectors(&self) -> &[CollectorStats] {
        &self.collectors
    }

    pub fn status(&self) -> Vec<CollectorStatus> {
        self.collectors.iter().map(CollectorStats::status).collect()
    }

    pub fn active_count(&self) -> usize {
        self.collectors
            .iter()
            .filter(|c| c.state() == CollectorState::Active)
            .count()
    }
}

impl CollectorStats {
    pub(crate) fn new(name: &'static str) -> CollectorStats {
        CollectorStats {
            name,
            nanos: AtomicU64::new(0),
            recent_nanos: AtomicU64::new(0),
            series: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            state_since: Mutex::new(StateSince {
                state: CollectorState::Disabled,
                since: 0,
                detail: None,
            }),
        }
    }

    /// Records cost and series count of a pass. Only the sampler thread writes, so load and store
    /// need not be atomic together.
    pub(crate) fn record_pass(&self, cost: Duration, series: u64) {
        let nanos = u64::try_from(cost.as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos, Relaxed);
        let recent = self.recent_nanos.load(Relaxed);
        let next = if recent == 0 {
            nanos
        } else {
            recent - recent / 16 + nanos / 16
        };
        self.recent_nanos.store(next, Relaxed);
        self.series.store(series, Relaxed);
    }

    /// Changes the state. `detail` is the reason of a failure, or the path that an absent collector
    /// looked for. Returns false, and allocates nothing, if both are the same as before.
    pub(crate) fn set_state(
        &self,
        state: CollectorState,
        detail: Option<&str>,
        clock: &dyn Clock,
    ) -> bool {
        let mut current = self.lock_state();
        let is_same_state = current.state == state;
        if is_same_state && current.detail.as_deref() == detail {
            return false;
        }
        if !is_same_state {
            current.since = clock.utc();
            current.state = state;
            self.failures
                .fetch_add(u64::from(state == CollectorState::Failed), Relaxed);
        }
        current.detail = detail.map(str::to_owned);
        true
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.nanos.load(Relaxed) as f64 / 1e9
    }

    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Relaxed)
    }

    pub(crate) fn state(&self) -> CollectorState {
        self.lock_state().state
    }

    /// Returns the state and its detail.
    pub(crate) fn state_and_detail(&self) -> (CollectorState, Option<String>) {
        let current = self.lock_state();
        (current.state, current.detail.clone())
    }

    fn status(&self) -> CollectorStatus {
        let StateSince {
            state,
            since,
            detail,
        } = self.lock_state().clone();
        let (error, looked_for) = match state {
            CollectorState::Failed => (detail, None),
            _ => (None, detail),
        };
        CollectorStatus {
            name: self.name,
            state,
            error,
            since,
            looked_for,
            cost: self.recent_nanos.load(Relaxed) as f64 / 1e9,
            series: self.series.load(Relaxed),
            failures: self.failures(),
        }
    }

    fn lock_state(&self) -> MutexGuard<'_, StateSince> {
        self.state_since.lock()
    }
}
