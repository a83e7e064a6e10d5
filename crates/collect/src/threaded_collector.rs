//! Collectors whose reads may take long, or hang: each on a thread of its own.
//!
//! The sampler never waits for them. It picks up the last completed reading and asks for the next
//! one, which is taken shortly before it is due. A reading that does not come back within
//! [`TIMEOUT`] makes the collector failed, with what it hangs on; when the read returns, the
//! collector recovers by itself. There is one thread per such collector, however long it hangs, and
//! nobody ever joins it: the end of the agent does not wait for a dead disk.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pegel_metric::{Clock, Input, Level, Tick};
use pegel_supervisor::RestartedThread;

use crate::managed_collector::{ABSENT_RETRY, ManagedCollector};
use crate::stats::CollectorStats;
use crate::{CollectorEntry, CollectorState, Context};

/// A reading that takes longer is taken for hung.
pub(crate) const PASS_TIMEOUT: Duration = Duration::from_secs(5);
/// How long before it is due a reading is taken, beside twice the time that the last one took.
const LEAD_TIME: Duration = Duration::from_millis(50);
/// Pages that are not touched cost nothing; a vendor's library may need some.
const STACK_BYTES: usize = 512 * 1024;

/// What a collector is about to touch, so that whoever waits for it can say what it hangs on.
#[derive(Debug, Clone, Default)]
pub struct CurrentOperation(Arc<Mutex<String>>);

impl CurrentOperation {
    /// To be called before each call that may not come back.
    pub fn set(&self, what: &str) {
        let mut text = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        text.clear();
        text.push_str(what);
    }

