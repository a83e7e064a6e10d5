//! The communicators of this process: their ids, which agree between all members without
//! communication, and the numbers of their collectives.
//!
//! `MPI_COMM_WORLD` has id 0. The id of a communicator that a collective on its parent created is
//! made from the parent's id, the number of that collective and the rank in `MPI_COMM_WORLD` of its
//! first member, which distinguishes the parts of `MPI_Comm_split`. Any other is *found* at its
//! first use: its id is made from its members, and from how many communicators with the same
//! members were found before.
//!
//! Handles are looked up in a hash table with one entry per bucket; what is not there is searched
//! in the area, in the slow path of a wrapper.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use pegel_lane::mpi_state::{COMMS_MAX, CommEntry, MpiStateArea, comm};

use crate::family::mpi_family;
use crate::{mpi_queries, mpi_state};

/// Index of all communicators for which the area has no room: their collectives are not numbered.
const UNTRACKED: u64 = COMMS_MAX as u64;
static UNTRACKED_ENTRY: CommEntry = [const { AtomicU64::new(0) }; 8];

/// A bucket contains the handle and, in its lower 8 bits, the index.
static BUCKETS: [AtomicU64; 4096] = [const { AtomicU64::new(0) }; 4096];
/// The significant bits of a handle: the upper half of a register with an `int` is undefined.
static HANDLE_MASK: AtomicU64 = AtomicU64::new(0);
static ENTRIES: AtomicPtr<CommEntry> = AtomicPtr::new(std::ptr::null_mut());
/// The number of communicators found, by their members. Held while one is added.
static FOUND: Mutex<Vec<(u64, u64)>> = Mutex::new(Vec::new());
/// The most different groups of members that are told apart by number.
const FOUND_MAX: usize = 1024;

pub(crate) fn open(area: MpiStateArea) {
    let mask = match mpi_family().handle_bytes() {
        4 => 0xffff_ffff,
        _ => 0x00ff_ffff_ffff_ffff,
    };
    HANDLE_MASK.store(mask, Ordering::Relaxed);
    let entries = area.comms().as_ptr().cast_mut();
    ENTRIES.store(entries, Ordering::Release);
}

/// Whether `MPI_COMM_WORLD` may be used: programs with sessions only have none.
static HAS_WORLD: AtomicBool = AtomicBool::new(false);

/// Notes that `MPI_Init` has returned. Returns the handle of `MPI_COMM_WORLD`.
pub(crate) fn open_world() -> Option<usize> {
    HAS_WORLD.store(true, Ordering::Release);
    world()
}

/// Returns the handle of `MPI_COMM_WORLD`; `None` if there is none.
pub(crate) fn world() -> Option<usize> {
    let has_world = HAS_WORLD.load(Ordering::Acquire);
    mpi_family().comm_world().filter(|_| has_world)
}

/// Returns the significant bits of a handle.
#[inline(always)]
pub(crate) fn masked(handle: usize) -> u64 {
    handle as u64 & HANDLE_MASK.load(Ordering::Relaxed)
}

#[inline(always)]
fn bucket_of(handle: u64) -> &'static AtomicU64 {
    let at = handle.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52;
    &BUCKETS[at as usize]
}

/// Returns the index of a communicator; `None` if it is not in its bucket. A word with other bits
/// than those of the handle is not found here, but in the slow path.
#[inline(always)]
pub(crate) fn index_of(word: usize) -> Option<u64> {
    let found = bucket_of(word as u64).load(Ordering::Relaxed);
    ((found ^ (word as u64) << 8) <= 0xff).then_some(found & 0xff)
}

fn set_bucket(handle: u64, index: u64) {
    bucket_of(handle).store(handle << 8 | index, Ordering::Relaxed);
}

/// Empties the bucket of a communicator.
fn clear_bucket(handle: u64) {
    // No communicator has the handle 0.
    bucket_of(handle).store(0, Ordering::Relaxed);
}

#[inline(always)]
fn entry(index: u64) -> &'static CommEntry {
    if index >= UNTRACKED {
        return &UNTRACKED_ENTRY;
    }
    // SAFETY: an index is known after `open`, which points at COMMS_MAX entries that stay mapped.
    unsafe { &*ENTRIES.load(Ordering::Relaxed).add(index as usize) }
}

/// Numbers a collective and returns its number. MPI does not permit two at once on the same
/// communicator, so that a plain addition suffices.
#[inline(always)]
pub(crate) fn count_collective(index: u64, function: u64) -> u64 {
    let last = &entry(index)[comm::LAST];
    let number = (last.load(Ordering::Relaxed) >> 16) + 1;
    last.store(number << 16 | function, Ordering::Relaxed);
    number
}

/// Returns the number of the last collective on a communicator.
pub(crate) fn last_number(index: u64) -> u64 {
    entry(index)[comm::LAST].load(Ordering::Relaxed) >> 16
}

