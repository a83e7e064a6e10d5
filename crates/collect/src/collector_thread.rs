//! The thread of a collector whose reads may be slow or hang.
//!
//! The sampler never waits for it. At each due time it requests a pass, which runs at once, and
//! publishes it when it is complete, with the time of reading. A requested pass that is not
//! complete when the next one is due is counted as missed. One that takes longer than
//! [`PASS_TIMEOUT`] marks the collector as failed, with the operation that hangs; when the read
//! returns, the collector recovers by itself. There is exactly one thread per such collector,
//! however long it hangs, and it is never joined: stopping the agent does not wait for a dead disk.

mod pass_exchange;

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pegel_metric::{Clock, Level, Millis};
use pegel_supervisor::RestartedThread;

use self::pass_exchange::{ExchangeState, PassExchange};
use crate::managed_collector::{ABSENT_RETRY, ManagedCollector};
use crate::pass_ticks::{GroupReading, PassTicks, PassTime};
use crate::schedule::STEP_MIN;
use crate::stats::CollectorStats;
use crate::{CollectorEntry, CollectorState, Context};

/// A pass that takes longer is considered hung.
pub(crate) const PASS_TIMEOUT: Duration = Duration::from_secs(5);
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
    /// The number of the last published pass, and how many of its series had a value.
    last_pass_number: u64,
    last_series: u64,
    /// The time that the last published pass carried.
    last_time: Option<Millis>,
    /// The pass that was requested and not published yet.
    pending: Option<PendingPass>,
}

