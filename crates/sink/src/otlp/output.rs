//! The thread of one receiver: sends the values of each interval.
//!
//! A request that fails is retried until the next interval begins, after pauses that double or
//! after the time that the receiver requested. Then it is dropped and its points are counted: the
//! next values are newer totals. At most the requests of one interval are in memory.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use pegel_metric::{Clock, Millis};
use pegel_store::Store;
use pegel_supervisor::{RestartedThread, Supervisor};
use pegel_wire::otlp::messages::collector::ExportMetricsServiceRequest;

use super::client::{ExportError, export};
use super::metric_builder::MetricBuilder;
use super::settings::OtlpSettings;

const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// How long stopping waits for the last values to be sent.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// The parts of the agent that an output uses.
#[derive(Debug)]
pub struct OtlpOutputOptions {
    pub settings: OtlpSettings,
    pub node: String,
    pub version: String,
    pub store: Store,
    pub clock: Arc<dyn Clock>,
    pub supervisor: Supervisor,
}

/// The output to one receiver. Dropping it sends the newest values and ends its thread.
#[derive(Debug)]
pub struct OtlpOutput {
    shared: Arc<SharedOtlpOutput>,
    thread: Option<RestartedThread>,
}

/// The counts of one receiver since the start of the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtlpCounts {
    pub receiver: String,
    pub is_connected: bool,
    /// Data points that the receiver accepted.
    pub sent: u64,
    /// Failed attempts to send a request.
    pub errors: u64,
    /// Data points of requests that could not be sent before the next interval.
    pub dropped: u64,
    /// Data points that the receiver refused.
    pub rejected: u64,
    /// Values that are not numbers.
    pub unsuitable: u64,
    pub last_error: Option<String>,
}

#[derive(Debug)]
struct SharedOtlpOutput {
    receiver: String,
    is_connected: AtomicBool,
    sent: AtomicU64,
    errors: AtomicU64,
    dropped: AtomicU64,
    rejected: AtomicU64,
    unsuitable: AtomicU64,
    last_error: Mutex<Option<String>>,
    /// Set when the agent stops: the time until which the last values are sent.
    stop_at: Mutex<Option<Instant>>,
    wake: Condvar,
    /// Set when the agent stops: ends a wait for the receiver.
    abort: Arc<AtomicBool>,
}

impl OtlpOutput {
    pub fn start(options: OtlpOutputOptions) -> io::Result<OtlpOutput> {
        let shared = Arc::new(SharedOtlpOutput {
            receiver: options.settings.receiver_name(),
            is_connected: AtomicBool::new(false),
            sent: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            unsuitable: AtomicU64::new(0),
            last_error: Mutex::new(None),
            stop_at: Mutex::new(None),
            wake: Condvar::new(),
            abort: Arc::default(),
        });
        let for_thread = shared.clone();
        let supervisor = options.supervisor.clone();
        let thread = supervisor
            .thread("otlp")
            .restarted(move || OtlpSender::new(&options, for_thread.clone()).run())?;
        Ok(OtlpOutput {
            shared,
            thread: Some(thread),
        })
    }

    pub fn counts(&self) -> OtlpCounts {
        let shared = &self.shared;
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        OtlpCounts {
            receiver: shared.receiver.clone(),
            is_connected: shared.is_connected.load(Ordering::Relaxed),
            sent: load(&shared.sent),
            errors: load(&shared.errors),
            dropped: load(&shared.dropped),
            rejected: load(&shared.rejected),
            unsuitable: load(&shared.unsuitable),
            last_error: shared.last_error.lock().clone(),
        }
    }
}

impl Drop for OtlpOutput {
    fn drop(&mut self) {
        *self.shared.stop_at.lock() = Some(Instant::now() + STOP_GRACE);
        self.shared.abort.store(true, Ordering::Relaxed);
        self.shared.wake.notify_all();
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
    }
}

/// The state of the thread.
struct OtlpSender<'a> {
    options: &'a OtlpOutputOptions,
    shared: Arc<SharedOtlpOutput>,
    builder: MetricBuilder,
    /// The time before which no attempt is made.
    retry_at: Instant,
    pause: Duration,
}