    fn text(&self) -> String {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// A collector on a thread of its own, as the sampler sees it.
#[derive(Debug)]
pub(crate) struct ThreadedCollector {
    entry: &'static CollectorEntry,
    level: Level,
    rate: Duration,
    handoff: Arc<ReadingHandoff>,
    /// `None` where it could not be started.
    thread: Option<RestartedThread>,
    /// As published.
    state: CollectorState,
    reason: Option<String>,
    is_hung: bool,
    /// The reading that was picked up last.
    last_pass_number: u64,
}

/// Where the two threads meet. It is never held while a collector reads.
#[derive(Debug, Default)]
struct ReadingHandoff {
    state: Mutex<HandoffState>,
    changed: Condvar,
    operation: CurrentOperation,
}

#[derive(Debug, Default)]
struct HandoffState {
    /// When the next reading shall be taken.
    next_at: Option<Instant>,
    /// The monotonic time at which the reading in progress began.
    started: Option<Duration>,
    completed: Option<CompletedPass>,
    /// Nobody wants readings any more.
    is_closed: bool,
    /// The thread is gone, because there was nothing to read.
    is_ended: bool,
}

/// What a completed pass left behind.
#[derive(Debug)]
struct CompletedPass {
    number: u64,
    /// The monotonic time at which it was complete.
    at: Duration,
    /// How long it took.
    took: Duration,
    /// The processor time that it took: waiting costs nothing.
    cost: Duration,
    /// No row when there is no such thing on this node.
    tick: Tick,
    state: CollectorState,
    detail: Option<String>,
}

impl ReadingHandoff {
    fn lock(&self) -> MutexGuard<'_, HandoffState> {
        // Every field is right by itself, even if a holder panicked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The worker's part: waits until a reading is wanted; false when none ever will be.
    fn wait_for_request(&self, clock: &dyn Clock) -> bool {
        let mut papers = self.lock();
        loop {
            let now = Instant::now();
            papers = match papers.next_at {
                _ if papers.is_closed => return false,
                Some(at) if at <= now => {
                    papers.next_at = None;
                    papers.started = Some(clock.monotonic());
                    return true;
                }
                Some(at) => {
                    let result = self.changed.wait_timeout(papers, at - now);
                    result.unwrap_or_else(PoisonError::into_inner).0
                }
                None => {
                    let result = self.changed.wait(papers);
                    result.unwrap_or_else(PoisonError::into_inner)
                }
            };
        }
    }

    /// Requests again a reading that a panic interrupted.
    fn retry_interrupted(&self) {
        let mut papers = self.lock();
        if papers.started.take().is_some() {
            papers.next_at = Some(Instant::now());
        }
    }

    /// Leaves a reading and takes the tick of the last one, whose buffers are used again.
    fn deliver(&self, tick: &mut Tick, figures: &CollectorStats, at: Duration, cost: Duration) {
        let (state, note) = figures.state_and_detail();
        let mut papers = self.lock();
        papers.is_ended = state == CollectorState::Absent;
        let started = papers.started.take().unwrap_or(at);
        let last = papers.completed.take();
        let number = last.as_ref().map_or(1, |last| last.number + 1);
        let spare = last.map_or_else(|| Tick::new(Input::Collect), |last| last.tick);
        papers.completed = Some(CompletedPass {
            number,
            at,
            took: at.saturating_sub(started),
            cost,
            tick: std::mem::replace(tick, spare),
            state,
            detail: note,
        });
        self.changed.notify_all();
    }
}

impl ThreadedCollector {
    /// Starts the thread, which opens the collector and takes a first reading.
    pub(crate) fn new(
        entry: &'static CollectorEntry,
        level: Level,
        rate: Duration,
        context: &Context,
        figures: &CollectorStats,
    ) -> ThreadedCollector {
        let mut aside = ThreadedCollector {
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
        figures.set_state(CollectorState::Active, context.clock.utc(), None);
        aside.handoff.lock().next_at = Some(Instant::now());
        aside.start(context, figures);
        aside
    }

    fn start(&mut self, context: &Context, figures: &CollectorStats) {
        let context = Context {
            operation: self.handoff.operation.clone(),
            ..context.clone()
        };
        let clock = context.clock.clone();
        let (entry, level, rate) = (self.entry, self.level, self.rate);
        let desk = self.handoff.clone();
        let thread = context.supervisor.thread(entry.name);
        let spawned = thread.stack_size(STACK_BYTES).restarted(move || {
            desk.retry_interrupted();
            let station = ManagedCollector::new(entry, level, rate);
            run_worker(&desk, entry.name, station, &context);
        });
        self.thread = match spawned {
            Ok(thread) => Some(thread),
            Err(error) => {
                let reason = format!("cannot start a thread: {error}");
                self.set_state(CollectorState::Failed, Some(&reason), &*clock, figures);
                None
            }
        };
    }

    /// Publishes the last reading and asks for the next one. Returns how many series have a value,
    /// and what the reading cost if it is a new one.
    pub(crate) fn pass(
        &mut self,
        context: &Context,
        figures: &CollectorStats,
        tick: &mut Tick,
    ) -> (u64, Option<Duration>) {
        let now = context.clock.monotonic();
        if self.thread.is_none() || self.is_reopen_due(now) {
            self.start(context, figures);
        }
        let desk = self.handoff.clone();
        let mut papers = desk.lock();
        let hangs = papers
            .started
            .is_some_and(|started| now.saturating_sub(started) >= PASS_TIMEOUT);
        let HandoffState {
            completed: reading,
            next_at: wanted,
            started,
            is_ended,
            ..
        } = &mut *papers;
        let mut took = Duration::ZERO;
        let (mut series, mut new) = (0, None);
        if let Some(reading) = reading {
            let is_fresh = now.saturating_sub(reading.at) <= 2 * self.rate + PASS_TIMEOUT;
            for row in reading.tick.rows() {
                series = tick.append_row(row, !hangs && is_fresh);
            }
            took = reading.took;
            if self.last_pass_number != reading.number {
                self.last_pass_number = reading.number;
                new = Some(reading.cost);
            }
            if !hangs {
                self.set_state(
                    reading.state,
                    reading.detail.as_deref(),
                    &*context.clock,
                    figures,
                );
            }
        }
        if started.is_none() && wanted.is_none() && !*is_ended {
            // Late enough to be current when it is picked up, early enough to be complete.
            let lead = (LEAD_TIME + 2 * took).min(self.rate / 2);
            *wanted = Some(Instant::now() + (self.rate - lead));
            desk.changed.notify_all();
        }
        drop(papers);
        if hangs {
            self.report_hang(&*context.clock, figures);
        } else if self.is_hung {
            tracing::info!(collector = self.entry.name, "a collector answers again");
        }
        self.is_hung = hangs;
        (series, new)
    }

    /// A node without such a thing needs no thread for it: only one that looks every minute.
    fn is_reopen_due(&self, now: Duration) -> bool {
        let mut papers = self.handoff.lock();
        let last = papers.completed.as_ref().map_or(now, |reading| reading.at);
        let is_time = papers.is_ended && now.saturating_sub(last) >= ABSENT_RETRY;
        if is_time {
            papers.is_ended = false;
            papers.next_at = Some(Instant::now());
        }
        is_time
    }

    /// Waits until the reading in progress is there, or takes one where none is; at most until
    /// `deadline`.
    pub(crate) fn wait_for_pass(&self, deadline: Instant) {
        let mut papers = self.handoff.lock();
        let is_new = |papers: &HandoffState| {
            let number = papers
                .completed
                .as_ref()
                .map_or(0, |reading| reading.number);
            number > self.last_pass_number
        };
        if papers.is_ended {
            return;
        }
        if !is_new(&papers) && papers.started.is_none() {
            papers.next_at = Some(Instant::now());
            self.handoff.changed.notify_all();
        }
        while !is_new(&papers) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let result = self.handoff.changed.wait_timeout(papers, left);
            papers = result.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn report_hang(&mut self, clock: &dyn Clock, figures: &CollectorStats) {
        let reason = match self.handoff.operation.text() {
            what if what.is_empty() => format!("a reading takes longer than {PASS_TIMEOUT:?}"),
            what => format!("{what} has not answered for {PASS_TIMEOUT:?}"),
        };
        if !self.is_hung {
            tracing::warn!(
                collector = self.entry.name,
                reason,
                "a collector hangs; the others go on"
            );
        }
        self.set_state(CollectorState::Failed, Some(&reason), clock, figures);
    }

    fn set_state(
        &mut self,
        state: CollectorState,
        reason: Option<&str>,
        clock: &dyn Clock,
        figures: &CollectorStats,
    ) {
        if self.state != state || self.reason.as_deref() != reason {
            self.state = state;
            self.reason = reason.map(str::to_owned);
            figures.set_state(state, clock.utc(), self.reason.clone());
        }
    }
}

impl Drop for ThreadedCollector {
    /// The thread ends when its read comes back, and with the process at the latest.
    fn drop(&mut self) {
        self.handoff.lock().is_closed = true;
        self.handoff.changed.notify_all();
    }
}

/// The thread's work. Its station opens the collector, and again where it is time, and catches
/// panics, as on the sampler's thread.
fn run_worker(
    desk: &ReadingHandoff,
    name: &'static str,
    mut station: ManagedCollector,
    context: &Context,
) {
    let figures = CollectorStats::new(name);
    let mut tick = Tick::new(Input::Collect);
    let mut is_opened = false;
    while desk.wait_for_request(&*context.clock) {
        let before = thread_cpu_time();
        if !is_opened {
            station.open(context, &figures);
            is_opened = true;
        }
        station.pass(context, &figures);
        tick.reset(0);
        station.append_to(&mut tick);
        let cost = thread_cpu_time().saturating_sub(before);
        desk.deliver(&mut tick, &figures, context.clock.monotonic(), cost);
        if figures.state() == CollectorState::Absent {
            return;
        }
    }
}

/// What this thread has used.
fn thread_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

#[cfg(test)]
mod tests;
