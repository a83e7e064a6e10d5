//! The thread of one server: sends batches, and stores those that it cannot send.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use pegel_metric::{Clock, Millis};
use pegel_store::Store;
use pegel_supervisor::{RestartedThread, Supervisor};

use super::connection::Connection;
use super::flush::{Batch, Flush};
use super::settings::GraphiteSettings;
use super::spool::Spool;

const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// A connection that is open this long after a batch was sent has delivered it.
const CONFIRM_AFTER: Duration = Duration::from_secs(5);
/// How long the last batch is still sent when the agent stops; what remains is stored.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// What an output needs from the agent.
#[derive(Debug)]
pub struct GraphiteOutputOptions {
    pub settings: GraphiteSettings,
    pub node: String,
    /// Where batches wait.
    pub spool_dir: PathBuf,
    pub store: Store,
    pub clock: Arc<dyn Clock>,
    pub supervisor: Supervisor,
}

/// The output to one server. Dropping it sends the newest values and ends its thread.
#[derive(Debug)]
pub struct GraphiteOutput {
    shared: Arc<SharedOutput>,
    thread: Option<RestartedThread>,
}

/// The counts of one server since the start of the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GraphiteCounts {
    pub server: String,
    pub is_connected: bool,
    pub sent: u64,
    /// Failed attempts to connect or send.
    pub errors: u64,
    /// Values dropped because the spool was full or could not be written.
    pub dropped: u64,
    /// Values that Graphite cannot store, such as NaN.
    pub unsuitable: u64,
    pub spool_bytes: u64,
    pub last_error: Option<String>,
}

#[derive(Debug)]
struct SharedOutput {
    server: String,
    is_connected: AtomicBool,
    sent: AtomicU64,
    errors: AtomicU64,
    dropped: AtomicU64,
    unsuitable: AtomicU64,
    spool_bytes: AtomicU64,
    last_error: Mutex<Option<String>>,
    /// Set when the agent stops: until then, the last batch is still sent.
    stop_at: Mutex<Option<Instant>>,
    wake: Condvar,
}

impl GraphiteOutput {
    pub fn start(options: GraphiteOutputOptions) -> io::Result<GraphiteOutput> {
        let shared = Arc::new(SharedOutput {
            server: options.settings.server_name(),
            is_connected: AtomicBool::new(false),
            sent: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            unsuitable: AtomicU64::new(0),
            spool_bytes: AtomicU64::new(0),
            last_error: Mutex::new(None),
            stop_at: Mutex::new(None),
            wake: Condvar::new(),
        });
        let for_thread = shared.clone();
        let supervisor = options.supervisor.clone();
        let thread = supervisor
            .thread("graphite")
            .restarted(move || GraphiteSender::new(&options, for_thread.clone()).run())?;
        Ok(GraphiteOutput {
            shared,
            thread: Some(thread),
        })
    }

    pub fn counts(&self) -> GraphiteCounts {
        let shared = &self.shared;
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        GraphiteCounts {
            server: shared.server.clone(),
            is_connected: shared.is_connected.load(Ordering::Relaxed),
            sent: load(&shared.sent),
            errors: load(&shared.errors),
            dropped: load(&shared.dropped),
            unsuitable: load(&shared.unsuitable),
            spool_bytes: load(&shared.spool_bytes),
            last_error: shared.last_error.lock().clone(),
        }
    }
}

impl Drop for GraphiteOutput {
    fn drop(&mut self) {
        *self.shared.stop_at.lock() = Some(Instant::now() + STOP_GRACE);
        self.shared.wake.notify_all();
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
    }
}

/// A batch with its place in the order of all batches.
#[derive(Debug)]
struct NumberedBatch {
    sequence: u64,
    values: u64,
    bytes: Vec<u8>,
}

/// The state of the thread.
struct GraphiteSender<'a> {
    options: &'a GraphiteOutputOptions,
    shared: Arc<SharedOutput>,
    flush: Flush,
    spool: Spool,
    connection: Option<Connection>,
    /// The last batch that was sent. If the connection turns out to be broken, it may not have
    /// arrived, and is sent again: Graphite keeps one value for each time.
    unconfirmed: Option<NumberedBatch>,
    /// When a batch on disk was last sent. It stays there until it is known to have arrived.
    spooled_at: Instant,
    next_sequence: u64,
    /// When the next attempt to connect is allowed.
    retry_at: Instant,
    pause: Duration,
}

