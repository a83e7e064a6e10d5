//! Measures the peak memory of a piece of work with a counting allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The allocator of the fuzzing programs: counts the memory held by each thread.
#[derive(Debug)]
pub struct Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(change: isize) {
    // Thread-local storage may be gone while the thread ends; nothing is measured then.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + change);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(held.get())));
    });
}

// SAFETY: every call is forwarded unchanged to `System`, which upholds the contract of
// `GlobalAlloc`.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller upholds the contract of `alloc`, which is forwarded unchanged.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller upholds the contract of `alloc_zeroed`, which is forwarded unchanged.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Both allocations may exist at the same time.
        count(size as isize);
        count(-(layout.size() as isize));
        // SAFETY: `pointer` came from `System` with this layout.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: `pointer` came from `System` with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Runs `work` and panics if it ever holds more than `bytes_max` more than at its start.
pub(crate) fn bounded<T>(bytes_max: usize, work: impl FnOnce() -> T) -> T {
    let before = HELD.get();
    let outer = PEAK.replace(before);
    let result = work();
    let taken = PEAK.get() - before;
    PEAK.set(PEAK.get().max(outer));
    assert!(
        taken <= bytes_max as isize,
        "{taken} bytes exceed the limit of {bytes_max}"
    );
    result
}
