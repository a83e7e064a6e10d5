//! The supervisor's record of one thread, and the heartbeat by which the thread updates it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::Serialize;

use crate::STUCK_AFTER;

/// The state of a thread, as `/status` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ThreadStatus {
    pub name: String,
    pub state: ThreadState,
    /// How often it was restarted after a panic.
    pub restarts: u64,
    /// The message of its last panic.
    pub error: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ThreadState {
    Running,
    /// Busy with one task for longer than [`STUCK_AFTER`].
    Stuck,
    /// Pausing before the next start.
    Restarting,
    Ended,
}

#[derive(Debug)]
pub(crate) struct ThreadRecord {
    name: String,
    created: Instant,
    /// Milliseconds from `created` to the start of the task in progress, plus one; 0 between two
    /// tasks.
    busy_since: AtomicU64,
    pub(crate) is_end_expected: AtomicBool,
    progress: Mutex<ThreadProgress>,
}

#[derive(Debug, Default)]
struct ThreadProgress {
    restarts: u64,
    error: Option<String>,
    is_pausing: bool,
    has_ended: bool,
}

impl ThreadRecord {
    pub(crate) fn new(name: &str) -> ThreadRecord {
        ThreadRecord {
            name: name.to_owned(),
            created: Instant::now(),
            busy_since: AtomicU64::new(0),
            is_end_expected: AtomicBool::new(false),
            progress: Mutex::default(),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn expect_end(&self) {
        self.is_end_expected.store(true, Ordering::Release);
    }

    pub(crate) fn is_end_expected(&self) -> bool {
        self.is_end_expected.load(Ordering::Acquire)
    }

    pub(crate) fn ended(&self) {
        self.busy_since.store(0, Ordering::Relaxed);
        self.progress.lock().has_ended = true;
    }

    pub(crate) fn panicked(&self, message: &str) {
        let mut progress = self.progress.lock();
        progress.error = Some(message.to_owned());
        progress.is_pausing = true;
    }

    pub(crate) fn restarted(&self) {
        let mut progress = self.progress.lock();
        progress.restarts += 1;
        progress.is_pausing = false;
    }

    fn busy_for(&self) -> Duration {
        match self.busy_since.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            since => (self.created.elapsed()).saturating_sub(Duration::from_millis(since - 1)),
        }
    }

    pub(crate) fn stuck(&self) -> Option<String> {
        let busy = self.busy_for();
        (busy >= STUCK_AFTER).then(|| {
            let seconds = busy.as_secs();
            format!(
                "thread {} has been busy with one task for {seconds} s",
                self.name
            )
        })
    }

    pub(crate) fn fault(&self) -> Option<String> {
        let progress = self.progress.lock();
        let error = progress.error.as_deref().unwrap_or_default();
        let pausing = progress.is_pausing.then(|| {
            format!(
                "thread {} panicked and will be restarted: {error}",
                self.name
            )
        });
        drop(progress);
        pausing.or_else(|| self.stuck())
    }

    pub(crate) fn status(&self) -> ThreadStatus {
        let is_stuck = self.busy_for() >= STUCK_AFTER;
        let progress = self.progress.lock();
        ThreadStatus {
            name: self.name.clone(),
            state: match () {
                () if progress.has_ended => ThreadState::Ended,
                () if progress.is_pausing => ThreadState::Restarting,
                () if is_stuck => ThreadState::Stuck,
                () => ThreadState::Running,
            },
            restarts: progress.restarts,
            error: progress.error.clone(),
        }
    }

    /// Creates a record whose task began this long ago.
    #[cfg(test)]
    pub(crate) fn stalled_for(name: &str, time: Duration) -> ThreadRecord {
        let mut record = ThreadRecord::new(name);
        record.created -= time;
        record.busy_since = AtomicU64::new(1);
        record
    }
}

/// Reports the progress of a thread. A thread that never calls [`Heartbeat::busy`], because its
/// tasks may take minutes, is never considered stuck.
#[derive(Debug, Clone)]
pub struct Heartbeat(pub(crate) Arc<ThreadRecord>);

impl Heartbeat {
    /// Marks the start of a task, or progress within one.
    pub fn busy(&self) {
        let now = self.0.created.elapsed().as_millis();
        let now = u64::try_from(now).unwrap_or(u64::MAX - 1);
        self.0.busy_since.store(now + 1, Ordering::Relaxed);
    }

    /// Marks the end of a task: the thread waits for the next one.
    pub fn idle(&self) {
        self.0.busy_since.store(0, Ordering::Relaxed);
    }
}
