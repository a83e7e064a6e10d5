//! The thread of a collector whose reads may be slow or hang.
//!
//! The sampler never waits for it. It publishes the last completed pass and requests the next one,
//! which runs shortly before it is due. A pass that does not complete within [`PASS_TIMEOUT`] marks
//! the collector as failed, with the operation that hangs; when the read returns, the collector
//! recovers by itself. There is exactly one thread per such collector, however long it hangs, and
//! it is never joined: stopping the agent does not wait for a dead disk.

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

    pub(crate) fn text(&self) -> String {
        self.0.lock().clone()
    }
}

/// The thread of a collector, from the sampler's side.
#[derive(Debug)]
pub(crate) struct CollectorThread {
    entry: &'static CollectorEntry,
    level: Level,
    rate: Duration,
    exchange: Arc<PassExchange>,
    /// `None` if it could not be started.
    thread: Option<RestartedThread>,
    is_hung: bool,
    /// The number of the last published pass.
    last_pass_number: u64,
}

/// Shared between the sampler thread and the worker. The lock is never held while a collector
/// reads.
#[derive(Debug, Default)]
struct PassExchange {
    state: Mutex<ExchangeState>,
    changed: Condvar,
    operation: CurrentOperation,
}

#[derive(Debug, Default)]
struct ExchangeState {
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

impl PassExchange {
    fn lock(&self) -> MutexGuard<'_, ExchangeState> {
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

impl CollectorThread {
    /// Starts the thread, which opens the collector and runs a first pass.
    pub(crate) fn start(
        entry: &'static CollectorEntry,
        level: Level,
        rate: Duration,
        context: &Context,
        stats: &CollectorStats,
    ) -> CollectorThread {
        let mut collector = CollectorThread {
            entry,
            level,
            rate,
            exchange: Arc::default(),
            thread: None,
            is_hung: false,
            last_pass_number: 0,
        };
        stats.set_state(CollectorState::Active, None, &*context.clock);
        collector.exchange.lock().next_at = Some(Instant::now());
        collector.spawn(context, stats);
        collector
    }

    fn spawn(&mut self, context: &Context, stats: &CollectorStats) {
        let for_thread = Context {
            operation: self.exchange.operation.clone(),
            ..context.clone()
        };
        let (entry, level, rate) = (self.entry, self.level, self.rate);
        let exchange = self.exchange.clone();
        let thread = context.supervisor.thread(entry.name);
        let spawned = thread.stack_size(STACK_BYTES).restarted(move || {
            exchange.retry_interrupted();
            let collector = ManagedCollector::new(entry, level, rate);
            run_worker(&exchange, entry.name, collector, &for_thread);
        });
        self.thread = match spawned {
            Ok(thread) => Some(thread),
            Err(error) => {
                let reason = format!("cannot start a thread: {error}");
                stats.set_state(CollectorState::Failed, Some(&reason), &*context.clock);
                None
            }
        };
    }

    /// Publishes the last completed pass and requests the next one. Returns how many series have a
    /// value, and the cost of the pass if it was not published before.
    pub(crate) fn publish(
        &mut self,
        context: &Context,
        stats: &CollectorStats,
        tick: &mut Tick,
    ) -> (u64, Option<Duration>) {
        let now = context.clock.monotonic();
        if self.thread.is_none() || self.is_reopen_due(now) {
            self.spawn(context, stats);
        }
        let mut locked = self.exchange.lock();
        let is_hung = locked
            .started
            .is_some_and(|started| now.saturating_sub(started) >= PASS_TIMEOUT);
        let mut took = Duration::ZERO;
        let (mut series, mut new) = (0, None);
        if let Some(pass) = &locked.completed {
            let is_fresh = now.saturating_sub(pass.at) <= 2 * self.rate + PASS_TIMEOUT;
            for row in pass.tick.rows() {
                series = tick.append_row(row, !is_hung && is_fresh);
            }
            took = pass.took;
            if self.last_pass_number != pass.number {
                self.last_pass_number = pass.number;
                new = Some(pass.cost);
            }
            if !is_hung {
                stats.set_state(pass.state, pass.detail.as_deref(), &*context.clock);
            }
        }
        if locked.started.is_none() && locked.next_at.is_none() && !locked.is_ended {
            // Late enough to be current when it is published, early enough to be complete.
            let lead = (LEAD_TIME + 2 * took).min(self.rate / 2);
            locked.next_at = Some(Instant::now() + (self.rate - lead));
            self.exchange.changed.notify_all();
        }
        drop(locked);
        self.report_hang(is_hung, &*context.clock, stats);
        (series, new)
    }

    /// Returns whether an absent source is due for a retry, and requests the pass if so. The worker
    /// of an absent source ends; a new one is started every minute.
    fn is_reopen_due(&self, now: Duration) -> bool {
        let mut locked = self.exchange.lock();
        let last = locked.completed.as_ref().map_or(now, |reading| reading.at);
        let is_time = locked.is_ended && now.saturating_sub(last) >= ABSENT_RETRY;
        if is_time {
            locked.is_ended = false;
            locked.next_at = Some(Instant::now());
        }
        is_time
    }

    /// Waits until a pass that was not published yet is complete, requesting one if none is
    /// running; at most until `deadline`.
    pub(crate) fn wait_for_pass(&self, deadline: Instant) {
        let mut locked = self.exchange.lock();
        let is_new = |locked: &ExchangeState| {
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
            self.exchange.changed.notify_all();
        }
        while !is_new(&locked) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            self.exchange.changed.wait_for(&mut locked, left);
        }
    }

    fn report_hang(&mut self, is_hung: bool, clock: &dyn Clock, stats: &CollectorStats) {
        let was_hung = std::mem::replace(&mut self.is_hung, is_hung);
        let collector = self.entry.name;
        if was_hung && !is_hung {
            tracing::info!(collector, "hung collector recovered");
        }
        if !is_hung {
            return;
        }
        let reason = match self.exchange.operation.text() {
            operation if operation.is_empty() => {
                format!("a pass has taken longer than {PASS_TIMEOUT:?}")
            }
            operation => format!("{operation} did not respond within {PASS_TIMEOUT:?}"),
        };
        if !was_hung {
            tracing::warn!(
                collector,
                reason,
                "collector hung; the other collectors continue"
            );
        }
        stats.set_state(CollectorState::Failed, Some(&reason), clock);
    }
}

impl Drop for CollectorThread {
    /// Signals the worker, which ends when its current read returns, at the latest with the
    /// process.
    fn drop(&mut self) {
        self.exchange.lock().is_closed = true;
        self.exchange.changed.notify_all();
    }
}

/// The loop of the worker thread. [`ManagedCollector`] opens and reopens the collector and catches
/// panics, as on the sampler thread.
fn run_worker(
    exchange: &PassExchange,
    name: &'static str,
    mut collector: ManagedCollector,
    context: &Context,
) {
    let stats = CollectorStats::new(name);
    let mut tick = Tick::new(Input::Collect);
    while exchange.wait_for_request(&*context.clock) {
        let before = thread_cpu_time();
        tick.reset(0);
        collector.pass(context, &stats, &mut tick);
        let cost = thread_cpu_time().saturating_sub(before);
        exchange.deliver(&mut tick, &stats, context.clock.monotonic(), cost);
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
