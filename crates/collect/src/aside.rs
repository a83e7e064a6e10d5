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

use crate::figures::CollectorFigures;
use crate::station::{ABSENT_WAIT, Station};
use crate::{Context, Entry, State};

/// A reading that takes longer is taken for hung.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(5);
/// How long before it is due a reading is taken, beside twice the time that the last one took.
const LEAD: Duration = Duration::from_millis(50);
/// Pages that are not touched cost nothing; a vendor's library may need some.
const STACK_BYTES: usize = 512 * 1024;

/// What a collector is about to touch, so that whoever waits for it can say what it hangs on.
#[derive(Debug, Clone, Default)]
pub struct Note(Arc<Mutex<String>>);

impl Note {
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
pub(crate) struct Aside {
    entry: &'static Entry,
    level: Level,
    rate: Duration,
    desk: Arc<Desk>,
    /// `None` where it could not be started.
    thread: Option<RestartedThread>,
    /// As published.
    state: State,
    reason: Option<String>,
    hangs: bool,
    /// The reading that was picked up last.
    number: u64,
}

/// Where the two threads meet. It is never held while a collector reads.
#[derive(Debug, Default)]
struct Desk {
    papers: Mutex<Papers>,
    changed: Condvar,
    note: Note,
}

#[derive(Debug, Default)]
struct Papers {
    /// When the next reading shall be taken.
    wanted: Option<Instant>,
    /// The monotonic time at which the reading in progress began.
    started: Option<Duration>,
    reading: Option<Reading>,
    /// Nobody wants readings any more.
    is_closed: bool,
    /// The thread is gone, because there was nothing to read.
    is_ended: bool,
}

/// What a completed pass left behind.
#[derive(Debug)]
struct Reading {
    number: u64,
    /// The monotonic time at which it was complete.
    at: Duration,
    /// How long it took.
    took: Duration,
    /// The processor time that it took: waiting costs nothing.
    cost: Duration,
    /// No row when there is no such thing on this node.
    tick: Tick,
    state: State,
    note: Option<String>,
}

impl Desk {
    fn papers(&self) -> MutexGuard<'_, Papers> {
        // Every field is right by itself, even if a holder panicked.
        self.papers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The worker's part: waits until a reading is wanted; false when none ever will be.
    fn wait(&self, clock: &dyn Clock) -> bool {
        let mut papers = self.papers();
        loop {
            let now = Instant::now();
            papers = match papers.wanted {
                _ if papers.is_closed => return false,
                Some(at) if at <= now => {
                    papers.wanted = None;
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
    fn forget_interrupted(&self) {
        let mut papers = self.papers();
        if papers.started.take().is_some() {
            papers.wanted = Some(Instant::now());
        }
    }

    /// Leaves a reading and takes the tick of the last one, whose buffers are used again.
    fn deliver(&self, tick: &mut Tick, figures: &CollectorFigures, at: Duration, cost: Duration) {
        let (state, note) = figures.condition_now();
        let mut papers = self.papers();
        papers.is_ended = state == State::Absent;
        let started = papers.started.take().unwrap_or(at);
        let last = papers.reading.take();
        let number = last.as_ref().map_or(1, |last| last.number + 1);
        let spare = last.map_or_else(|| Tick::new(Input::Collect), |last| last.tick);
        papers.reading = Some(Reading {
            number,
            at,
            took: at.saturating_sub(started),
            cost,
            tick: std::mem::replace(tick, spare),
            state,
            note,
        });
        self.changed.notify_all();
    }
}

impl Aside {
    /// Starts the thread, which opens the collector and takes a first reading.
    pub(crate) fn new(
        entry: &'static Entry,
        level: Level,
        rate: Duration,
        context: &Context,
        figures: &CollectorFigures,
    ) -> Aside {
        let mut aside = Aside {
            entry,
            level,
            rate,
            desk: Arc::default(),
            thread: None,
            state: State::Active,
            reason: None,
            hangs: false,
            number: 0,
        };
        figures.turned(State::Active, context.clock.utc(), None);
        aside.desk.papers().wanted = Some(Instant::now());
        aside.start(context, figures);
        aside
    }

    fn start(&mut self, context: &Context, figures: &CollectorFigures) {
        let context = Context {
            note: self.desk.note.clone(),
            ..context.clone()
        };
        let clock = context.clock.clone();
        let (entry, level, rate) = (self.entry, self.level, self.rate);
        let desk = self.desk.clone();
        let thread = context.supervisor.thread(entry.name);
        let spawned = thread.stack_size(STACK_BYTES).restarted(move || {
            desk.forget_interrupted();
            let station = Station::new(entry, level, rate);
            work(&desk, entry.name, station, &context);
        });
        self.thread = match spawned {
            Ok(thread) => Some(thread),
            Err(error) => {
                let reason = format!("cannot start a thread: {error}");
                self.turn(State::Failed, Some(&reason), &*clock, figures);
                None
            }
        };
    }

    /// Publishes the last reading and asks for the next one. Returns how many series have a value,
    /// and what the reading cost if it is a new one.
    pub(crate) fn pass(
        &mut self,
        context: &Context,
        figures: &CollectorFigures,
        tick: &mut Tick,
    ) -> (u64, Option<Duration>) {
        let now = context.clock.monotonic();
        if self.thread.is_none() || self.is_time_to_look_again(now) {
            self.start(context, figures);
        }
        let desk = self.desk.clone();
        let mut papers = desk.papers();
        let hangs = papers
            .started
            .is_some_and(|started| now.saturating_sub(started) >= TIMEOUT);
        let Papers {
            reading,
            wanted,
            started,
            is_ended,
            ..
        } = &mut *papers;
        let mut took = Duration::ZERO;
        let (mut series, mut new) = (0, None);
        if let Some(reading) = reading {
            let is_fresh = now.saturating_sub(reading.at) <= 2 * self.rate + TIMEOUT;
            for row in reading.tick.rows() {
                series = tick.append_row(row, !hangs && is_fresh);
            }
            took = reading.took;
            if self.number != reading.number {
                self.number = reading.number;
                new = Some(reading.cost);
            }
            if !hangs {
                self.turn(
                    reading.state,
                    reading.note.as_deref(),
                    &*context.clock,
                    figures,
                );
            }
        }
        if started.is_none() && wanted.is_none() && !*is_ended {
            // Late enough to be current when it is picked up, early enough to be complete.
            let lead = (LEAD + 2 * took).min(self.rate / 2);
            *wanted = Some(Instant::now() + (self.rate - lead));
            desk.changed.notify_all();
        }
        drop(papers);
        if hangs {
            self.hang(&*context.clock, figures);
        } else if self.hangs {
            tracing::info!(collector = self.entry.name, "a collector answers again");
        }
        self.hangs = hangs;
        (series, new)
    }

    /// A node without such a thing needs no thread for it: only one that looks every minute.
    fn is_time_to_look_again(&self, now: Duration) -> bool {
        let mut papers = self.desk.papers();
        let last = papers.reading.as_ref().map_or(now, |reading| reading.at);
        let is_time = papers.is_ended && now.saturating_sub(last) >= ABSENT_WAIT;
        if is_time {
            papers.is_ended = false;
            papers.wanted = Some(Instant::now());
        }
        is_time
    }

    /// Waits until the reading in progress is there, or takes one where none is; at most until
    /// `deadline`.
    pub(crate) fn settle(&self, deadline: Instant) {
        let mut papers = self.desk.papers();
        let is_new = |papers: &Papers| {
            let number = papers.reading.as_ref().map_or(0, |reading| reading.number);
            number > self.number
        };
        if papers.is_ended {
            return;
        }
        if !is_new(&papers) && papers.started.is_none() {
            papers.wanted = Some(Instant::now());
            self.desk.changed.notify_all();
        }
        while !is_new(&papers) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let result = self.desk.changed.wait_timeout(papers, left);
            papers = result.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn hang(&mut self, clock: &dyn Clock, figures: &CollectorFigures) {
        let reason = match self.desk.note.text() {
            what if what.is_empty() => format!("a reading takes longer than {TIMEOUT:?}"),
            what => format!("{what} has not answered for {TIMEOUT:?}"),
        };
        if !self.hangs {
            tracing::warn!(
                collector = self.entry.name,
                reason,
                "a collector hangs; the others go on"
            );
        }
        self.turn(State::Failed, Some(&reason), clock, figures);
    }

    fn turn(
        &mut self,
        state: State,
        reason: Option<&str>,
        clock: &dyn Clock,
        figures: &CollectorFigures,
    ) {
        if self.state != state || self.reason.as_deref() != reason {
            self.state = state;
            self.reason = reason.map(str::to_owned);
            figures.turned(state, clock.utc(), self.reason.clone());
        }
    }
}

impl Drop for Aside {
    /// The thread ends when its read comes back, and with the process at the latest.
    fn drop(&mut self) {
        self.desk.papers().is_closed = true;
        self.desk.changed.notify_all();
    }
}

/// The thread's work. Its station opens the collector, and again where it is time, and catches
/// panics, as on the sampler's thread.
fn work(desk: &Desk, name: &'static str, mut station: Station, context: &Context) {
    let figures = CollectorFigures::new(name);
    let mut tick = Tick::new(Input::Collect);
    let mut is_opened = false;
    while desk.wait(&*context.clock) {
        let before = processor_time();
        if !is_opened {
            station.open(context, &figures);
            is_opened = true;
        }
        station.pass(context, &figures);
        tick.reset(0);
        station.append_to(&mut tick);
        let cost = processor_time().saturating_sub(before);
        desk.deliver(&mut tick, &figures, context.clock.monotonic(), cost);
        if figures.state() == State::Absent {
            return;
        }
    }
}

/// What this thread has used.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

#[cfg(test)]
mod tests;