impl OtlpSender<'_> {
    fn new(options: &OtlpOutputOptions, shared: Arc<SharedOtlpOutput>) -> OtlpSender<'_> {
        OtlpSender {
            options,
            shared,
            builder: MetricBuilder::new(&options.settings, &options.node, &options.version),
            retry_at: Instant::now(),
            pause: PAUSE_MIN,
        }
    }

    /// Sends the current values at multiples of the interval, until the agent stops.
    fn run(mut self) {
        loop {
            let is_stopping = !self.wait_until(self.next_export());
            let export = self
                .builder
                .read(&self.options.store, self.options.clock.utc());
            let count = &self.shared.unsuitable;
            count.fetch_add(export.unsuitable, Ordering::Relaxed);
            self.deliver(export.requests.into());
            if is_stopping {
                return;
            }
        }
    }

    fn next_export(&self) -> Instant {
        let interval = self.options.settings.interval.duration();
        let interval = Millis::try_from(interval.as_millis()).unwrap_or(Millis::MAX);
        let passed = self.options.clock.utc().rem_euclid(interval.max(1));
        let left = u64::try_from(interval.max(1) - passed).unwrap_or(1);
        Instant::now() + Duration::from_millis(left)
    }

    /// Returns false when the agent stops.
    fn wait_until(&self, until: Instant) -> bool {
        let mut stop_at = self.shared.stop_at.lock();
        while stop_at.is_none() && Instant::now() < until {
            self.shared.wake.wait_until(&mut stop_at, until);
        }
        stop_at.is_none()
    }

    /// Sends requests until all are sent or the time is over; the rest is dropped.
    fn deliver(&mut self, mut requests: VecDeque<(ExportMetricsServiceRequest, u64)>) {
        let until = self.next_export();
        while let Some((request, points)) = requests.front() {
            let stop_at = *self.shared.stop_at.lock();
            let end = stop_at.unwrap_or(until);
            let attempt_at = self.retry_at.max(Instant::now());
            if attempt_at >= end {
                break;
            }
            // Returns at once when the agent stops: the last values are sent without a pause.
            if stop_at.is_none() && !self.wait_until(attempt_at) {
                continue;
            }
            let settings = &self.options.settings;
            let timeout = settings.timeout.duration();
            let (timeout, abort) = match stop_at {
                None => (timeout, Some(self.shared.abort.clone())),
                // The last values are sent until this time.
                Some(end) => (
                    timeout.min(end.saturating_duration_since(Instant::now())),
                    None,
                ),
            };
            match export(settings, request, timeout, abort) {
                Ok(accepted) => {
                    self.count_sent(*points, accepted.rejected, &accepted.message);
                    requests.pop_front();
                }
                Err(ExportError::Refused(message)) => {
                    let rejected = &self.shared.rejected;
                    rejected.fetch_add(*points, Ordering::Relaxed);
                    self.fail(&message, None);
                    requests.pop_front();
                }
                Err(ExportError::Retry(message, after)) => self.fail(&message, after),
            }
        }
        let left: u64 = requests.iter().map(|(_, points)| points).sum();
        self.shared.dropped.fetch_add(left, Ordering::Relaxed);
    }

    fn count_sent(&mut self, points: u64, rejected: u64, message: &str) {
        let shared = &self.shared;
        let rejected = rejected.min(points);
        shared.sent.fetch_add(points - rejected, Ordering::Relaxed);
        shared.rejected.fetch_add(rejected, Ordering::Relaxed);
        shared.is_connected.store(true, Ordering::Relaxed);
        self.pause = PAUSE_MIN;
        let mut last_error = shared.last_error.lock();
        if rejected > 0 {
            let text = format!("{rejected} data points were refused: {message}");
            if last_error.as_ref() != Some(&text) {
                tracing::warn!(
                    receiver = shared.receiver,
                    message,
                    "an OTLP receiver refused values"
                );
            }
            *last_error = Some(text);
        } else if last_error.take().is_some() {
            tracing::info!(
                receiver = shared.receiver,
                "sending values to an OTLP receiver works again"
            );
        }
    }

    fn fail(&mut self, message: &str, after: Option<Duration>) {
        self.retry_at = Instant::now() + retry_pause(self.pause, after);
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        let shared = &self.shared;
        shared.is_connected.store(false, Ordering::Relaxed);
        shared.errors.fetch_add(1, Ordering::Relaxed);
        let last = shared.last_error.lock().replace(message.to_owned());
        // Only the first of equal errors is logged.
        if last.as_deref() != Some(message) {
            tracing::warn!(
                receiver = shared.receiver,
                message,
                "cannot send values to an OTLP receiver"
            );
        }
    }
}

/// Returns the pause before the next attempt: at least the time that the receiver requested. A
/// receiver that requests no pause is not asked again at once.
fn retry_pause(own: Duration, requested: Option<Duration>) -> Duration {
    own.max(requested.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_can_lengthen_the_pause_and_not_shorten_it() {
        let seconds = Duration::from_secs;
        assert_eq!(retry_pause(PAUSE_MIN, None), PAUSE_MIN);
        assert_eq!(retry_pause(PAUSE_MIN, Some(Duration::ZERO)), PAUSE_MIN);
        assert_eq!(retry_pause(seconds(8), Some(seconds(5))), seconds(8));
        assert_eq!(retry_pause(PAUSE_MIN, Some(seconds(30))), seconds(30));
    }
}
