//! The sampler thread: waits for the next deadline of the [`Schedule`], runs the due collectors of
//! the [`CollectorSet`] and passes their tick to the sink; several ticks if they were read at
//! different times ([`PassTicks`]).
//!
//! The agent starts it once. The first tick is delivered before [`Sampler::start`] returns, the
//! last one before [`Sampler::stop`] returns. The loop must never block on a collector, and the
//! sink must not block either: a late pass is counted and skipped, never made up for. Threaded
//! collectors are published when their passes are complete, usually [`PUBLISH_DELAY`] later.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use pegel_metric::{Clock, Input, Ledger, Level, Millis, ProcessTable, Tick};
use pegel_supervisor::{CriticalThread, Heartbeat};

use crate::collector_thread::PASS_TIMEOUT;
use crate::pass_ticks::{PassTicks, PassTime};
use crate::{
    ClockPair, CollectSettings, CollectSettingsError, CollectorSet, CollectorStatus, Host,
    LiveProcesses, SamplerStats, Schedule, ScheduleCounts, SelfMetrics,
};

/// Receives each tick. It may take the tick and leave another in its place, which need not be
/// empty.
pub type TickSink = Box<dyn FnMut(&mut Tick) + Send>;

/// The longest wait: the clocks are compared at least this often.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// How long after a pass the sampler publishes the passes of threaded collectors that are complete
/// by then; those that are not, it publishes with the next ticks.
const PUBLISH_DELAY: Duration = Duration::from_millis(50);
/// How long the first sample waits for threaded collectors; later samples never wait.
const FIRST_WAIT_MAX: Duration = Duration::from_millis(30);