/// A pass that the sampler requested.
#[derive(Debug, Clone, Copy)]
struct PendingPass {
    /// The time for which it was requested.
    due: Millis,
    /// The monotonic time of the request.
    requested_at: Duration,
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
            last_series: 0,
            last_time: None,
            pending: None,
        };
        stats.set_state(CollectorState::Active, None, &*context.clock);
        collector.exchange.lock().is_requested = true;
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

    /// Publishes the last pass, if it is complete and was not published before, and requests the
    /// pass that is due. Returns how many series have a value, and the cost of the pass if it is
    /// new; `None` if nothing was published.
    pub(crate) fn pass(
        &mut self,
        context: &Context,
        stats: &CollectorStats,
        ticks: &mut PassTicks,
    ) -> Option<(u64, Option<Duration>)> {
        let now = context.clock.monotonic();
        if self.thread.is_none() || self.is_reopen_due(now) {
            self.spawn(context, stats);
        }
        let due = ticks.nominal().time;
        let was_pending = self.pending.is_some();
        let published = self.publish_new(context, stats, ticks);
        let is_hung = self.is_hung_at(now);
        let is_gone = is_hung || self.is_stale_at(now);
        let is_repeated = published.is_none() && (is_gone || ticks.is_untimed());
        if is_repeated {
            self.repeat_last(!is_gone, ticks);
        }
        self.report_hang(is_hung, &*context.clock, stats);
        if !ticks.is_untimed() {
            // A pass that was read for this time, or before the first request, is the one that is
            // due.
            let is_done = published.is_some() && (!was_pending || self.last_time >= Some(due));
            if self.pending.is_some() || (was_pending && is_done) {
                context.stats.count_missed_thread();
            }
            self.pending = None;
            if !is_done {
                self.request(due, now);
            }
        }
        (published.is_some() || is_repeated).then_some((self.last_series, published))
    }

    pub(crate) fn is_pass_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// Publishes the requested pass if it is complete. Returns what [`CollectorThread::pass`]
    /// returns; `None` if it is not.
    pub(crate) fn publish_completed(
        &mut self,
        context: &Context,
        stats: &CollectorStats,
        ticks: &mut PassTicks,
    ) -> Option<(u64, Option<Duration>)> {
        self.pending?;
        let cost = self.publish_new(context, stats, ticks)?;
        self.report_hang(false, &*context.clock, stats);
        Some((self.last_series, Some(cost)))
    }

    /// Publishes the last completed pass, unless it was published before, with the time of
    /// reading. Returns its cost. A pass is stored once: repeated, a counter would stand still and
    /// then jump.
    fn publish_new(
        &mut self,
        context: &Context,
        stats: &CollectorStats,
        ticks: &mut PassTicks,
    ) -> Option<Duration> {
        let locked = self.exchange.lock();
        let pass = locked.completed.as_ref()?;
        if pass.number == self.last_pass_number {
            return None;
        }
        self.last_pass_number = pass.number;
        let pending = self.pending.take();
        if let Some(pending) = pending
            && pass.read_at > pending.requested_at + self.rate / 2
        {
            context.stats.count_late_thread();
        }
        let tick = ticks.tick_for(&GroupReading {
            at: pass.read_at,
            rate: self.rate,
            earliest: self.earliest_time(pending, ticks.utc(pass.at)),
        });
        self.last_series = 0;
        for row in pass.tick.rows() {
            self.last_series = tick.append_row(row, true);
        }
        self.last_time = Some(tick.time);
        stats.set_state(pass.state, pass.detail.as_deref(), &*context.clock);
        Some(pass.cost)
    }

    /// Returns the first time that a pass may carry which was complete at `end`: the one for which
    /// it was requested, because earlier ones were counted as missed, and later than the last pass.
    fn earliest_time(&self, pending: Option<PendingPass>, end: Option<Millis>) -> Millis {
        let after_last = self.last_time.map(|last| last.saturating_add(1));
        let earliest = pending.map(|pending| pending.due).max(after_last);
        // As in the schedule, only a larger difference is a clock that was set back.
        let set_back = self.rate.max(STEP_MIN).as_millis() as Millis;
        let is_set_back = |time: &Millis| end.is_some_and(|end| time - end >= set_back);
        earliest
            .filter(|time| !is_set_back(time))
            .unwrap_or(Millis::MIN)
    }

    /// Appends the last pass again, with the nominal time; without values unless it is current.
    fn repeat_last(&mut self, is_current: bool, ticks: &mut PassTicks) {
        let locked = self.exchange.lock();
        let Some(pass) = &locked.completed else {
            return;
        };
        let tick = ticks.nominal();
        self.last_series = 0;
        for row in pass.tick.rows() {
            self.last_series = tick.append_row(row, is_current);
            self.last_time = Some(tick.time);
        }
    }

    /// Returns whether the running pass takes too long.
    fn is_hung_at(&self, now: Duration) -> bool {
        let started = self.exchange.lock().started;
        started.is_some_and(|started| now.saturating_sub(started) >= PASS_TIMEOUT)
    }

    /// Returns whether the values of the last pass are too old to be shown.
    fn is_stale_at(&self, now: Duration) -> bool {
        let locked = self.exchange.lock();
        let last = locked.completed.as_ref();
        last.is_some_and(|pass| now.saturating_sub(pass.at) > 2 * self.rate + PASS_TIMEOUT)
    }

    /// Requests a pass, unless one is running: then that one is published when it is complete.
    fn request(&mut self, due: Millis, now: Duration) {
        let mut locked = self.exchange.lock();
        if locked.is_ended {
            return;
        }
        self.pending = Some(PendingPass {
            due,
            requested_at: now,
        });
        if locked.started.is_none() {
            locked.is_requested = true;
            self.exchange.changed.notify_all();
        }
    }

    /// Returns whether an absent source is due for a retry, and requests the pass if so. The worker
    /// of an absent source ends; a new one is started every minute.
    fn is_reopen_due(&self, now: Duration) -> bool {
        let mut locked = self.exchange.lock();
        let last = locked.completed.as_ref().map_or(now, |reading| reading.at);
        let is_time = locked.is_ended && now.saturating_sub(last) >= ABSENT_RETRY;
        if is_time {
            locked.is_ended = false;
            locked.is_requested = true;
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
            locked.is_requested = true;
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
    let mut ticks = PassTicks::new();
    while exchange.wait_for_request(&*context.clock) {
        let before = thread_cpu_time();
        ticks.begin(PassTime::default());
        collector.pass(context, &stats, &mut ticks);
        let cost = thread_cpu_time().saturating_sub(before);
        exchange.deliver(ticks.nominal(), &stats, context.clock.monotonic(), cost);
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
