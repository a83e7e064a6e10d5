//! A pass allocates nothing once every series is declared, except for collectors that list
//! directories periodically.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{TestClock, fixture, open};
use pegel_collect::{
    CollectSettings, CollectorEntry, CollectorSet, CollectorSettings, CollectorState, Execution,
    Host, REGISTRY, Tier,
};
use pegel_metric::{Input, Ledger, SystemClock, Tick};

/// Counts the allocations of the test thread.
struct CountingAllocator;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // Thread-local storage may be gone while the thread ends; those allocations are not counted.
    let _ = COUNT.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: every call is forwarded unchanged to `System`, which upholds the contract of
// `GlobalAlloc`.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller upholds the contract of `alloc`, which is forwarded unchanged.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: `pointer` came from `System` with this layout.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `System` with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// The collectors that list directories or read info values once a minute.
fn is_allocation_free(entry: &CollectorEntry) -> bool {
    entry.tier == Tier::Minute || entry.execution == Execution::Threaded || entry.name == "bonding"
}

fn settings() -> CollectSettings {
    let modest = REGISTRY.iter().filter(|entry| is_allocation_free(entry));
    let off = CollectorSettings {
        enabled: Some(false),
        rate: None,
    };
    CollectSettings {
        collectors: modest
            .map(|entry| (entry.name.to_owned(), off.clone()))
            .collect(),
        ..CollectSettings::default()
    }
}

fn allocations_of_a_third_pass(mut set: CollectorSet) -> u64 {
    let mut tick = Tick::new(Input::Collect);
    let tracks: Vec<usize> = (0..set.rates().len()).collect();
    set.wait_for_threaded(Duration::from_secs(30));
    for time in 0..2 {
        set.sample(time, &tracks, &mut tick);
    }
    let before = COUNT.get();
    set.sample(2, &tracks, &mut tick);
    let allocations = COUNT.get() - before;
    assert_eq!(
        tick.rows().len(),
        set.status()
            .iter()
            .filter(|s| s.state == CollectorState::Active)
            .count()
    );
    allocations
}

#[test]
fn a_pass_over_files_allocates_nothing() {
    let before = COUNT.get();
    let set = open(&settings(), fixture("basic"), 4, &TestClock::at(1_000));
    assert!(COUNT.get() > before + 100, "the counter works");
    assert_eq!(allocations_of_a_third_pass(set), 0);
}

#[test]
fn a_pass_over_the_live_machine_allocates_nothing() {
    let open = || {
        let (ledger, clock) = (Arc::new(Ledger::default()), Arc::new(SystemClock));
        CollectorSet::open(&settings(), Host::local(), 4, Vec::new(), ledger, clock).expect("valid")
    };
    // On a busy machine a device or a memory key may appear during the test, but not twice in a
    // row.
    let fewest = (0..3).map(|_| allocations_of_a_third_pass(open())).min();
    assert_eq!(fewest, Some(0));
}
