//! A hanging disk, and a directory that disappears, while the store is in use.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use pegel_metric::{
    Clock, DropReason, Family, Input, MetricKind, Point, SampleGroup, Selector, Series,
    SystemClock, Tick,
};
use pegel_store::{PushError, Store, StoreOptions};
use pegel_testkit::{
    FaultyFiles, FileFailure, FileFault, FileHook, FileOperation, HookedFiles, TempDir, eventually,
};
use rustix::io::Errno;

static DEPTH: Family = Family::new("depth", MetricKind::Gauge, "", 1, "How deep it is.");

/// Makes operations of one kind hang while it is closed.
#[derive(Debug)]
struct BlockingHook {
    operation: FileOperation,
    is_closed: Mutex<bool>,
    opened: Condvar,
}

impl BlockingHook {
    fn new(operation: FileOperation) -> Arc<BlockingHook> {
        Arc::new(BlockingHook {
            operation,
            is_closed: Mutex::new(false),
            opened: Condvar::new(),
        })
    }

    fn set_closed(&self, is_closed: bool) {
        *self.is_closed.lock() = is_closed;
        self.opened.notify_all();
    }
}

/// Releases blocked operations at the end of a test, failed or not: a store closes only when its
/// disk responds.
struct UnblockOnDrop(Arc<BlockingHook>);

impl Drop for UnblockOnDrop {
    fn drop(&mut self) {
        self.0.set_closed(false);
    }
}

impl FileHook for BlockingHook {
    fn before(&self, operation: FileOperation) -> Result<(), FileFailure> {
        if operation == self.operation {
            let mut closed = self.is_closed.lock();
            self.opened.wait_while(&mut closed, |is_closed| *is_closed);
        }
        Ok(())
    }
}

/// One group with one series, ticked like the sampler does.
struct DepthTicker {
    group: SampleGroup,
    slot: pegel_metric::Slot,
    tick: Tick,
    value: f64,
}

impl DepthTicker {
    fn new() -> DepthTicker {
        let mut group = SampleGroup::new("depth", 3, 60_000);
        let slot = group.declare(&Arc::new(DEPTH.clone()), &[]).expect("valid");
        DepthTicker {
            group,
            slot,
            tick: Tick::new(Input::Collect),
            value: 0.0,
        }
    }

    fn tick(&mut self, store: &Store) {
        self.value += 1.0;
        self.tick.reset(SystemClock.utc());
        self.group.set(self.slot, self.value);
        self.group.append_to(&mut self.tick);
        store.tick(&mut self.tick);
    }
}

fn current(store: &Store) -> Option<f64> {
    let mut found = None;
    store.latest(&Selector::name("depth"), 0, &mut |series, latest| {
        if series.text() == "depth" {
            found = Some(latest.value);
        }
    });
    found
}

fn push(store: &Store, name: &str) -> Result<(), PushError> {
    let family = Arc::new(DEPTH.clone());
    let series = Series::new(family, &[("by", name)]).expect("valid");
    let point = Point {
        series: Arc::new(series),
        time: SystemClock.utc(),
        value: 1.0,
    };
    store.push(Input::Push, vec![point]).map(drop)
}

fn is_degraded(store: &Store) -> Result<String, &'static str> {
    let degraded = store.status().degraded.ok_or("not degraded")?;
    Ok(degraded.reason)
}

/// Checks that while operations of this kind hang, the store is degraded and keeps samples in
/// memory, and that it recovers.
fn check_hang(operation: FileOperation) {
    let (dir, valve) = (TempDir::new(), BlockingHook::new(operation));
    let mut options = StoreOptions::new(dir.path());
    options.files = Arc::new(HookedFiles::with(valve.clone()));
    options.disk_timeout = Duration::from_millis(500);
    let store = Store::open(options.clone()).expect("opens");
    let _open_at_end = UnblockOnDrop(valve.clone());
    let mut sampler = DepthTicker::new();
    push(&store, "a").expect("taken");

    valve.set_closed(true);
    sampler.tick(&store);
    let reason = eventually("it is degraded", || {
        sampler.tick(&store);
        is_degraded(&store)
    });
    assert!(reason.contains("did not respond"), "{reason}");
    // Pushes are rejected at once: none of them waits for the disk.
    let begun = Instant::now();
    for _ in 0..1000 {
        let refused = push(&store, "b").expect_err("refused");
        assert!(matches!(refused, PushError::Degraded(_)), "{refused}");
    }
    assert!(begun.elapsed() < Duration::from_secs(60), "they waited");
    // Far more ticks than the queue holds: none waits there for the disk.
    for _ in 0..8 {
        (0..256).for_each(|_| sampler.tick(&store));
        let wanted = Some(sampler.value);
        eventually("the last tick is shown", || match current(&store) {
            value if value == wanted => Ok(()),
            other => Err(other),
        });
    }
    let dropped = store
        .ledger()
        .dropped_total(Input::Collect, DropReason::QueueFull);
    assert_eq!(dropped, 0, "samples are kept in memory");

    valve.set_closed(false);
    eventually("it recovers", || {
        sampler.tick(&store);
        is_degraded(&store).map_or(Ok(()), Err)
    });
    eventually("pushes are accepted", || push(&store, "c"));
    let count = |store: &Store| {
        let query = pegel_store::RangeQuery::new(
            Selector::name("depth"),
            0,
            SystemClock.utc() + 1000,
            None,
        );
        let mut count = 0;
        let read = store.query_range(&query, &mut |series, points| {
            count += if series.text() == "depth" {
                points.len()
            } else {
                0
            };
        });
        read.map(|()| count).expect("an answer")
    };
    store.flush_to_blocks();
    let before = count(&store);
    store.close();
    drop(store);
    let store = Store::open(options).expect("opens");
    assert_eq!(count(&store), before, "samples taken meanwhile are stored");
}

