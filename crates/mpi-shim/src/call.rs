//! One MPI function by name: its series in the lane, and who is inside of it.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use pegel_lane::{Calls, Handle, LaneKind, LaneSeriesSpec, RawHandle};

use crate::inside_flag::{self, InsideFlag};
use crate::{family, threads, ticks};

/// Words that ask for labels, separated by commas: `rank`, `pid`.
const LABELS_VARIABLE: &str = "PEGEL_LABELS";

#[derive(Debug)]
pub(crate) struct Call {
    name: &'static str,
    /// Null before the first call; then the series' slot, or [`off`].
    slot: AtomicPtr<u8>,
}

/// Stands for a series that is not counted.
fn not_counted() -> *mut u8 {
    std::ptr::without_provenance_mut(1)
}

/// A call that is going on and counts. When it goes, by return or by unwinding, the thread is outside again.
pub(crate) struct ActiveCall {
    slot: *mut u8,
    inside: InsideFlag,
}

impl Call {
    pub const fn new(name: &'static str) -> Call {
        Call {
            name,
            slot: AtomicPtr::new(null_mut()),
        }
    }

    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Whether the first call was made already.
    #[inline(always)]
    pub fn is_open(&self) -> bool {
        !self.slot.load(Ordering::Acquire).is_null()
    }

    /// None when this call does not count. [`Call::open`] comes before.
    #[inline(always)]
    pub fn enter(&'static self) -> Option<ActiveCall> {
        let inside = inside_flag::of_this_thread();
        let slot = self.slot.load(Ordering::Acquire);
        if inside.get() || slot == not_counted() {
            return None;
        }
        inside.set(true);
        Some(ActiveCall { slot, inside })
    }

    /// Before the first call of this name.
    #[cold]
    pub fn open(&self) {
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
        // Two threads may come here at once: both get the same series.
        let slot = Calls::create(&spec).map_or(not_counted(), RawHandle::as_ptr);
        self.slot.store(slot, Ordering::Release);
    }
}

impl ActiveCall {
    #[inline]
    fn calls(&self) -> Calls {
        // SAFETY: it comes from the handle that `open` made.
        unsafe { Calls::from_ptr(self.slot) }
    }

    /// Counts the call without bytes and time.
    #[inline]
    pub fn hit(&self) {
        self.calls().hit();
    }

    /// Not inlined: there are a thousand wrappers.
    #[inline(never)]
    pub fn finish(self, bytes: u64, begin: u64, end: u64) {
        let nanos = ticks::nanos(begin, end);
        // More than any process has: a mistake, which must not spoil the sum.
        let bytes = if bytes >> 62 == 0 { bytes } else { 0 };
        match threads::is_serialized() {
            true => self.calls().add_alone(bytes, nanos),
            false => self.calls().add(bytes, nanos),
        }
    }
}

impl Drop for ActiveCall {
    #[inline]
    fn drop(&mut self) {
        self.inside.set(false);
    }
}
