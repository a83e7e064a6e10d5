//! The thread of one pull input: when it is read, and what is recorded about it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use pegel_metric::{DropReason, Input, Millis};

use super::pull_context::{AddedLabels, PullContext, PullCounts};
use super::settings::{ConfiguredInput, PullSchedule};
use super::status::{PullState, PullStatus};
use super::{OnceSink, PARTS_MAX, PullError, PullReader, SwitchError};
use crate::Ingest;
use crate::senders::Sender;

/// How often the values of an input that is read once are stored again: queries look back five
/// minutes.
const ONCE_REPEAT_INTERVAL: Duration = Duration::from_secs(60);

/// One configured input.
pub(crate) struct PullInput {
    schedule: PullSchedule,
    ingest: Arc<Ingest>,
    sender: Arc<Sender>,
    labels: AddedLabels,
    once: OnceSink,
    reader: Mutex<Box<dyn PullReader>>,
    has_parts: bool,
    state: Mutex<PullInputState>,
    wake: Condvar,
    stop: Arc<AtomicBool>,
}

struct PullInputState {
    status: PullStatus,
    is_enabled: bool,
    /// Parts that were switched on or off by a command.
    switches: BTreeMap<String, bool>,
}

impl fmt::Debug for PullInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PullInput")
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}

impl PullInput {
    pub(crate) fn new(input: ConfiguredInput, ingest: Arc<Ingest>, once: OnceSink) -> PullInput {
        let ConfiguredInput {
            kind,
            name,
            schedule,
            labels,
            reader,
        } = input;
        let interval = schedule.interval.duration().as_secs_f64();
        let status = PullStatus {
            kind,
            interval,
            current_interval: interval,
            ..PullStatus::default()
        };
        PullInput {
            sender: ingest.sender(Input::Pull, &format!("input {name}")),
            labels: AddedLabels::new(labels),
            state: Mutex::new(PullInputState {
                status: PullStatus { name, ..status },
                is_enabled: schedule.enabled,
                switches: BTreeMap::new(),
            }),
            schedule,
            ingest,
            once,
            has_parts: reader.has_parts(),
            reader: Mutex::new(reader),
            wake: Condvar::new(),
            stop: Arc::default(),
        }
    }

    pub(crate) fn name(&self) -> String {
        self.state.lock().status.name.clone()
    }

    pub(crate) fn status(&self) -> PullStatus {
        let state = self.state.lock();
        let mut status = state.status.clone();
        if !state.is_enabled {
            status.state = PullState::Disabled;
            status.next_attempt = None;
        }
        status
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        drop(self.state.lock());
        self.wake.notify_all();
    }

    /// Switches the input on or off. An attempt in progress ends normally.
    pub(crate) fn set_enabled(&self, is_enabled: bool) {
        self.state.lock().is_enabled = is_enabled;
        self.wake.notify_all();
    }

    pub(crate) fn has_parts(&self) -> bool {
        self.has_parts
    }

    /// Switches a part on or off, from the next attempt on.
    pub(crate) fn set_part_enabled(&self, part: &str, is_enabled: bool) -> Result<(), SwitchError> {
        let mut state = self.state.lock();
        if state.switches.len() >= PARTS_MAX && !state.switches.contains_key(part) {
            return Err(SwitchError::TooManyParts);
        }
        state.switches.insert(part.to_owned(), is_enabled);
        Ok(())
    }

    /// Reads the input at its times until the agent stops. Called again after a panic.
    pub(crate) fn run(&self) {
        let mut due = Instant::now();
        while self.wait_until(due) {
            let started = Instant::now();
            due = started + self.attempt();
        }
    }

    /// Reads the input now, although it was stopped.
    #[cfg(test)]
    pub(crate) fn read_again(&self) {
        self.stop.store(false, Ordering::Relaxed);
        self.attempt();
    }

    /// Waits until `due` and until the input is enabled. Returns false when the agent stops.
    fn wait_until(&self, due: Instant) -> bool {
        let mut state = self.state.lock();
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return false;
            }
            let left = due.saturating_duration_since(Instant::now());
            match (state.is_enabled, left.is_zero()) {
                (true, true) => return true,
                (true, false) => {
                    self.wake.wait_for(&mut state, left);
                }
                (false, _) => self.wake.wait(&mut state),
            }
        }
    }

    /// Reads the input. Returns the time from the beginning of this attempt to the next one.
    fn attempt(&self) -> Duration {
        let mut reader = self.reader.lock();
        let (time, started) = (self.ingest.now(), Instant::now());
        let timeout = self.schedule.timeout.duration();
        let context = PullContext {
            ingest: &self.ingest,
            sender: &self.sender,
            labels: &self.labels,
            time,
            timeout,
            deadline: started + timeout,
            stop: &self.stop,
            counts: Cell::default(),
            first_refusal: RefCell::default(),
            switches: self.state.lock().switches.clone(),
            parts: RefCell::default(),
            kept_values: reader.is_once().then(RefCell::default),
        };
        let result = reader.read(&context);
        if self.stop.load(Ordering::Relaxed) {
            // It may have failed because the agent stops.
            return Duration::ZERO;
        }
        let counts = context.counts.get();
        if result.as_ref().is_err_and(|error| error.is_malformed) {
            self.ingest
                .count_refused(&self.sender, DropReason::Malformed);
        }
        let parts = context.parts.take();
        if !parts.is_empty() {
            self.state.lock().status.parts = parts;
        }
        let refusal = context.first_refusal.take();
        let values = context.kept_values.filter(|_| result.is_ok());
        let repeat = values.is_some().then_some(ONCE_REPEAT_INTERVAL);
        if let Some(values) = values {
            (self.once)(&self.name(), values.into_inner());
        }
        self.record(
            (time, started.elapsed(), repeat),
            &result,
            (counts, refusal),
        )
    }

    /// Records the result of an attempt. Returns the time from its beginning to the next one, which
    /// `repeat` sets for an input that is read once.
    fn record(
        &self,
        (time, duration, repeat): (Millis, Duration, Option<Duration>),
        result: &Result<(), PullError>,
        (counts, first_refusal): (PullCounts, Option<String>),
    ) -> Duration {
        let seconds = |millis: Millis| millis as f64 / 1000.0;
        let mut state = self.state.lock();
        let status = &mut state.status;
        status.attempts += 1;
        status.last_attempt = Some(seconds(time));
        status.duration = duration.as_secs_f64();
        status.samples = counts.kept;
        status.refused = counts.refused;
        status.first_refusal = first_refusal;
        match result {
            Ok(()) => {
                if status.state == PullState::Failing {
                    tracing::info!(input = status.name, "input is read again");
                }
                status.state = PullState::Up;
                status.error = None;
                status.consecutive_failures = 0;
                status.last_success = status.last_attempt;
            }
            Err(error) => {
                let error = error.to_string();
                // Only the first of equal errors is logged.
                if status.error.as_ref() != Some(&error) {
                    tracing::warn!(input = status.name, error, "cannot read an input");
                }
                status.state = PullState::Failing;
                status.error = Some(error);
                status.failures += 1;
                status.consecutive_failures = status.consecutive_failures.saturating_add(1);
            }
        }
        let scheduled = self.schedule.interval_after(status.consecutive_failures);
        let interval = repeat.unwrap_or(scheduled);
        status.current_interval = interval.as_secs_f64();
        status.next_attempt = Some(seconds(time) + interval.as_secs_f64());
        interval
    }
}
