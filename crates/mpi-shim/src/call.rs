//! One MPI function by name: its series in the lane, and who is inside of it.

use std::cell::Cell;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use pegel_lane::{Calls, Handle, Kind, RawHandle, Spec};

use crate::{threads, ticks};

/// Words that ask for labels, separated by commas: `rank`, `pid`.
const LABELS_VARIABLE: &str = "PEGEL_LABELS";

thread_local! {
    /// Whether this thread is inside an MPI call. What the library calls in turn does not count.
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

#[derive(Debug)]
pub(crate) struct Call {
    name: &'static str,
    /// Null before the first call; then the series' slot, or [`off`].
    slot: AtomicPtr<u8>,
}

/// Stands for a series that is not counted.
fn off() -> *mut u8 {
    std::ptr::without_provenance_mut(1)
}

/// A call that is going on and counts. When it goes, by return or by unwinding, the thread is outside again.
pub(crate) struct Visit {
    slot: *mut u8,
    inside: *const Cell<bool>,
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

    /// None when this call does not count.
    #[inline(always)]
    pub fn enter(&'static self) -> Option<Visit> {
        let inside: *const Cell<bool> = IS_INSIDE.with(|inside| inside as *const _);
        // SAFETY: it lives as long as this thread, and belongs to it alone.
        let is_inside = unsafe { &*inside };
        if is_inside.get() {
            return None;
        }
        let mut slot = self.slot.load(Ordering::Acquire);
        if slot.is_null() {
            slot = self.open();
        }
        if slot == off() {
            return None;
        }
        is_inside.set(true);
        Some(Visit { slot, inside })
    }

    #[cold]
    fn open(&self) -> *mut u8 {
        ticks::start();
        let labels = std::env::var(LABELS_VARIABLE).unwrap_or_default();
        let wants = |label| labels.split(',').any(|word| word.trim() == label);
        let spec = Spec {
            help: "MPI calls of programs under pegel run",
            labels: &[("call", self.name)],
            with_pid: wants("pid"),
            with_rank: wants("rank"),
            ..Spec::new(Kind::Calls, "mpi")
        };
        // Two threads may come here at once: both get the same series.
        let slot = Calls::create(&spec).map_or(off(), RawHandle::as_ptr);
        self.slot.store(slot, Ordering::Release);
        slot
    }
}

impl Visit {
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
    pub fn leave(self, bytes: u64, begin: u64, end: u64) {
        let nanos = ticks::nanos(begin, end);
        // More than any process has: a mistake, which must not spoil the sum.
        let bytes = if bytes >> 62 == 0 { bytes } else { 0 };
        match threads::are_apart() {
            true => self.calls().add_alone(bytes, nanos),
            false => self.calls().add(bytes, nanos),
        }
    }
}

impl Drop for Visit {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the wrapper that entered also leaves, in the same thread.
        unsafe { (*self.inside).set(false) };
    }
}
