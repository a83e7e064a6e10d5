//! The ring of points, shared by all threads of one process without a lock.
//!
//! A writer takes the next number, claims its slot, writes, and marks the slot complete. The
//! sequence of a slot is `2n + 1` while point `n` is being written and `2n + 2` once it is
//! complete. A writer that finds its slot claimed by a slower writer drops its point: the reader
//! sees a gap, as for a point that was overwritten before it was read.

use crate::atomic::{AtomicU64, Ordering, fence};

#[repr(C)]
#[derive(Debug)]
pub(crate) struct RingSlot {
    pub sequence: AtomicU64,
    pub time: AtomicU64,
    pub value: AtomicU64,
    pub series: AtomicU64,
}

pub(crate) const fn complete_sequence(number: u64) -> u64 {
    number.wrapping_mul(2).wrapping_add(2)
}

/// Adds a point. Returns false if a slower writer occupies its slot.
///
/// The number of slots must be a power of two.
pub(crate) fn push(
    head: &AtomicU64,
    places: &[RingSlot],
    series: u64,
    time: i64,
    value: f64,
) -> bool {
    let number = head.fetch_add(1, Ordering::Relaxed);
    let Some(place) = places.get(number as usize & (places.len().wrapping_sub(1))) else {
        return false;
    };
    let writing = complete_sequence(number).wrapping_sub(1);
    let before = place.sequence.load(Ordering::Relaxed);
    let is_free = before % 2 == 0 && before < writing;
    if !is_free
        || place
            .sequence
            .compare_exchange(before, writing, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
    {
        return false;
    }
    // A reader that sees a part of this point also sees that its number was taken and its slot
    // claimed.
    fence(Ordering::Release);
    place.time.store(time as u64, Ordering::Relaxed);
    place.value.store(value.to_bits(), Ordering::Relaxed);
    place.series.store(series, Ordering::Relaxed);
    place
        .sequence
        .store(complete_sequence(number), Ordering::Release);
    true
}

/// The state of a slot with respect to a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlotState {
    Complete,
    /// Not written yet, or dropped.
    Pending,
    /// A later point has taken the slot.
    Overwritten,
}

pub(crate) fn slot_state(mark: u64, number: u64) -> SlotState {
    match mark.cmp(&complete_sequence(number)) {
        std::cmp::Ordering::Equal => SlotState::Complete,
        std::cmp::Ordering::Less => SlotState::Pending,
        std::cmp::Ordering::Greater => SlotState::Overwritten,
    }
}
