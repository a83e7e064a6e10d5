//! The counts of one target, for `/status` and `pegel_remote_write_*`.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use parking_lot::Mutex;
use pegel_metric::Millis;

/// The counts of one target since the start of the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteWriteCounts {
    pub target: String,
    /// The version of the messages that are sent: 1.0 or 2.0.
    pub version: &'static str,
    pub shards: u64,
    /// Samples that the receiver confirmed.
    pub sent: u64,
    /// Confirmed samples that were not newer than what was sent of their series before.
    pub sent_late: u64,
    pub requests: u64,
    /// Bytes of requests that the receiver confirmed, compressed.
    pub bytes: u64,
    /// Failed attempts to send a request; each is retried.
    pub errors: u64,
    /// Samples that the receiver refused.
    pub refused: u64,
    /// Samples that the receiver refused when they were sent again: it may have them.
    pub refused_again: u64,
    /// Samples dropped because more than `lag` bytes waited.
    pub dropped_lag: u64,
    /// Samples that another one of the same series and time replaced before they were sent.
    pub replaced: u64,
    /// Samples of series that have the same labels as another one.
    pub hidden: u64,
    /// Parts of the log that could not be read.
    pub damaged: u64,
    /// Samples that were never in the log because it could not be written.
    pub unlogged: u64,
    /// Samples that are being sent.
    pub pending: u64,
    /// Bytes of the log that are not confirmed.
    pub pending_bytes: u64,
    /// The time of the newest sample that was confirmed.
    pub newest_sent: Option<Millis>,
    pub last_error: Option<String>,
    /// The last response that refused samples.
    pub last_refusal: Option<String>,
}

/// The counters behind [`RemoteWriteCounts`].
#[derive(Debug, Default)]
pub(super) struct TargetCounters {
    pub speaks_v2: AtomicBool,
    pub sent: AtomicU64,
    pub sent_late: AtomicU64,
    pub requests: AtomicU64,
    pub bytes: AtomicU64,
    pub errors: AtomicU64,
    pub refused: AtomicU64,
    pub refused_again: AtomicU64,
    pub dropped_lag: AtomicU64,
    pub replaced: AtomicU64,
    pub hidden: AtomicU64,
    pub damaged: AtomicU64,
    pub pending: AtomicU64,
    pub pending_bytes: AtomicU64,
    /// 0 before the first confirmed sample.
    pub newest_sent: AtomicI64,
    pub last_error: Mutex<Option<String>>,
    pub last_refusal: Mutex<Option<String>>,
}

impl TargetCounters {
    pub(super) fn read(&self, target: &str, shards: u64, unlogged: u64) -> RemoteWriteCounts {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let newest = self.newest_sent.load(Ordering::Relaxed);
        RemoteWriteCounts {
            target: target.to_owned(),
            version: match self.speaks_v2.load(Ordering::Relaxed) {
                true => "2.0",
                false => "1.0",
            },
            shards,
            sent: load(&self.sent),
            sent_late: load(&self.sent_late),
            requests: load(&self.requests),
            bytes: load(&self.bytes),
            errors: load(&self.errors),
            refused: load(&self.refused),
            refused_again: load(&self.refused_again),
            dropped_lag: load(&self.dropped_lag),
            replaced: load(&self.replaced),
            hidden: load(&self.hidden),
            damaged: load(&self.damaged),
            unlogged,
            pending: load(&self.pending),
            pending_bytes: load(&self.pending_bytes),
            newest_sent: (newest != 0).then_some(newest),
            last_error: self.last_error.lock().clone(),
            last_refusal: self.last_refusal.lock().clone(),
        }
    }
}
