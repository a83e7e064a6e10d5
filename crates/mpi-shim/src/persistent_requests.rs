//! The bytes of persistent requests, which are known when a request is created and counted at each
//! start.
//!
//! A lock-free hash table of fixed size with linear probing. Entries are claimed by
//! compare-and-swap of the handle; a removed entry leaves a tombstone, so that later entries of the
//! same probe sequence are still found.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The capacity. Requests beyond it are counted and timed when started, but without bytes.
const REQUESTS_MAX: usize = 8192;
/// The maximum length of a probe sequence.
const PROBES: usize = 32;

const EMPTY: usize = 0;
/// A tombstone: later entries of the probe sequence must still be found.
const REMOVED: usize = usize::MAX;

static REQUESTS: Requests = Requests {
    entries: [const { RequestEntry::new() }; REQUESTS_MAX],
};

struct RequestEntry {
    handle: AtomicUsize,
    bytes: AtomicU64,
}

/// Static and zeroed: its pages cost no memory until the first persistent request, which most
/// programs never create.
struct Requests {
    entries: [RequestEntry; REQUESTS_MAX],
}

pub(crate) fn insert(handle: usize, bytes: u64) {
    REQUESTS.insert(handle, bytes);
}

pub(crate) fn bytes_of(handle: usize) -> u64 {
    let entry = REQUESTS.find(handle);
    entry.map_or(0, |entry| entry.bytes.load(Ordering::Acquire))
}

pub(crate) fn remove(handle: usize) {
    if let Some(entry) = REQUESTS.find(handle) {
        entry.handle.store(REMOVED, Ordering::Release);
    }
}

impl RequestEntry {
    const fn new() -> RequestEntry {
        RequestEntry {
            handle: AtomicUsize::new(EMPTY),
            bytes: AtomicU64::new(0),
        }
    }
}

impl Requests {
    fn probe_entries(&self, handle: usize) -> impl Iterator<Item = &RequestEntry> {
        let mixed = (handle as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let first = mixed as usize % REQUESTS_MAX;
        let (before, from) = self.entries.split_at(first);
        from.iter().chain(before).take(PROBES)
    }

    fn find(&self, handle: usize) -> Option<&RequestEntry> {
        if handle == EMPTY || handle == REMOVED {
            return None;
        }
        for entry in self.probe_entries(handle) {
            match entry.handle.load(Ordering::Acquire) {
                EMPTY => return None,
                there if there == handle => return Some(entry),
                _ => {}
            }
        }
        None
    }

    /// Inserts a request. The library gives a handle to one thread, so that no handle is inserted
    /// concurrently.
    fn insert(&self, handle: usize, bytes: u64) {
        if handle == EMPTY || handle == REMOVED {
            return;
        }
        if let Some(entry) = self.find(handle) {
            return entry.bytes.store(bytes, Ordering::Release);
        }
        for entry in self.probe_entries(handle) {
            let there = entry.handle.load(Ordering::Relaxed);
            if !matches!(there, EMPTY | REMOVED) {
                continue;
            }
            // Claim the entry first: another thread may be inserting into the same one.
            let taken =
                entry
                    .handle
                    .compare_exchange(there, handle, Ordering::AcqRel, Ordering::Relaxed);
            if taken.is_ok() {
                return entry.bytes.store(bytes, Ordering::Release);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_of_a_request_is_known_until_it_is_freed() {
        insert(0x1000, 80);
        insert(0x2000, 16);
        assert_eq!((bytes_of(0x1000), bytes_of(0x2000)), (80, 16));
        remove(0x1000);
        assert_eq!((bytes_of(0x1000), bytes_of(0x2000)), (0, 16));
        insert(0x1000, 8);
        insert(0x2000, 24);
        assert_eq!((bytes_of(0x1000), bytes_of(0x2000)), (8, 24));
        assert_eq!((bytes_of(0), bytes_of(usize::MAX)), (0, 0));
    }

    #[test]
    fn more_than_fit_are_left_out_and_the_others_stay_right() {
        let requests = Box::new(Requests {
            entries: [const { RequestEntry::new() }; REQUESTS_MAX],
        });
        for handle in 1..=2 * REQUESTS_MAX {
            requests.insert(handle, handle as u64);
        }
        let found: Vec<usize> = (1..=2 * REQUESTS_MAX)
            .filter(|handle| requests.find(*handle).is_some())
            .collect();
        assert!(found.len() > REQUESTS_MAX / 2, "{}", found.len());
        for handle in found {
            let entry = requests.find(handle).expect("found before");
            assert_eq!(entry.bytes.load(Ordering::Relaxed), handle as u64);
        }
    }
}
