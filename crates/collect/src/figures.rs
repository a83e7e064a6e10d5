//! What is known about the collectors while they run: states, costs, failures. Written by the
//! sampler's thread, read by `/status` and by the `agent` collector.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pegel_metric::Millis;
use serde::Serialize;

use crate::schedule::Counts;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
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
    pub state: State,
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
pub struct Figures {
    late: AtomicU64,
    missed: AtomicU64,
    clock_steps: AtomicU64,
    collectors: Vec<CollectorFigures>,
}

#[derive(Debug)]
pub(crate) struct CollectorFigures {
    pub(crate) name: &'static str,
    nanos: AtomicU64,
    recent_nanos: AtomicU64,
    series: AtomicU64,
    failures: AtomicU64,
    condition: Mutex<Condition>,
}

#[derive(Debug, Clone)]
struct Condition {
    state: State,
    since: Millis,
    note: Option<String>,
}

impl Figures {
    pub(crate) fn new(names: impl Iterator<Item = &'static str>) -> Figures {
        Figures {
            collectors: names.map(CollectorFigures::new).collect(),
            ..Figures::default()
        }
    }

    pub(crate) fn set_counts(&self, counts: Counts) {
        self.late.store(counts.late, Relaxed);
        self.missed.store(counts.missed, Relaxed);
        self.clock_steps.store(counts.clock_steps, Relaxed);
    }

    /// Late and missed passes and clock steps since the start.
    pub fn counts(&self) -> Counts {
        Counts {
            late: self.late.load(Relaxed),
            missed: self.missed.load(Relaxed),
            clock_steps: self.clock_steps.load(Relaxed),
        }
    }

    pub(crate) fn collectors(&self) -> &[CollectorFigures] {
        &self.collectors
    }

    pub fn status(&self) -> Vec<CollectorStatus> {
        self.collectors
            .iter()
            .map(CollectorFigures::status)
            .collect()
    }

    pub fn active_count(&self) -> usize {
        self.collectors
            .iter()
            .filter(|c| c.state() == State::Active)
            .count()
    }
}

impl CollectorFigures {
    pub(crate) fn new(name: &'static str) -> CollectorFigures {
        CollectorFigures {
            name,
            nanos: AtomicU64::new(0),
            recent_nanos: AtomicU64::new(0),
            series: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            condition: Mutex::new(Condition {
                state: State::Disabled,
                since: 0,
                note: None,
            }),
        }
    }

    /// Only the sampler's thread writes, so that load and store need not be one step.
    pub(crate) fn passed(&self, cost: Duration, series: u64) {
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
    pub(crate) fn turned(&self, state: State, at: Millis, note: Option<String>) {
        let mut condition = self.condition();
        if state == State::Failed && condition.state != State::Failed {
            self.failures.fetch_add(1, Relaxed);
        }
        if condition.state != state || condition.since == 0 {
            condition.since = at;
        }
        condition.state = state;
        condition.note = note;
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.nanos.load(Relaxed) as f64 / 1e9
    }

    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Relaxed)
    }

    pub(crate) fn state(&self) -> State {
        self.condition().state
    }

    /// The state, and the note that goes with it.
    pub(crate) fn condition_now(&self) -> (State, Option<String>) {
        let condition = self.condition();
        (condition.state, condition.note.clone())
    }

    fn status(&self) -> CollectorStatus {
        let Condition { state, since, note } = self.condition().clone();
        let (error, looked_for) = match state {
            State::Failed => (note, None),
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

    fn condition(&self) -> MutexGuard<'_, Condition> {
        // A condition is replaced whole: it is right even if a holder panicked.
        self.condition
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