#[test]
fn a_log_write_that_hangs_degrades_the_store_until_it_returns() {
    check_hang(FileOperation::Write);
}

#[test]
fn a_log_sync_that_hangs_degrades_the_store_until_it_returns() {
    check_hang(FileOperation::Sync);
}

#[test]
fn a_disk_that_never_syncs_keeps_the_store_degraded() {
    let (dir, files) = (TempDir::new(), FaultyFiles::new());
    let mut options = StoreOptions::new(dir.path());
    options.files = Arc::new(files.clone());
    let store = Store::open(options).expect("opens");
    let mut sampler = DepthTicker::new();
    files.inject(FileFault::always(FileOperation::Sync, Errno::IO));
    eventually("it is degraded", || {
        sampler.tick(&store);
        is_degraded(&store)
    });
    // Several retries, one each second.
    let failures = files.failures();
    let begun = Instant::now();
    while files.failures() < failures + 4 && begun.elapsed() < Duration::from_secs(60) {
        sampler.tick(&store);
        assert!(is_degraded(&store).is_ok(), "not degraded for a moment");
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(files.failures() >= failures + 4, "retries");
    files.clear_faults();
    eventually("it recovers", || {
        sampler.tick(&store);
        is_degraded(&store).map_or(Ok(()), Err)
    });
}

/// Removes the store's directory in some manner: no push is acknowledged from then on.
fn check_removed(context: &str, take_away: impl Fn(&std::path::Path)) {
    let home = TempDir::new();
    let dir = home.join("store");
    let store = Store::open(StoreOptions::new(&dir)).expect("opens");
    push(&store, "a").expect("taken");
    assert_eq!(is_degraded(&store), Err("not degraded"), "{context}");
    take_away(&dir);
    for _ in 0..50 {
        let refused = push(&store, "b").expect_err("refused");
        assert!(
            matches!(refused, PushError::Degraded(_)),
            "{context}: {refused}"
        );
    }
    let reason = is_degraded(&store).expect("degraded");
    assert!(
        reason.contains("removed or replaced"),
        "{context}: {reason}"
    );
}

#[test]
fn nothing_is_acknowledged_after_the_directory_was_removed() {
    check_removed("removed", |dir| fs::remove_dir_all(dir).expect("removed"));
    check_removed("replaced", |dir| {
        fs::rename(dir, dir.with_extension("old")).expect("moved");
        fs::create_dir(dir).expect("made");
    });
    check_removed("without its lock", |dir| {
        fs::remove_file(dir.join("lock")).expect("removed");
    });
}

#[test]
fn ticks_alone_notice_that_the_directory_was_removed() {
    let home = TempDir::new();
    let dir = home.join("store");
    let store = Store::open(StoreOptions::new(&dir)).expect("opens");
    let mut sampler = DepthTicker::new();
    sampler.tick(&store);
    fs::rename(&dir, home.join("moved")).expect("moved");
    eventually("it is degraded", || {
        sampler.tick(&store);
        is_degraded(&store)
    });
    assert!(!dir.exists(), "it is not recreated: its lock is not held");
    fs::rename(home.join("moved"), &dir).expect("moved back");
    eventually("it recovers", || {
        sampler.tick(&store);
        is_degraded(&store).map_or(Ok(()), Err)
    });
    push(&store, "a").expect("taken");
}

#[test]
fn a_removed_log_is_started_again() {
    let home = TempDir::new();
    let dir = home.join("store");
    let store = Store::open(StoreOptions::new(&dir)).expect("opens");
    push(&store, "a").expect("taken");
    fs::remove_dir_all(dir.join("log")).expect("removed");
    assert!(push(&store, "b").is_err(), "not acknowledged");
    eventually("it recovers", || push(&store, "c"));
    store.flush_to_blocks();
    store.close();
    drop(store);
    let store = Store::open(StoreOptions::new(&dir)).expect("opens");
    let query = pegel_store::RangeQuery::new(Selector::all(), 0, SystemClock.utc() + 1000, None);
    let mut found = Vec::new();
    let read = store.query_range(&query, &mut |series, _| {
        found.push(series.text().to_owned())
    });
    read.expect("an answer");
    assert_eq!(found, [r#"depth{by="a"}"#, r#"depth{by="c"}"#]);
}
