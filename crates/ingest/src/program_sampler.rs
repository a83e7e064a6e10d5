//! The thread that samples programs' metrics into the store.
//!
//! It wakes at each multiple of the rate, calls every [`ValueSource`] (the lanes, statsd) and sends
//! the changed rows to the store as one tick: with the nominal time, or the time of reading if it
//! woke up late. Readers that need values of this moment call
//! [`ProgramSampler::refresh`]. Sending to the store never blocks: if its queue is full, the tick
//! is dropped and counted. Every pass has a later timestamp than the one before, unless the clock
//! was set back. Passes that senders wait for start in different milliseconds, so that their
//! timestamps do not run ahead of the clock.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use pegel_metric::{Clock, DropReason, Input, Millis, Tick, nominal_tolerance};
use pegel_store::{PushError, Store};
use pegel_supervisor::{CriticalThread, Heartbeat};

use crate::admission::Admission;

/// The shortest interval between passes, however fast the node is sampled: a pass reads every lane.
const INTERVAL_MIN: Duration = Duration::from_millis(100);

/// The interval between searches for names that no sender uses any more.
const UNUSED_NAMES_MS: Millis = 10 * 60 * 1000;

/// Readers may cause one pass per tick on average, and this many at once: each pass stores what
/// changed, so that readers without end must not multiply what is written.
const READER_PASSES_MAX: u32 = 64;

/// If the clock is this far behind the last pass, it was set back.
const CLOCK_STEP_BACK_MS: Millis = 5_000;

/// How often a pass waits for the next millisecond before it takes a timestamp ahead of the clock:
/// the clock was set back a little, or stands still in a test.
const NEXT_MILLISECOND_WAITS: u32 = 3;

/// A source of current values: the lanes, statsd.
pub trait ValueSource: Send + fmt::Debug {
    /// Brings the values up to date and adds the rows that changed.
    fn update(&mut self, tick: &mut Tick);

    /// Brings only the values up to date for which senders wait until they are in the log, and adds
    /// their rows.
    fn update_awaited(&mut self, _tick: &mut Tick) {}
}

fn update_all(source: &mut dyn ValueSource, tick: &mut Tick) {
    source.update(tick);
}

/// The running sampler. Stops when dropped, after a last pass.
#[derive(Debug)]
pub struct ProgramSampler {
    shared: Arc<ProgramSamplerContext>,
    thread: Mutex<Option<CriticalThread>>,
}

#[derive(Debug)]
struct ProgramSamplerContext {
    store: Store,
    admission: Arc<Admission>,
    clock: Arc<dyn Clock>,
    state: Mutex<ProgramSamplerState>,
    is_stopping: AtomicBool,
    wake: Condvar,
    sleep: Mutex<()>,
}

#[derive(Debug)]
struct ProgramSamplerState {
    sources: Vec<Box<dyn ValueSource>>,
    tick: Tick,
    last: Millis,
    /// The number of passes that readers may cause now.
    reader_passes: u32,
    /// When unused names were last freed.
    names_freed: Millis,
}