/// Finds a communicator, or adds it, and puts it into its bucket. Returns its index.
#[cold]
pub(crate) fn find_or_add(handle: usize) -> u64 {
    let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(index) = index_of(handle).or_else(|| find(handle)) {
        return index;
    }
    let masked_handle = masked(handle);
    let family = mpi_family();
    let is = |known: Option<usize>| known.is_some_and(|known| known as u64 == masked_handle);
    if is(family.comm_null()) {
        // Not queried: the library would report an error of a function that the program did not
        // call.
        return UNTRACKED;
    }
    if is(family.comm_world()) {
        return add(handle, CommIdentity::default());
    }
    let world = mpi_state::area().map_or(0, |_| own_world_rank());
    if is(family.comm_self()) {
        let id = mix(1, world) | 1;
        let flags = comm::FLAG_SELF;
        return add(
            handle,
            CommIdentity {
                id,
                flags,
                ..CommIdentity::default()
            },
        );
    }
    let members = mpi_queries::members_hash(handle);
    let known = found.iter_mut().find(|(key, _)| *key == members);
    let count = match known {
        Some((_, count)) => {
            *count += 1;
            *count
        }
        None => {
            if found.len() < FOUND_MAX {
                found.push((members, 0));
            }
            0
        }
    };
    let id = mix(mix(2, members), count) | 1;
    let flags = comm::FLAG_FOUND;
    add(
        handle,
        CommIdentity {
            id,
            flags,
            ..CommIdentity::default()
        },
    )
}

fn own_world_rank() -> u64 {
    let rank = world().and_then(mpi_queries::rank);
    rank.unwrap_or(0).max(0) as u64
}

/// Adds a communicator that the last collective on `parent` created.
pub(crate) fn add_created(parent: usize, handle: usize) {
    let _lock = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(index) = index_of(parent).filter(|index| *index < UNTRACKED) else {
        return;
    };
    // A handle in use before must have been freed.
    if let Some(stale) = index_of(handle).or_else(|| find(handle)) {
        release(handle, stale);
    }
    let (parent, created) = {
        let entry = entry(index);
        let word = |at: usize| entry[at].load(Ordering::Relaxed);
        (word(comm::ID), word(comm::LAST))
    };
    let first = u64::from(mpi_queries::first_world_rank(handle).unwrap_or(u32::MAX));
    let id = mix(mix(mix(3, parent), created >> 16), first) | 1;
    let identity = CommIdentity {
        id,
        parent,
        created,
        flags: 0,
    };
    add(handle, identity);
}

/// Removes the handle of a communicator that is about to be freed. Returns its index.
pub(crate) fn forget(handle: usize) -> u64 {
    let index = find_or_add(handle);
    let handle = masked(handle);
    clear_bucket(handle);
    index
}

/// Frees the entry of a communicator that was freed.
pub(crate) fn clear(index: u64) {
    if let Some(area) = mpi_state::area() {
        area.clear_comm(index as usize);
    }
}

fn release(handle: usize, index: u64) {
    let handle = masked(handle);
    clear_bucket(handle);
    clear(index);
}

/// Searches the area: two handles may have the same bucket.
fn find(handle: usize) -> Option<u64> {
    let handle = masked(handle);
    let area = mpi_state::area()?;
    let index = area.comms().iter().position(|entry| {
        is_used(entry) && entry[comm::HANDLE].load(Ordering::Relaxed) == handle
    })?;
    set_bucket(handle, index as u64);
    Some(index as u64)
}

fn is_used(entry: &CommEntry) -> bool {
    entry[comm::FLAGS].load(Ordering::Relaxed) >> 32 & u64::from(comm::FLAG_USED) != 0
}

#[derive(Default)]
struct CommIdentity {
    id: u64,
    parent: u64,
    created: u64,
    flags: u32,
}

/// Adds an entry; the caller holds the lock.
fn add(handle: usize, identity: CommIdentity) -> u64 {
    let masked = masked(handle);
    let area = mpi_state::area();
    let free = area.and_then(|area| area.comms().iter().position(|entry| !is_used(entry)));
    let index = free.map_or(UNTRACKED, |index| index as u64);
    if index == UNTRACKED {
        if let Some(area) = area {
            area.count_untracked_comm();
        }
    } else {
        let entry = entry(index);
        let store = |at: usize, word: u64| entry[at].store(word, Ordering::Relaxed);
        let first = mpi_queries::first_world_rank(handle).unwrap_or(u32::MAX);
        let size = mpi_queries::members(handle) as u64;
        let rank = mpi_queries::rank(handle).unwrap_or(-1) as u32;
        store(comm::LAST, 0);
        store(comm::ID, identity.id);
        store(comm::PARENT, identity.parent);
        store(comm::CREATED, identity.created);
        store(comm::MEMBERS, u64::from(first) | size << 32);
        store(comm::HANDLE, masked);
        let flags = u64::from(identity.flags | comm::FLAG_USED) << 32;
        entry[comm::FLAGS].store(flags | u64::from(rank), Ordering::Release);
    }
    set_bucket(masked, index);
    index
}

/// Combines two words into one that depends on all of their bits.
pub(crate) fn mix(a: u64, b: u64) -> u64 {
    let mixed = (a ^ b.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 29)
        .wrapping_add(b)
        .wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ mixed >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_depend_on_order_and_on_every_word() {
        assert_ne!(mix(1, 2), mix(2, 1));
        assert_ne!(mix(0, 0), mix(0, 1));
        let mut ids: Vec<u64> = (0..1000).map(|n| mix(mix(3, n % 10), n / 10)).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 1000);
    }
}
