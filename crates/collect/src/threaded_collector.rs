//! Collectors whose reads may be slow or hang: each runs on its own thread.
//!
//! The sampler never waits for them. It publishes the last completed pass and requests the next one,
//! which runs shortly before it is due. A pass that does not complete within [`PASS_TIMEOUT`] marks the
//! collector as failed, with the operation that hangs; when the read returns, the collector recovers by
//! itself. There is exactly one thread per such collector, however long it hangs, and it is never
//! joined: stopping the agent does not wait for a dead disk.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use pegel_metric::{Clock, Input, Level, Tick};
use pegel_supervisor::RestartedThread;

use crate::managed_collector::{ABSENT_RETRY, ManagedCollector};
use crate::stats::CollectorStats;
use crate::{CollectorEntry, CollectorState, Context};

/// A pass that takes longer is considered hung.
pub(crate) const PASS_TIMEOUT: Duration = Duration::from_secs(5);
/// How long before its due time a pass starts, in addition to twice the duration of the last one.
const LEAD_TIME: Duration = Duration::from_millis(50);
/// Generous, because vendor libraries may need it; untouched pages cost nothing.
const STACK_BYTES: usize = 512 * 1024;

/// The operation that a collector is about to perform, reported if it hangs.
#[derive(Debug, Clone, Default)]
pub struct CurrentOperation(Arc<Mutex<String>>);

impl CurrentOperation {
    /// Sets the operation. Call it before each call that may hang.
    pub fn set(&self, what: &str) {
        let mut text = self.0.lock();
        text.clear();
        text.push_str(what);
    }

    fn text(&self) -> String {
        self.0.lock().clone()
    }
}

/// The sampler's side of a collector that runs on its own thread.
#[derive(Debug)]
pub(crate) struct ThreadedCollector {
    entry: &'static CollectorEntry,
    level: Level,
    rate: Duration,
    handoff: Arc<ReadingHandoff>,
    /// `None` if it could not be started.
    thread: Option<RestartedThread>,
    /// The published state.
    state: CollectorState,
    reason: Option<String>,
    is_hung: bool,
    /// The number of the last published pass.
    last_pass_number: u64,
}

/// Shared between the sampler thread and the worker. The lock is never held while a collector reads.
#[derive(Debug, Default)]
struct ReadingHandoff {
    state: Mutex<HandoffState>,
    changed: Condvar,
    operation: CurrentOperation,
}

#[derive(Debug, Default)]
struct HandoffState {
    /// When the next pass is to start.
    next_at: Option<Instant>,
    /// The monotonic time at which the running pass started.
    started: Option<Duration>,
    completed: Option<CompletedPass>,
    /// The sampler has dropped the collector; the worker must end.
    is_closed: bool,
    /// The worker has ended, because the source is absent.
    is_ended: bool,
}

/// The result of a completed pass.
#[derive(Debug)]
struct CompletedPass {
    number: u64,
    /// The monotonic time of completion.
    at: Duration,
    /// The elapsed time.
    took: Duration,
    /// The CPU time: waiting costs nothing.
    cost: Duration,
    /// Has no row if the source is absent.
    tick: Tick,
    state: CollectorState,
    detail: Option<String>,
}

