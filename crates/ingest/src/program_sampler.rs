//! The beat at which programs' metrics reach the store: a thread that wakes at each multiple of the rate.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pegel_metric::{Clock, DropReason, Input, Millis, Tick};
use pegel_store::{PushError, Store};
use pegel_supervisor::{CriticalThread, Heartbeat};

use crate::admission::Admission;

/// Sources are asked this often at most, however fast the node is sampled: a pass reads every lane.
const INTERVAL_MIN: Duration = Duration::from_millis(100);

/// Names found in the store after a restart are freed when no sender of their input used them for this long.
const UNUSED_NAMES_MS: Millis = 10 * 60 * 1000;

/// A clock that is this far behind the last pass was set back.
const CLOCK_STEP_BACK_MS: Millis = 5_000;

/// Something whose current values go to the store: the lanes, statsd.
pub trait ValueSource: Send + fmt::Debug {
    /// Brings the values up to date and adds the rows that changed.
    fn update(&mut self, tick: &mut Tick);
}

/// The running beat. Stops when dropped, after a last pass.
#[derive(Debug)]
pub struct ProgramSampler {
    shared: Arc<ProgramSamplerContext>,
    thread: Mutex<Option<CriticalThread>>,
}

#[derive(Debug)]
struct ProgramSamplerContext {
    store: Store,
    gate: Arc<Admission>,
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
    /// When unused names were last freed.
    names_freed: Millis,
}

impl ProgramSampler {
    pub fn start(
        sources: Vec<Box<dyn ValueSource>>,
        store: Store,
        gate: Arc<Admission>,
        clock: Arc<dyn Clock>,
        rate: Duration,
    ) -> std::io::Result<ProgramSampler> {
        let freed = clock.utc();
        let shared = Arc::new(ProgramSamplerContext {
            store,
            gate,
            clock,
            state: Mutex::new(ProgramSamplerState {
                sources,
                tick: Tick::new(Input::Programs),
                last: Millis::MIN,
                names_freed: freed,
            }),
            is_stopping: AtomicBool::new(false),
            wake: Condvar::new(),
            sleep: Mutex::new(()),
        });
        // What was left by an agent before this one is ended before anyone can ask.
        shared.pass(shared.clock.utc());
        let for_thread = shared.clone();
        let rate = rate.max(INTERVAL_MIN);
        let thread = shared.store.supervisor().thread("programs");
        let thread = thread.critical(move |heartbeat| for_thread.run(rate, heartbeat))?;
        Ok(ProgramSampler {
            shared,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// One more to be asked.
    pub fn add(&self, source: Box<dyn ValueSource>) {
        self.shared.state().sources.push(source);
    }

    /// Takes the values of this moment. When this returns they are in the log and can be read, or it says why
    /// not. Waits for the log: not for async workers.
    pub fn refresh(&self) -> Result<(), PushError> {
        let dropped = || {
            let ledger = self.shared.gate.ledger();
            ledger.dropped_total(Input::Programs, DropReason::QueueFull)
        };
        let before = dropped();
        self.shared.pass(self.shared.clock.utc());
        // Ticks are written in their order: when an empty push is through, so is this one, and so is the one
        // that took the values a moment before us.
        self.check_log()?;
        match dropped() == before {
            true => Ok(()),
            false => Err(PushError::QueueFull),
        }
    }

    /// Says why the log cannot be written, when all that is queued before has been.
    pub fn check_log(&self) -> Result<(), PushError> {
        let nothing = Vec::new();
        self.shared.store.push(Input::Programs, nothing).map(drop)
    }

    /// Ends the beat with a last pass.
    pub fn stop(&self) {
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread {
            thread.expect_end();
            self.shared.is_stopping.store(true, Ordering::Relaxed);
            drop(self.shared.sleep.lock());
            self.shared.wake.notify_all();
            thread.join();
            self.shared.pass(self.shared.clock.utc());
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
        let rate = rate.as_millis() as Millis;
        loop {
            let now = self.clock.utc();
            let next = (now.div_euclid(rate) + 1) * rate;
            self.sleep(Duration::from_millis((next - now) as u64));
            if self.is_stopping.load(Ordering::Relaxed) {
                return;
            }
            heartbeat.busy();
            self.gate.set_store_series_count(self.store.status().series);
            let now = self.clock.utc();
            self.pass(now - now.rem_euclid(rate));
            heartbeat.idle();
        }
    }

    fn sleep(&self, time: Duration) {
        let guard = self.sleep.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_stopping.load(Ordering::Relaxed) {
            // Waking early only means a pass before its time.
            let _ = self.wake.wait_timeout(guard, time);
        }
    }

    fn pass(&self, nominal: Millis) {
        let mut beat = self.state();
        let ProgramSamplerState {
            sources,
            tick,
            last,
            names_freed: freed,
        } = &mut *beat;
        // Readers' passes lie between two nominal times; a clock that was set back starts anew.
        let is_same_clock = last.saturating_sub(nominal) < CLOCK_STEP_BACK_MS;
        let time = if *last >= nominal && is_same_clock {
            *last + 1
        } else {
            nominal
        };
        tick.reset(time);
        self.gate.senders().refill(nominal);
        if (nominal - *freed).abs() >= UNUSED_NAMES_MS {
            *freed = nominal;
            self.gate.name_owners().forget_unused();
        }
        for source in sources {
            source.update(tick);
        }
        if !tick.rows().is_empty() {
            *last = time;
            self.store.tick(tick);
        }
    }

    fn state(&self) -> MutexGuard<'_, ProgramSamplerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
