use std::fmt;
use std::num::NonZeroU64;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use pegel_metric::{Clock, Input, Ledger, Level, Tick};
use pegel_supervisor::{CriticalThread, Heartbeat};

use crate::threaded_collector::PASS_TIMEOUT;
use crate::{
    ClockPair, CollectSettings, CollectSettingsError, CollectorSet, CollectorStatus, Host,
    SamplerStats, Schedule, ScheduleCounts, SelfMetrics,
};

/// Takes each tick; it may keep it and leave another, emptied or not.
pub type TickSink = Box<dyn FnMut(&mut Tick) + Send>;

/// The clocks are compared at least this often.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// How long the first sample waits for collectors that run aside; later ones never do.
const FIRST_WAIT_MAX: Duration = Duration::from_millis(30);

#[derive(Debug, thiserror::Error)]
pub enum SamplerStartError {
    #[error(transparent)]
    Settings(#[from] CollectSettingsError),
    #[error("cannot start the sampler's thread")]
    Thread(#[source] std::io::Error),
}

/// The thread that samples the node. Dropping it stops it, too.
#[derive(Debug)]
pub struct Sampler {
    stop: Arc<SamplerStop>,
    stats: Arc<SamplerStats>,
    thread: Option<CriticalThread>,
}

#[derive(Debug, Default)]
struct SamplerStop {
    is_requested: Mutex<bool>,
    changed: Condvar,
}

impl Sampler {
    /// Opens the collectors, takes the first sample and starts the thread that takes the others:
    /// when this returns, `sink` had its first tick.
    pub fn start(
        settings: &CollectSettings,
        host: Host,
        level: Level,
        own: Vec<Arc<dyn SelfMetrics>>,
        ledger: Arc<Ledger>,
        clock: Arc<dyn Clock>,
        sink: TickSink,
    ) -> Result<Sampler, SamplerStartError> {
        let set = CollectorSet::open(settings, host, level, own, ledger, clock)?;
        set.wait_for_threaded(FIRST_WAIT_MAX);
        let stop = Arc::new(SamplerStop::default());
        let figures = set.stats().clone();
        let mut run = SamplerLoop::new(set, sink);
        run.sample_due();
        let for_thread = stop.clone();
        let thread = settings.supervisor.thread("sampler");
        let thread = thread
            .critical(move |heartbeat| run.run_until_stopped(&for_thread, heartbeat))
            .map_err(SamplerStartError::Thread)?;
        Ok(Sampler {
            stop,
            stats: figures,
            thread: Some(thread),
        })
    }

    /// Takes exactly one sample, of all collectors, without a thread.
    pub fn sample_once(
        settings: &CollectSettings,
        host: Host,
        level: Level,
        own: Vec<Arc<dyn SelfMetrics>>,
        ledger: Arc<Ledger>,
        clock: Arc<dyn Clock>,
        mut sink: TickSink,
    ) -> Result<Vec<CollectorStatus>, CollectSettingsError> {
        let mut set = CollectorSet::open(settings, host, level, own, ledger, clock)?;
        set.wait_for_threaded(PASS_TIMEOUT);
        let mut tick = Tick::new(Input::Collect);
        let now = set.clock().utc();
        set.sample_all(now, &mut tick);
        sink(&mut tick);
        Ok(set.status())
    }

    pub fn status(&self) -> Vec<CollectorStatus> {
        self.stats.status()
    }

    pub fn active_count(&self) -> usize {
        self.stats.active_count()
    }

    /// Late and missed passes and clock steps since the start.
    pub fn schedule_counts(&self) -> ScheduleCounts {
        self.stats.schedule_counts()
    }

    /// Takes a last sample and ends the thread. When this returns, the sink had its last tick.
    pub fn stop(&mut self) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        thread.expect_end();
        *self
            .stop
            .is_requested
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.changed.notify_all();
        thread.join();
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What the thread works with.
struct SamplerLoop {
    set: CollectorSet,
    schedule: Schedule,
    sink: TickSink,
    tick: Tick,
    due: Vec<usize>,
}

impl fmt::Debug for SamplerLoop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SamplerLoop")
            .field("schedule", &self.schedule)
            .finish_non_exhaustive()
    }
}

impl SamplerLoop {
    fn new(set: CollectorSet, sink: TickSink) -> SamplerLoop {
        let schedule = Schedule::new(set.rates(), ClockPair::read(&**set.clock()));
        SamplerLoop {
            set,
            schedule,
            sink,
            tick: Tick::new(Input::Collect),
            due: Vec::new(),
        }
    }

    fn run_until_stopped(mut self, stop: &SamplerStop, heartbeat: &Heartbeat) {
        // By default the kernel may wake a thread 50 µs late, which shows at 1000 Hz. Without the
        // permission it stays so.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let clock = self.set.clock().clone();
        while !self.wait(stop, &*clock) {
            heartbeat.busy();
            self.sample_due();
            heartbeat.idle();
        }
        self.sample_last();
    }

    /// Waits for the next deadline, at most a second. True when the thread shall end.
    fn wait(&self, stop: &SamplerStop, clock: &dyn Clock) -> bool {
        let now = clock.monotonic();
        let deadline = self.schedule.deadline().unwrap_or(Duration::MAX);
        let wait = deadline.saturating_sub(now).min(WAIT_MAX);
        let is_asked = stop
            .is_requested
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if wait.is_zero() || *is_asked {
            return *is_asked;
        }
        // Waking up early is harmless: nothing is due then.
        let result = stop.changed.wait_timeout(is_asked, wait);
        *result.unwrap_or_else(PoisonError::into_inner).0
    }

    fn sample_due(&mut self) {
        let now = ClockPair::read(&**self.set.clock());
        self.schedule.observe(now);
        while let Some(time) = self.schedule.take_due(now, &mut self.due) {
            self.set
                .stats()
                .set_schedule_counts(self.schedule.schedule_counts());
            self.set.sample(time, &self.due, &mut self.tick);
            self.deliver();
        }
    }

    /// The end of a node's record lies between two nominal times; it carries the time as it is.
    fn sample_last(&mut self) {
        let now = ClockPair::read(&**self.set.clock());
        self.schedule.observe(now);
        if let Some(time) = self.schedule.final_time(now) {
            self.set.sample_all(time, &mut self.tick);
            self.deliver();
        }
    }

    fn deliver(&mut self) {
        if !self.tick.rows().is_empty() {
            (self.sink)(&mut self.tick);
        }
    }
}