impl ReadingHandoff {
    fn lock(&self) -> MutexGuard<'_, HandoffState> {
        // Every field is valid independently of the others, also after a panic.
        self.state.lock()
    }

    /// Waits, on the worker, until a pass is due. Returns false when the collector was closed.
    fn wait_for_request(&self, clock: &dyn Clock) -> bool {
        let mut locked = self.lock();
        loop {
            let now = Instant::now();
            match locked.next_at {
                _ if locked.is_closed => return false,
                Some(at) if at <= now => {
                    locked.next_at = None;
                    locked.started = Some(clock.monotonic());
                    return true;
                }
                Some(at) => _ = self.changed.wait_for(&mut locked, at - now),
                None => self.changed.wait(&mut locked),
            }
        }
    }

    /// Requests a pass again that a panic interrupted.
    fn retry_interrupted(&self) {
        let mut locked = self.lock();
        if locked.started.take().is_some() {
            locked.next_at = Some(Instant::now());
        }
    }

    /// Stores a completed pass and takes the tick of the previous one, whose buffers are reused.
    fn deliver(&self, tick: &mut Tick, stats: &CollectorStats, at: Duration, cost: Duration) {
        let (state, detail) = stats.state_and_detail();
        let mut locked = self.lock();
        locked.is_ended = state == CollectorState::Absent;
        let started = locked.started.take().unwrap_or(at);
        let last = locked.completed.take();
        let number = last.as_ref().map_or(1, |last| last.number + 1);
        let spare = last.map_or_else(|| Tick::new(Input::Collect), |last| last.tick);
        locked.completed = Some(CompletedPass {
            number,
            at,
            took: at.saturating_sub(started),
            cost,
            tick: std::mem::replace(tick, spare),
            state,
            detail,
        });
        self.changed.notify_all();
    }
}

impl ThreadedCollector {
    /// Starts the thread, which opens the collector and runs a first pass.
    pub(crate) fn new(
        entry: &'static CollectorEntry,
        level: Level,
        rate: Duration,
        context: &Context,
        stats: &CollectorStats,
    ) -> ThreadedCollector {
        let mut collector = ThreadedCollector {
            entry,
            level,
            rate,
            handoff: Arc::default(),
            thread: None,
            state: CollectorState::Active,
            reason: None,
            is_hung: false,
            last_pass_number: 0,
        };
        stats.set_state(CollectorState::Active, context.clock.utc(), None);
        collector.handoff.lock().next_at = Some(Instant::now());
        collector.start(context, stats);
        collector
    }

    fn start(&mut self, context: &Context, stats: &CollectorStats) {
        let context = Context {
            operation: self.handoff.operation.clone(),
            ..context.clone()
        };
        let clock = context.clock.clone();
        let (entry, level, rate) = (self.entry, self.level, self.rate);
        let handoff = self.handoff.clone();
        let thread = context.supervisor.thread(entry.name);
        let spawned = thread.stack_size(STACK_BYTES).restarted(move || {
            handoff.retry_interrupted();
            let collector = ManagedCollector::new(entry, level, rate);
            run_worker(&handoff, entry.name, collector, &context);
        });
        self.thread = match spawned {
            Ok(thread) => Some(thread),
            Err(error) => {
                let reason = format!("cannot start a thread: {error}");
                self.set_state(CollectorState::Failed, Some(&reason), &*clock, stats);
                None
            }
        };
    }

    /// Publishes the last completed pass and requests the next one. Returns how many series have a value,
    /// and the cost of the pass if it was not published before.
    pub(crate) fn pass(
        &mut self,
        context: &Context,
        stats: &CollectorStats,
        tick: &mut Tick,
    ) -> (u64, Option<Duration>) {
        let now = context.clock.monotonic();
        if self.thread.is_none() || self.is_reopen_due(now) {
            self.start(context, stats);
        }
        let handoff = self.handoff.clone();
        let mut locked = handoff.lock();
        let is_hung = locked
            .started
            .is_some_and(|started| now.saturating_sub(started) >= PASS_TIMEOUT);
        let HandoffState {
            completed,
            next_at,
            started,
            is_ended,
            ..
        } = &mut *locked;
        let mut took = Duration::ZERO;
        let (mut series, mut new) = (0, None);
        if let Some(reading) = completed {
            let is_fresh = now.saturating_sub(reading.at) <= 2 * self.rate + PASS_TIMEOUT;
            for row in reading.tick.rows() {
                series = tick.append_row(row, !is_hung && is_fresh);
            }
            took = reading.took;
            if self.last_pass_number != reading.number {
                self.last_pass_number = reading.number;
                new = Some(reading.cost);
            }
            if !is_hung {
                self.set_state(
                    reading.state,
                    reading.detail.as_deref(),
                    &*context.clock,
                    stats,
                );
            }
        }
        if started.is_none() && next_at.is_none() && !*is_ended {
            // Late enough to be current when it is published, early enough to be complete.
            let lead = (LEAD_TIME + 2 * took).min(self.rate / 2);
            *next_at = Some(Instant::now() + (self.rate - lead));
            handoff.changed.notify_all();
        }
        drop(locked);
        if is_hung {
            self.report_hang(&*context.clock, stats);
        } else if self.is_hung {
            tracing::info!(collector = self.entry.name, "hung collector recovered");
        }
        self.is_hung = is_hung;
        (series, new)
    }