impl ProgramSampler {
    pub fn start(
        sources: Vec<Box<dyn ValueSource>>,
        store: Store,
        admission: Arc<Admission>,
        clock: Arc<dyn Clock>,
        rate: Duration,
    ) -> std::io::Result<ProgramSampler> {
        let freed = clock.utc();
        let shared = Arc::new(ProgramSamplerContext {
            store,
            admission,
            clock,
            state: Mutex::new(ProgramSamplerState {
                sources,
                tick: Tick::new(Input::Programs),
                last: Millis::MIN,
                reader_passes: READER_PASSES_MAX,
                names_freed: freed,
            }),
            is_stopping: AtomicBool::new(false),
            wake: Condvar::new(),
            sleep: Mutex::new(()),
        });
        // End series that a previous agent left behind before the first query.
        shared.pass(shared.clock.utc(), &mut shared.state(), update_all);
        let for_thread = shared.clone();
        let rate = rate.max(INTERVAL_MIN);
        let thread = shared.store.supervisor().thread("programs");
        let thread = thread.critical(move |heartbeat| for_thread.run(rate, heartbeat))?;
        Ok(ProgramSampler {
            shared,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Adds a source.
    pub fn add(&self, source: Box<dyn ValueSource>) {
        self.shared.state().sources.push(source);
    }

    /// Takes the values of this moment for a reader. On success they are in the log and readable.
    /// If readers ask more often than once per tick for long, the values are those of the last
    /// tick. Blocks on the log: do not call from async workers.
    pub fn refresh(&self) -> Result<(), PushError> {
        self.write(|shared| {
            let mut state = shared.state();
            if let Some(left) = state.reader_passes.checked_sub(1) {
                state.reader_passes = left;
                shared.pass(shared.clock.utc(), &mut state, update_all);
            }
        })
    }

    /// Writes the values that senders wait for. On success they are in the log and readable. Values
    /// of other senders are left to the next tick. Blocks on the log: do not call from async
    /// workers.
    pub fn write_awaited(&self) -> Result<(), PushError> {
        self.write(|shared| {
            let update =
                |source: &mut dyn ValueSource, tick: &mut Tick| source.update_awaited(tick);
            let mut state = shared.state_in_next_millisecond();
            shared.pass(shared.clock.utc(), &mut state, update);
        })
    }

    fn write(&self, pass: impl FnOnce(&ProgramSamplerContext)) -> Result<(), PushError> {
        let dropped = || {
            let ledger = self.shared.admission.ledger();
            ledger.dropped_total(Input::Programs, DropReason::QueueFull)
        };
        let before = dropped();
        pass(&self.shared);
        // Ticks are written in order: once an empty push is written, so is this tick, and so is the
        // one of a pass that took the values just before.
        self.check_log()?;
        if dropped() == before {
            Ok(())
        } else {
            Err(PushError::QueueFull)
        }
    }

    /// Waits until everything queued so far is written. Returns an error if the log cannot be
    /// written.
    pub fn check_log(&self) -> Result<(), PushError> {
        let nothing = Vec::new();
        self.shared.store.push(Input::Programs, nothing).map(drop)
    }

    /// Stops the thread after a last pass.
    pub fn stop(&self) {
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            thread.expect_end();
            self.shared.is_stopping.store(true, Ordering::Relaxed);
            drop(self.shared.sleep.lock());
            self.shared.wake.notify_all();
            thread.join();
            let shared = &self.shared;
            shared.pass(shared.clock.utc(), &mut shared.state(), update_all);
        }
    }
}

impl Drop for ProgramSampler {
    fn drop(&mut self) {
        self.stop();
    }
}

impl ProgramSamplerContext {
    fn run(&self, rate: Duration, heartbeat: &Heartbeat) {
        let rate_ms = rate.as_millis() as Millis;
        loop {
            let now = self.clock.utc();
            let next = (now.div_euclid(rate_ms) + 1) * rate_ms;
            self.sleep(Duration::from_millis((next - now) as u64));
            if self.is_stopping.load(Ordering::Relaxed) {
                return;
            }
            heartbeat.busy();
            self.admission
                .set_store_series_count(self.store.status().series);
            let now = self.clock.utc();
            let mut state = self.state();
            state.reader_passes = (state.reader_passes + 1).min(READER_PASSES_MAX);
            self.pass(pass_time(now, rate), &mut state, update_all);
            drop(state);
            heartbeat.idle();
        }
    }

    fn sleep(&self, time: Duration) {
        let mut guard = self.sleep.lock();
        if !self.is_stopping.load(Ordering::Relaxed) {
            // Waking early only causes an early pass.
            self.wake.wait_for(&mut guard, time);
        }
    }

    /// Updates the sources and stores what changed, with this time or a later one.
    fn pass(
        &self,
        at: Millis,
        state: &mut ProgramSamplerState,
        update: impl Fn(&mut dyn ValueSource, &mut Tick),
    ) {
        let ProgramSamplerState {
            sources,
            tick,
            last,
            names_freed: freed,
            ..
        } = state;
        // Passes for readers lie between two nominal times. After a clock that was set back, times
        // start again.
        let is_same_clock = last.saturating_sub(at) < CLOCK_STEP_BACK_MS;
        let time = if *last >= at && is_same_clock {
            *last + 1
        } else {
            at
        };
        tick.reset(time);
        self.admission.senders().refill(at);
        if (at - *freed).abs() >= UNUSED_NAMES_MS {
            *freed = at;
            let keep = Millis::try_from(self.store.retention().as_millis()).unwrap_or(Millis::MAX);
            self.admission.name_owners().forget_unused(at, keep);
        }
        for source in sources {
            update(&mut **source, tick);
        }
        if !tick.rows().is_empty() {
            *last = time;
            self.store.tick(tick);
        }
    }

    /// Locks the state when the clock is past the last pass. Meanwhile other senders can add
    /// values, which the same pass writes.
    fn state_in_next_millisecond(&self) -> MutexGuard<'_, ProgramSamplerState> {
        for _ in 0..NEXT_MILLISECOND_WAITS {
            let state = self.state();
            let next = state.last.saturating_add(1).saturating_mul(1_000_000);
            let wait = next.saturating_sub(self.clock.utc_nanos());
            let Some(wait) = u64::try_from(wait).ok().filter(|wait| *wait > 0) else {
                return state;
            };
            drop(state);
            thread::sleep(Duration::from_nanos(wait).min(Duration::from_millis(1)));
        }
        self.state()
    }

    fn state(&self) -> MutexGuard<'_, ProgramSamplerState> {
        self.state.lock()
    }
}

/// Returns the time of a pass: the nominal time, or now if that is too far from it.
fn pass_time(now: Millis, rate: Duration) -> Millis {
    let late = now.rem_euclid(rate.as_millis() as Millis);
    if late <= nominal_tolerance(rate).as_millis() as Millis {
        now - late
    } else {
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_pass_carries_the_time_of_reading() {
        let rate = Duration::from_millis(500);
        for (now, expected) in [
            (10_000, 10_000),
            (10_005, 10_000),
            (10_006, 10_006),
            (10_499, 10_499),
            (10_503, 10_500),
        ] {
            assert_eq!(pass_time(now, rate), expected, "at {now}");
        }
        assert_eq!(pass_time(10_101, Duration::from_millis(100)), 10_100);
        assert_eq!(pass_time(10_102, Duration::from_millis(100)), 10_102);
    }
}
