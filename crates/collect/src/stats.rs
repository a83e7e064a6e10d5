//! What is known about the collectors while they run: states, costs, failures. Written by the
//! sampler's thread, read by `/status` and by the `agent` collector.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pegel_metric::Millis;
use serde::Serialize;

use crate::schedule::ScheduleCounts;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CollectorState {
    /// Publishes readings.
    Active,
    /// This node has no such thing.
    Absent,
    /// By choice, or above the agent's level.
    Disabled,
    /// Its source is there but cannot be read; tried again.
    Failed,
}

/// One collector, as `/status` shows it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CollectorStatus {
    pub name: &'static str,
    pub state: CollectorState,
    /// Why it failed.
    pub error: Option<String>,
    /// Since when it is in this state.
    pub since: Millis,
    /// What an absent collector looked for.
    pub looked_for: Option<String>,
    /// Seconds per pass, averaged over the last passes; of a collector that runs aside, its
    /// processor time.
    pub cost: f64,
    /// Series with a value in the last pass.
    pub series: u64,
    /// How often it turned to failed.
    pub failures: u64,
}

/// The figures of all collectors and of the schedule.
#[derive(Debug, Default)]
pub struct SamplerStats {
    late: AtomicU64,
    missed: AtomicU64,
    clock_steps: AtomicU64,
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

    /// Late and missed passes and clock steps since the start.
    pub fn schedule_counts(&self) -> ScheduleCounts {
        ScheduleCounts {
            late: self.late.load(Relaxed),
            missed: self.missed.load(Relaxed),
            clock_steps: self.clock_steps.load(Relaxed),
        }
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

    /// Only the sampler's thread writes, so that load and store need not be one step.
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

    /// `note` is the reason of a failure, or what an absent collector looked for.
    pub(crate) fn set_state(&self, state: CollectorState, at: Millis, note: Option<String>) {
        let mut condition = self.lock_state();
        if state == CollectorState::Failed && condition.state != CollectorState::Failed {
            self.failures.fetch_add(1, Relaxed);
        }
        if condition.state != state || condition.since == 0 {
            condition.since = at;
        }
        condition.state = state;
        condition.detail = note;
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

    /// The state, and the note that goes with it.
    pub(crate) fn state_and_detail(&self) -> (CollectorState, Option<String>) {
        let condition = self.lock_state();
        (condition.state, condition.detail.clone())
    }

    fn status(&self) -> CollectorStatus {
        let StateSince {
            state,
            since,
            detail: note,
        } = self.lock_state().clone();
        let (error, looked_for) = match state {
            CollectorState::Failed => (note, None),
            _ => (None, note),
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
        // A condition is replaced whole: it is right even if a holder panicked.
        self.state_since
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
