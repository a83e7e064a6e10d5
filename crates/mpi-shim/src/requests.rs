//! Requests that the library remembers: persistent ones, whose bytes are known when they are
//! created and counted at each start, and those of collectives, so that a thread that waits for one
//! is known to wait for that collective.
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
    collectives: AtomicUsize::new(0),
};

struct RequestEntry {
    handle: AtomicUsize,
    bytes: AtomicU64,
    /// The collective of the request, as in a thread's entry of the MPI state: communicator,
    /// function and starts. 0 if it is not that of a collective, else with [`KNOWN`].
    operation: AtomicU64,
    number: AtomicU64,
}

/// A bit of an operation between communicator and function; see [`CollectiveRequest::operand`].
const KNOWN: u64 = 1 << 15;

/// The collective that a request belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CollectiveRequest {
    /// Index of the communicator, function (from bit 16) and starts (from bit 32).
    pub operand: u64,
    pub number: u64,
}

/// Static and zeroed: its pages cost no memory until the first persistent request, which most
/// programs never create.
struct Requests {
    entries: [RequestEntry; REQUESTS_MAX],
    /// The number of entries with an operation.
    collectives: AtomicUsize,
}

/// Remembers a persistent request.
pub(crate) fn insert(handle: usize, bytes: u64) {
    REQUESTS.insert(handle, bytes, None);
}

pub(crate) fn bytes_of(handle: usize) -> u64 {
    let entry = REQUESTS.find(handle);
    entry.map_or(0, |entry| entry.bytes.load(Ordering::Acquire))
}

pub(crate) fn remove(handle: usize) {
    REQUESTS.remove(handle);
}

/// Remembers the request of a collective. The bytes of a persistent one are kept.
pub(crate) fn insert_collective(handle: usize, collective: CollectiveRequest) {
    REQUESTS.insert(handle, bytes_of(handle), Some(collective));
}

/// Returns whether any request of a collective is remembered.
#[inline(always)]
pub(crate) fn has_collectives() -> bool {
    REQUESTS.collectives.load(Ordering::Relaxed) != 0
}

pub(crate) fn collective_of(handle: usize) -> Option<CollectiveRequest> {
    REQUESTS.find(handle).and_then(RequestEntry::collective)
}

/// Counts a start of a persistent collective.
pub(crate) fn count_start(handle: usize) {
    if let Some(entry) = REQUESTS.find(handle).filter(|e| e.collective().is_some()) {
        entry.operation.fetch_add(1 << 32, Ordering::Relaxed);
    }
}

impl RequestEntry {
    const fn new() -> RequestEntry {
        RequestEntry {
            handle: AtomicUsize::new(EMPTY),
            bytes: AtomicU64::new(0),
            operation: AtomicU64::new(0),
            number: AtomicU64::new(0),
        }
    }

    fn collective(&self) -> Option<CollectiveRequest> {
        let operation = self.operation.load(Ordering::Acquire);
        (operation != 0).then(|| CollectiveRequest {
            operand: operation & !KNOWN,
            number: self.number.load(Ordering::Relaxed),
        })
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

    fn remove(&self, handle: usize) {
        if let Some(entry) = self.find(handle) {
            self.set(entry, 0, None);
            entry.handle.store(REMOVED, Ordering::Release);
        }
    }

    fn set(&self, entry: &RequestEntry, bytes: u64, collective: Option<CollectiveRequest>) {
        entry.bytes.store(bytes, Ordering::Release);
        let number = collective.map_or(0, |collective| collective.number);
        entry.number.store(number, Ordering::Relaxed);
        let operation = collective.map_or(0, |collective| collective.operand | KNOWN);
        let before = entry.operation.swap(operation, Ordering::Release);
        match (before, operation) {
            (0, 1..) => self.collectives.fetch_add(1, Ordering::Relaxed),
            (1.., 0) => self.collectives.fetch_sub(1, Ordering::Relaxed),
            _ => 0,
        };
    }

    /// Inserts a request. The library gives a handle to one thread, so that no handle is inserted
    /// concurrently.
    fn insert(&self, handle: usize, bytes: u64, collective: Option<CollectiveRequest>) {
        if handle == EMPTY || handle == REMOVED {
            return;
        }
        if let Some(entry) = self.find(handle) {
            return self.set(entry, bytes, collective);
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
                return self.set(entry, bytes, collective);
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
    fn a_collective_is_known_by_its_request_until_it_is_complete() {
        let requests = Box::new(Requests {
            entries: [const { RequestEntry::new() }; REQUESTS_MAX],
            collectives: AtomicUsize::new(0),
        });
        let count = || requests.collectives.load(Ordering::Relaxed);
        let of = |handle| requests.find(handle).and_then(RequestEntry::collective);
        let first = CollectiveRequest {
            operand: 0,
            number: 7,
        };
        requests.insert(0x10, 0, Some(first));
        requests.insert(0x20, 16, None);
        assert_eq!((of(0x10), of(0x20), count()), (Some(first), None, 1));
        // A persistent request takes the handle of the completed one.
        requests.insert(0x10, 8, None);
        assert_eq!((of(0x10), count()), (None, 0));
        requests.insert(0x10, 8, Some(first));
        requests.remove(0x10);
        assert_eq!((of(0x10), count()), (None, 0));
    }

    #[test]
    fn more_than_fit_are_left_out_and_the_others_stay_right() {
        let requests = Box::new(Requests {
            entries: [const { RequestEntry::new() }; REQUESTS_MAX],
            collectives: AtomicUsize::new(0),
        });
        for handle in 1..=2 * REQUESTS_MAX {
            requests.insert(handle, handle as u64, None);
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
