//! The state that the thread of a target shares with its handle and with the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use pegel_store::{LogPosition, Store};

use super::super::counts::TargetCounters;

/// The state that the thread of a target shares with its handle.
#[derive(Debug)]
pub(in crate::remote_write) struct SharedTarget {
    pub name: String,
    pub counters: TargetCounters,
    /// Set when the agent stops: the remaining samples are sent once, without retries.
    pub is_stopping: AtomicBool,
    /// Ends waits for the receiver.
    pub abort: Arc<AtomicBool>,
    pub waits: Mutex<()>,
    pub wake: Condvar,
    /// The position up to which samples are confirmed; `None` until it is loaded.
    pub confirmed: Mutex<Option<LogPosition>>,
    /// The oldest segment of the log that the target needs.
    pub needed_segment: Arc<AtomicU64>,
}

impl SharedTarget {
    /// Waits; returns false when the agent stops.
    pub(super) fn wait(&self, pause: Duration) -> bool {
        let until = Instant::now() + pause;
        let mut waits = self.waits.lock();
        while !self.is_stopping.load(Ordering::Relaxed) && Instant::now() < until {
            self.wake.wait_until(&mut waits, until);
        }
        !self.is_stopping.load(Ordering::Relaxed)
    }

    /// Returns the bytes of the log that are not confirmed: exact within one segment, otherwise as
    /// measured up to a second ago.
    pub(in crate::remote_write) fn pending_bytes(&self, store: &Store) -> u64 {
        let (end, confirmed) = (store.log_end(), *self.confirmed.lock());
        match confirmed {
            Some(confirmed) if confirmed.segment == end.segment => {
                end.offset.saturating_sub(confirmed.offset)
            }
            _ => { &self.counters.pending_bytes }
                .load(Ordering::Relaxed)
                .max(end.offset),
        }
    }

    pub(super) fn set_error(&self, message: &str) {
        self.counters.errors.fetch_add(1, Ordering::Relaxed);
        let mut last = self.counters.last_error.lock();
        // Only the first of equal errors is logged.
        if last.as_deref() != Some(message) {
            tracing::warn!(
                receiver = self.name,
                error = message,
                "cannot send samples with remote write"
            );
            *last = Some(message.to_owned());
        }
    }

    pub(super) fn clear_error(&self) {
        if self.counters.last_error.lock().take().is_some() {
            tracing::info!(
                receiver = self.name,
                "sending samples with remote write works again"
            );
        }
    }
}

/// Releases the segments of the log that no target needs.
#[derive(Debug)]
pub(in crate::remote_write) struct LogRelease {
    pub store: Store,
    /// The oldest segment that each target needs.
    pub needed: Vec<Arc<AtomicU64>>,
}

impl LogRelease {
    pub(super) fn release(&self) {
        let needed = self.needed.iter();
        let needed = needed.map(|segment| segment.load(Ordering::Relaxed));
        self.store.release_log(needed.min().unwrap_or(0));
    }
}
