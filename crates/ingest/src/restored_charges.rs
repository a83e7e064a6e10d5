//! The charges for totals from before a restart.
//!
//! statsd publishes the totals of the previous agent before their senders return, and each stays
//! charged to the sender that it was charged to before. [`crate::admission`] keeps the permits
//! here by series: when that sender uses the series again, it takes over the permit, so that a
//! sender at its limit keeps what it had. A total whose series does not return releases its permit
//! with its [`RestoredCharge`].

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::admission::SeriesPermit;
use crate::senders::Sender;

/// The permits of totals whose series are not in use yet, by the hash of the series' text.
#[derive(Debug, Default)]
pub(crate) struct RestoredCharges {
    hasher: RandomState,
    permits: Mutex<HashMap<u64, SeriesPermit>>,
}

/// The charge for one total from before a restart. Released when dropped, unless its sender took it
/// over.
#[derive(Debug)]
pub struct RestoredCharge {
    charges: Arc<RestoredCharges>,
    key: u64,
    sender: Arc<Sender>,
}

impl RestoredCharges {
    pub(crate) fn add(
        self: &Arc<RestoredCharges>,
        text: &str,
        permit: SeriesPermit,
    ) -> RestoredCharge {
        let key = self.hasher.hash_one(text);
        let sender = permit.sender().clone();
        self.put_back(text, permit);
        RestoredCharge {
            charges: self.clone(),
            key,
            sender,
        }
    }

    /// Undoes [`RestoredCharges::take_over`].
    pub(crate) fn put_back(&self, text: &str, permit: SeriesPermit) {
        let key = self.hasher.hash_one(text);
        let replaced = self.permits.lock().insert(key, permit);
        drop(replaced);
    }

    /// Returns the permit of a series if it is charged to this sender.
    pub(crate) fn take_over(&self, text: &str, sender: &Arc<Sender>) -> Option<SeriesPermit> {
        let mut permits = self.permits.lock();
        if permits.is_empty() {
            return None;
        }
        let key = self.hasher.hash_one(text);
        let permit = permits.get(&key)?;
        if !Arc::ptr_eq(permit.sender(), sender) {
            return None;
        }
        permits.remove(&key)
    }
}

impl RestoredCharge {
    /// Returns the sender to which the total is charged.
    pub fn sender(&self) -> &Arc<Sender> {
        &self.sender
    }
}

impl Drop for RestoredCharge {
    fn drop(&mut self) {
        let released = self.charges.permits.lock().remove(&self.key);
        drop(released);
    }
}
