//! One MPI function by name: its series in the lane, and the calls in progress.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use pegel_lane::mpi_state::{ThreadEntry, thread};
use pegel_lane::{Calls, Handle, LaneKind, LaneSeriesSpec, RawHandle};

use crate::thread_words::{self, ThreadWords};
use crate::{family, mpi_state, threads, ticks};

/// The variable with additional labels, separated by commas: `rank`, `pid`.
const LABELS_VARIABLE: &str = "PEGEL_LABELS";

/// The series of one MPI function, created at its first call.
#[derive(Debug)]
pub(crate) struct Call {
    name: &'static str,
    /// Null before the first call; then the slot of the series, or [`not_counted`].
    slot: AtomicPtr<u8>,
    /// Its index in the MPI state; 0 before the first timed call.
    function: AtomicU64,
}

/// The slot of a series that could not be created.
fn not_counted() -> *mut u8 {
    std::ptr::without_provenance_mut(1)
}

/// A counted call in progress. Dropping it, on return or unwinding, clears the thread's flag.
pub(crate) struct ActiveCall {
    slot: *mut u8,
    thread: ThreadWords,
}

impl Call {
    pub(crate) const fn new(name: &'static str) -> Call {
        Call {
            name,
            slot: AtomicPtr::new(null_mut()),
            function: AtomicU64::new(0),
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

    /// Returns whether calls are not counted: they are disabled, or there was no memory.
    #[inline(always)]
    pub(crate) fn is_not_counted(&self) -> bool {
        self.slot.load(Ordering::Acquire) == not_counted()
    }

    /// Returns the index in the MPI state.
    #[inline(always)]
    pub(crate) fn function(&self) -> u64 {
        self.function.load(Ordering::Relaxed)
    }

    /// Stores the name in the MPI state, before the first timed call.
    #[cold]
    pub(crate) fn open_function(&self) {
        if self.function() == 0 && !self.is_not_counted() {
            let function = mpi_state::add_function(self.name);
            self.function.store(function, Ordering::Relaxed);
        }
    }

    /// Starts a call; None if it is not counted. [`Call::open`] must have been called.
    #[inline(always)]
    pub(crate) fn enter(&'static self) -> Option<ActiveCall> {
        let thread = thread_words::of_this_thread();
        let slot = self.slot.load(Ordering::Acquire);
        if thread.is_inside() || slot == not_counted() {
            return None;
        }
        thread.set_inside(true);
        Some(ActiveCall { slot, thread })
    }

    /// Creates the series; called before the first call of this name is counted.
    #[cold]
    pub(crate) fn open(&self) {
        if self.is_open() {
            return;
        }
        family::detect();
        mpi_state::open();
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
    /// Returns the thread's entry in the MPI state.
    #[inline(always)]
    pub(crate) fn thread_entry(&self) -> &'static ThreadEntry {
        self.thread.entry()
    }

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
    pub(crate) fn finish(&self, bytes: u64, begin: u64, end: u64) {
        self.thread_entry()[thread::TICKS].store(end, Ordering::Relaxed);
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
        self.thread.set_inside(false);
    }
}