impl GraphiteSender<'_> {
    fn new(options: &GraphiteOutputOptions, shared: Arc<SharedOutput>) -> GraphiteSender<'_> {
        let settings = &options.settings;
        let spool = Spool::open(options.spool_dir.clone(), settings.spool_bytes.count());
        GraphiteSender {
            options,
            shared,
            flush: Flush::new(settings, &options.node),
            next_sequence: spool.next_sequence(),
            spool,
            connection: None,
            unconfirmed: None,
            spooled_at: Instant::now(),
            retry_at: Instant::now(),
            pause: PAUSE_MIN,
        }
    }

    /// Sends the current values at multiples of the interval, until the agent stops.
    fn run(mut self) {
        self.publish_spool();
        loop {
            let is_stopping = !self.wait_for_flush();
            let now = self.options.clock.utc();
            let batch = self.flush.read(&self.options.store, now);
            self.deliver(batch);
            if is_stopping {
                return;
            }
        }
    }

    /// Waits until the next flush, and sends what waits on disk meanwhile. Returns false when the
    /// agent stops.
    fn wait_for_flush(&mut self) -> bool {
        let interval = self.options.settings.interval.duration();
        let interval_ms = Millis::try_from(interval.as_millis())
            .unwrap_or(Millis::MAX)
            .max(1);
        let passed = self.options.clock.utc().rem_euclid(interval_ms);
        let left = u64::try_from(interval_ms - passed).unwrap_or(1);
        let flush_at = Instant::now() + Duration::from_millis(left);
        loop {
            let until = match self.spool.is_sent() {
                true => flush_at,
                false => self.retry_at.min(flush_at),
            };
            if !self.wait_until(until) {
                return false;
            }
            if Instant::now() >= flush_at {
                return true;
            }
            self.send_spooled(Some(flush_at));
        }
    }

    /// Returns false when the agent stops.
    fn wait_until(&self, until: Instant) -> bool {
        let mut stop_at = self.shared.stop_at.lock();
        while stop_at.is_none() && Instant::now() < until {
            self.shared.wake.wait_until(&mut stop_at, until);
        }
        stop_at.is_none()
    }

    /// Sends a batch after everything that waits, or stores it.
    fn deliver(&mut self, batch: Batch) {
        self.confirm_spooled();
        let shared = &self.shared;
        shared
            .unsuitable
            .fetch_add(batch.unsuitable, Ordering::Relaxed);
        if batch.values == 0 {
            return;
        }
        let batch = NumberedBatch {
            sequence: self.next_sequence,
            values: batch.values,
            bytes: batch.bytes,
        };
        self.next_sequence += 1;
        self.send_spooled(None);
        if !self.spool.is_sent() {
            self.store(&batch);
            return;
        }
        match self.send(&batch.bytes) {
            Ok(()) => {
                self.count_sent(batch.values);
                self.unconfirmed = Some(batch);
            }
            Err(error) => {
                self.fail(&error);
                self.store(&batch);
            }
        }
    }

    /// Sends the batches on disk, oldest first, until one fails or the time is over.
    fn send_spooled(&mut self, until: Option<Instant>) {
        while until.is_none_or(|until| Instant::now() < until)
            && let Some(next) = self.spool.next()
        {
            let content = match next.content {
                Ok(content) => content,
                Err(error) => {
                    tracing::warn!(server = self.shared.server, %error, "cannot read stored values");
                    self.shared
                        .dropped
                        .fetch_add(next.values, Ordering::Relaxed);
                    self.spool.remove_next();
                    continue;
                }
            };
            if let Err(error) = self.send(&content) {
                self.fail(&error);
                break;
            }
            self.count_sent(next.values);
            self.spool.mark_sent();
            self.spooled_at = Instant::now();
        }
        self.publish_spool();
    }

    /// Removes batches on disk that were sent a while ago over a connection that is still open.
    fn confirm_spooled(&mut self) {
        let is_open = |connection: &Connection| !connection.is_closed();
        if self.spooled_at.elapsed() >= CONFIRM_AFTER
            && self.connection.as_ref().is_some_and(is_open)
        {
            self.spool.confirm();
            self.publish_spool();
        }
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let reconnect = self.options.settings.reconnect_interval.duration();
        let is_due = |connection: &Connection| {
            reconnect.is_some_and(|interval| connection.opened.elapsed() >= interval)
        };
        if self.connection.as_ref().is_some_and(is_due) {
            self.connection = None;
        }
        if self.connection.as_ref().is_some_and(Connection::is_closed) {
            self.connection = None;
            return Err(io::Error::other("the server closed the connection"));
        }
        let connection = match &mut self.connection {
            Some(connection) => connection,
            None if Instant::now() < self.retry_at => {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            None => self
                .connection
                .insert(Connection::open(&self.options.settings)?),
        };
        let stop_at = *self.shared.stop_at.lock();
        connection.send(bytes, stop_at)
    }

    fn count_sent(&mut self, values: u64) {
        let shared = &self.shared;
        shared.sent.fetch_add(values, Ordering::Relaxed);
        shared.is_connected.store(true, Ordering::Relaxed);
        self.pause = PAUSE_MIN;
        if shared.last_error.lock().take().is_some() {
            tracing::info!(server = shared.server, "values are sent to Graphite again");
        }
    }

    /// Closes the connection after a failure. What may not have arrived waits on disk again.
    fn fail(&mut self, error: &io::Error) {
        // Within the pause nothing was tried.
        if error.kind() == io::ErrorKind::WouldBlock {
            return;
        }
        self.connection = None;
        self.retry_at = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        let shared = &self.shared;
        shared.is_connected.store(false, Ordering::Relaxed);
        shared.errors.fetch_add(1, Ordering::Relaxed);
        let text = error.to_string();
        let last = shared.last_error.lock().replace(text.clone());
        // Only the first of equal errors is logged.
        if self.options.settings.log_send_errors && last.as_ref() != Some(&text) {
            tracing::warn!(server = shared.server, %error, "cannot send values to Graphite");
        }
        let taken_back = self.spool.take_back();
        shared.sent.fetch_sub(taken_back, Ordering::Relaxed);
        if let Some(batch) = self.unconfirmed.take() {
            shared.sent.fetch_sub(batch.values, Ordering::Relaxed);
            self.store(&batch);
        }
    }

    fn store(&mut self, batch: &NumberedBatch) {
        let stored = self.spool.push(batch.sequence, batch.values, &batch.bytes);
        let dropped = stored.unwrap_or_else(|error| {
            tracing::warn!(server = self.shared.server, %error, "cannot store values for Graphite");
            batch.values
        });
        self.shared.dropped.fetch_add(dropped, Ordering::Relaxed);
        self.publish_spool();
    }

    fn publish_spool(&self) {
        self.shared
            .spool_bytes
            .store(self.spool.bytes(), Ordering::Relaxed);
    }
}
