//! One MPI function by name: its series in the lane, and the calls in progress.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use pegel_lane::{Calls, Handle, LaneKind, LaneSeriesSpec, RawHandle};

use crate::inside_flag::{self, InsideFlag};
use crate::{family, threads, ticks};

/// The variable with additional labels, separated by commas: `rank`, `pid`.
const LABELS_VARIABLE: &str = "PEGEL_LABELS";

/// The series of one MPI function, created at its first call.
#[derive(Debug)]
pub(crate) struct Call {
    name: &'static str,
    /// Null before the first call; then the slot of the series, or [`not_counted`].
    slot: AtomicPtr<u8>,
}

/// The slot of a series that could not be created.
fn not_counted() -> *mut u8 {
    std::ptr::without_provenance_mut(1)
}

/// A counted call in progress. Dropping it, on return or unwinding, clears the thread's flag.
pub(crate) struct ActiveCall {
    slot: *mut u8,
    inside: InsideFlag,
}

impl Call {
    pub(crate) const fn new(name: &'static str) -> Call {
        Call {
            name,
            slot: AtomicPtr::new(null_mut()),
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Returns whether the first call was made.
    #[inline(always)]
    pub(crate) fn is_open(&self) -> bool {
        !self.slot.load(Ordering::Acquire).is_null()
    }

    /// Starts a call; None if it is not counted. [`Call::open`] must have been called.
    #[inline(always)]
    pub(crate) fn enter(&'static self) -> Option<ActiveCall> {
        let inside = inside_flag::of_this_thread();
        let slot = self.slot.load(Ordering::Acquire);
        if inside.get() || slot == not_counted() {
            return None;
        }
        inside.set(true);
        Some(ActiveCall { slot, inside })
    }

    /// Creates the series; called before the first call of this name is counted.
    #[cold]
    pub(crate) fn open(&self) {
        if self.is_open() {
            return;
        }
        family::detect();
        ticks::start();
        let labels = std::env::var(LABELS_VARIABLE).unwrap_or_default();
        let wants = |label| labels.split(',').any(|word| word.trim() == label);
        let spec = LaneSeriesSpec {
            help: "MPI calls of programs under pegel run",
            labels: &[("call", self.name)],
            with_pid: wants("pid"),
            with_rank: wants("rank"),
            ..LaneSeriesSpec::new(LaneKind::Calls, "mpi")
        };
        // Concurrent threads get the same series.
        let slot = Calls::create(&spec).map_or(not_counted(), RawHandle::as_ptr);
        self.slot.store(slot, Ordering::Release);
    }
}

impl ActiveCall {
    #[inline]
    fn calls(&self) -> Calls {
        // SAFETY: `slot` comes from the handle created in `open`; `enter` excludes `not_counted`.
        unsafe { Calls::from_ptr(self.slot) }
    }

    /// Counts the call without bytes and time.
    #[inline]
    pub(crate) fn hit(&self) {
        self.calls().hit();
    }

    /// Counts the call with its bytes and time. Not inlined, because there are over a thousand
    /// wrappers.
    #[inline(never)]
    pub(crate) fn finish(self, bytes: u64, begin: u64, end: u64) {
        let nanos = ticks::nanos(begin, end);
        // More than any process can have: an invalid count, which must not spoil the sum.
        let bytes = if bytes >> 62 == 0 { bytes } else { 0 };
        if threads::is_serialized() {
            self.calls().add_alone(bytes, nanos);
        } else {
            self.calls().add(bytes, nanos);
        }
    }
}

impl Drop for ActiveCall {
    #[inline]
    fn drop(&mut self) {
        self.inside.set(false);
    }
}
