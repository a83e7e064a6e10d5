//! How much memory a piece of work takes, counted by the allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The allocator of the fuzzing programs: counts what each thread holds.
#[derive(Debug)]
pub struct Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(change: isize) {
    // While a thread ends its storage may be gone; nobody measures then.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + change);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(held.get())));
    });
}

// SAFETY: every call is passed on unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps the contract of `alloc`, which is the same here.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps the contract of `alloc_zeroed`, which is the same here.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // For a moment both may be there.
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

/// Runs `work`, which must at no time hold more than `bytes_max` more than it began with.
pub(crate) fn bounded<T>(bytes_max: usize, work: impl FnOnce() -> T) -> T {
    let before = HELD.get();
    let outer = PEAK.replace(before);
    let result = work();
    let taken = PEAK.get() - before;
    PEAK.set(PEAK.get().max(outer));
    assert!(
        taken <= bytes_max as isize,
        "{taken} bytes were taken where {bytes_max} are the bound"
    );
    result
}