    /// Returns whether an absent source is due for a retry, and requests the pass if so. The worker of an
    /// absent source ends; a new one is started every minute.
    fn is_reopen_due(&self, now: Duration) -> bool {
        let mut locked = self.handoff.lock();
        let last = locked.completed.as_ref().map_or(now, |reading| reading.at);
        let is_time = locked.is_ended && now.saturating_sub(last) >= ABSENT_RETRY;
        if is_time {
            locked.is_ended = false;
            locked.next_at = Some(Instant::now());
        }
        is_time
    }

    /// Waits until a pass that was not published yet is complete, requesting one if none is running; at
    /// most until `deadline`.
    pub(crate) fn wait_for_pass(&self, deadline: Instant) {
        let mut locked = self.handoff.lock();
        let is_new = |locked: &HandoffState| {
            let number = locked
                .completed
                .as_ref()
                .map_or(0, |reading| reading.number);
            number > self.last_pass_number
        };
        if locked.is_ended {
            return;
        }
        if !is_new(&locked) && locked.started.is_none() {
            locked.next_at = Some(Instant::now());
            self.handoff.changed.notify_all();
        }
        while !is_new(&locked) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            self.handoff.changed.wait_for(&mut locked, left);
        }
    }

    fn report_hang(&mut self, clock: &dyn Clock, stats: &CollectorStats) {
        let reason = match self.handoff.operation.text() {
            operation if operation.is_empty() => {
                format!("a pass has taken longer than {PASS_TIMEOUT:?}")
            }
            operation => format!("{operation} has not answered for {PASS_TIMEOUT:?}"),
        };
        if !self.is_hung {
            tracing::warn!(
                collector = self.entry.name,
                reason,
                "collector hung; the other collectors continue"
            );
        }
        self.set_state(CollectorState::Failed, Some(&reason), clock, stats);
    }

    fn set_state(
        &mut self,
        state: CollectorState,
        reason: Option<&str>,
        clock: &dyn Clock,
        stats: &CollectorStats,
    ) {
        if self.state != state || self.reason.as_deref() != reason {
            self.state = state;
            self.reason = reason.map(str::to_owned);
            stats.set_state(state, clock.utc(), self.reason.clone());
        }
    }
}

impl Drop for ThreadedCollector {
    /// Signals the worker, which ends when its current read returns, at the latest with the process.
    fn drop(&mut self) {
        self.handoff.lock().is_closed = true;
        self.handoff.changed.notify_all();
    }
}

/// The loop of the worker thread. [`ManagedCollector`] opens and reopens the collector and catches
/// panics, as on the sampler thread.
fn run_worker(
    handoff: &ReadingHandoff,
    name: &'static str,
    mut collector: ManagedCollector,
    context: &Context,
) {
    let stats = CollectorStats::new(name);
    let mut tick = Tick::new(Input::Collect);
    let mut is_opened = false;
    while handoff.wait_for_request(&*context.clock) {
        let before = thread_cpu_time();
        if !is_opened {
            collector.open(context, &stats);
            is_opened = true;
        }
        collector.pass(context, &stats);
        tick.reset(0);
        collector.append_to(&mut tick);
        let cost = thread_cpu_time().saturating_sub(before);
        handoff.deliver(&mut tick, &stats, context.clock.monotonic(), cost);
        if stats.state() == CollectorState::Absent {
            return;
        }
    }
}

/// Returns the CPU time used by the calling thread.
fn thread_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

#[cfg(test)]
mod tests;