#[derive(Debug, thiserror::Error)]
pub enum SamplerStartError {
    #[error(transparent)]
    Settings(#[from] CollectSettingsError),
    #[error("cannot start the sampler thread")]
    Thread(#[source] std::io::Error),
}

/// A handle to the thread that samples the node. Dropping it stops the thread.
#[derive(Debug)]
pub struct Sampler {
    requests: Arc<SamplerRequests>,
    stats: Arc<SamplerStats>,
    live_processes: Arc<LiveProcesses>,
    thread: Option<CriticalThread>,
}

/// The requests of other threads to the sampler thread.
#[derive(Debug, Default)]
struct SamplerRequests {
    state: Mutex<SamplerRequestState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct SamplerRequestState {
    is_stop_requested: bool,
    /// Numbers of the last extra sample that was requested, and of the last that was taken.
    extra_requested: u64,
    extra_taken: u64,
}

impl Sampler {
    /// Opens the collectors, takes the first sample and starts the thread for the following ones.
    /// When this returns, `sink` has received its first tick.
    pub fn start(
        settings: &CollectSettings,
        host: Host,
        level: Level,
        self_metrics: Vec<Arc<dyn SelfMetrics>>,
        ledger: Arc<Ledger>,
        clock: Arc<dyn Clock>,
        sink: TickSink,
    ) -> Result<Sampler, SamplerStartError> {
        let set = CollectorSet::open(settings, host, level, self_metrics, ledger, clock)?;
        set.wait_for_threaded(FIRST_WAIT_MAX);
        let requests = Arc::new(SamplerRequests::default());
        let stats = set.stats().clone();
        let live_processes = set.live_processes().clone();
        let mut run = SamplerLoop::new(set, sink);
        run.sample_due();
        let for_thread = requests.clone();
        let thread = settings.supervisor.thread("sampler");
        let thread = thread
            .critical(move |heartbeat| run.run_until_stopped(&for_thread, heartbeat))
            .map_err(SamplerStartError::Thread)?;
        Ok(Sampler {
            requests,
            stats,
            live_processes,
            thread: Some(thread),
        })
    }

    /// Takes exactly one sample of all collectors, without a sampler thread.
    pub fn sample_once(
        settings: &CollectSettings,
        host: Host,
        level: Level,
        self_metrics: Vec<Arc<dyn SelfMetrics>>,
        ledger: Arc<Ledger>,
        clock: Arc<dyn Clock>,
        mut sink: TickSink,
    ) -> Result<Vec<CollectorStatus>, CollectSettingsError> {
        let mut set = CollectorSet::open(settings, host, level, self_metrics, ledger, clock)?;
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

    /// Returns the latest pass of `top_processes`; `None` before the first, and if it does not run.
    pub fn processes(&self) -> Option<Arc<ProcessTable>> {
        self.live_processes.table()
    }

    pub fn active_count(&self) -> usize {
        self.stats.active_count()
    }

    /// Returns late and missed passes and clock steps since the start.
    pub fn schedule_counts(&self) -> ScheduleCounts {
        self.stats.schedule_counts()
    }

    /// Takes a last sample and ends the thread. When this returns, the sink has received its last
    /// tick.
    pub fn stop(&mut self) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        thread.expect_end();
        self.requests.state.lock().is_stop_requested = true;
        self.requests.changed.notify_all();
        thread.join();
    }

    /// Returns a handle that requests samples between those of the schedule.
    pub fn extra_samples(&self) -> ExtraSamples {
        ExtraSamples(self.requests.clone())
    }
}

/// Requests samples between those of the schedule.
#[derive(Debug, Clone)]
pub struct ExtraSamples(Arc<SamplerRequests>);

impl ExtraSamples {
    /// Takes a sample now. Returns when the sink has received it, or after `timeout`.
    pub fn sample_now(&self, timeout: Duration) {
        let deadline = Instant::now() + timeout;
        let mut state = self.0.state.lock();
        state.extra_requested += 1;
        let wanted = state.extra_requested;
        self.0.changed.notify_all();
        while state.extra_taken < wanted && !state.is_stop_requested {
            if self.0.changed.wait_until(&mut state, deadline).timed_out() {
                break;
            }
        }
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The state of the sampler thread.
struct SamplerLoop {
    set: CollectorSet,
    schedule: Schedule,
    sink: TickSink,
    ticks: PassTicks,
    due: Vec<usize>,
    /// The monotonic time at which passes of threaded collectors are to be published.
    publish_at: Option<Duration>,
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
            ticks: PassTicks::new(),
            due: Vec::new(),
            publish_at: None,
        }
    }

    fn run_until_stopped(mut self, requests: &SamplerRequests, heartbeat: &Heartbeat) {
        // By default the kernel may wake a thread 50 µs late, which is visible at 1000 Hz. Best
        // effort: not permitted everywhere.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let clock = self.set.clock().clone();
        while !self.wait(requests, &*clock) {
            heartbeat.busy();
            self.sample_due();
            self.sample_requested(requests);
            heartbeat.idle();
        }
        self.sample_extra();
    }

    /// Waits for the next deadline, at most a second. Returns true when the thread must end.
    fn wait(&self, requests: &SamplerRequests, clock: &dyn Clock) -> bool {
        let now = clock.monotonic();
        let deadline = self.schedule.deadline().unwrap_or(Duration::MAX);
        let deadline = self.publish_at.map_or(deadline, |at| at.min(deadline));
        let wait = deadline.saturating_sub(now).min(WAIT_MAX);
        let mut state = requests.state.lock();
        let is_requested = state.is_stop_requested || state.extra_requested > state.extra_taken;
        if !wait.is_zero() && !is_requested {
            // Waking up early is harmless: nothing is due yet.
            requests.changed.wait_for(&mut state, wait);
        }
        state.is_stop_requested
    }

    /// Takes a sample that was requested, and reports it to those that wait for it.
    fn sample_requested(&mut self, requests: &SamplerRequests) {
        let state = requests.state.lock();
        let wanted = state.extra_requested;
        if wanted == state.extra_taken {
            return;
        }
        drop(state);
        self.sample_extra();
        requests.state.lock().extra_taken = wanted;
        requests.changed.notify_all();
    }

    fn sample_due(&mut self) {
        let now = ClockPair::read(&**self.set.clock());
        self.schedule.observe(now);
        let mut is_sampled = false;
        while let Some(time) = self.schedule.take_due(now, &mut self.due) {
            self.record_schedule_counts();
            let time = self.pass_time(time);
            self.set.sample_timed(time, &self.due, &mut self.ticks);
            for overrun in self.ticks.overruns() {
                self.schedule.record_overrun(overrun.rate, overrun.time);
            }
            self.ticks.deliver(&mut self.sink);
            is_sampled = true;
        }
        if !is_sampled {
            self.publish_completed(now);
        }
        self.record_schedule_counts();
        let publish_at = self.set.clock().monotonic() + PUBLISH_DELAY;
        self.publish_at = (is_sampled && self.set.is_pass_pending()).then_some(publish_at);
    }

    /// Publishes the completed passes of threaded collectors, between two passes of the schedule.
    fn publish_completed(&mut self, now: ClockPair) {
        if self.set.is_pass_pending() {
            let time = self.pass_time(now.utc_millis());
            self.set.sample_timed(time, &[], &mut self.ticks);
            self.ticks.deliver(&mut self.sink);
        }
    }

    fn record_schedule_counts(&self) {
        let counts = self.schedule.schedule_counts();
        self.set.stats().set_schedule_counts(counts);
    }

    /// Takes a sample that lies between two nominal times and carries the actual time.
    fn sample_extra(&mut self) {
        let now = ClockPair::read(&**self.set.clock());
        self.schedule.observe(now);
        // A late group of the pass before may have been read in this millisecond.
        let newest = self.ticks.newest();
        let time = self.schedule.final_time(now);
        if let Some(time) = time.filter(|time| newest != Some(*time)) {
            let time = self.pass_time(time);
            self.set.sample_all_timed(time, &mut self.ticks);
            self.ticks.deliver(&mut self.sink);
        }
    }

    fn pass_time(&self, nominal: Millis) -> PassTime {
        PassTime {
            nominal,
            offset: Some(self.schedule.offset()),
        }
    }
}

#[cfg(test)]
mod tests;
