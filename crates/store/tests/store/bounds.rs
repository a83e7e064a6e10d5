//! Limits and the ledger under concurrency.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use pegel_config::ByteSize;
use pegel_metric::Clock;
use pegel_metric::{
    DropReason, Family, Input, Ledger, MetricKind, Millis, Point, SampleGroup, Selector, Series,
    SystemClock, Tick,
};
use pegel_store::{RangeQuery, Store, StoreOptions};
use pegel_testkit::{FakeClock, FileFailure, FileHook, FileOperation, HookedFiles, TempDir};

const START: Millis = 1_700_006_400_000;

static FAMILY: Family = Family::new("flow", MetricKind::Gauge, "", 1, "How much flows.");

fn series(label: &str) -> Arc<Series> {
    Arc::new(Series::new(Arc::new(FAMILY.clone()), &[("at", label)]).expect("a valid series"))
}

fn assert_balanced(ledger: &Ledger) {
    for account in ledger.totals_by_input() {
        let dropped: u64 = account.dropped.iter().map(|(_, count)| count).sum();
        assert_eq!(account.received, account.kept + dropped, "{account:?}");
    }
}

/// A disk with slow writes, so that commands that arrive meanwhile are written together.
#[derive(Debug, Default)]
struct SlowWrites;

impl FileHook for SlowWrites {
    fn before(&self, operation: FileOperation) -> Result<(), FileFailure> {
        if operation == FileOperation::Write {
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

#[test]
fn the_series_limit_holds_for_concurrent_pushes() {
    let dir = TempDir::new();
    let mut options = StoreOptions::new(dir.join("store"));
    options.files = Arc::new(HookedFiles::<SlowWrites>::default());
    options.limits.series = NonZeroU32::new(20).expect("not zero");
    let store = Store::open(options).expect("opens");
    let now = SystemClock.utc();
    let start = Barrier::new(9);
    let kept: u64 = thread::scope(|scope| {
        let pushers: Vec<_> = (0..8)
            .map(|thread| {
                let (store, start) = (&store, &start);
                scope.spawn(move || {
                    start.wait();
                    let points = (0..10).map(|n| Point {
                        series: series(&format!("{thread}.{n}")),
                        time: now,
                        value: 1.0,
                    });
                    let pushed = store.push(Input::Push, points.collect()).expect("taken");
                    let by_limit =
                        |(_, reason): &(usize, DropReason)| *reason == DropReason::SeriesLimit;
                    assert!(pushed.refused.iter().all(by_limit), "{pushed:?}");
                    pushed.kept
                })
            })
            .collect();
        // A group of five, in two ticks that are written together.
        start.wait();
        let mut group = SampleGroup::new("five", 3, 5000);
        let mut tick = Tick::new(Input::Collect);
        for n in 0..5 {
            let label = format!("five {n}");
            let slot = group.declare(&Arc::new(FAMILY.clone()), &[("at", &label)]);
            group.set(slot.expect("valid"), 1.0);
        }
        for n in 0..2 {
            tick.reset(now + n);
            group.append_to(&mut tick);
            store.tick(&mut tick);
        }
        pushers
            .into_iter()
            .map(|pusher| pusher.join().expect("no panic"))
            .sum()
    });
    let _ = store.push(Input::Push, Vec::new());
    let grouped = store.ledger().kept_total(Input::Collect);
    assert!(
        grouped == 10 || grouped == 0,
        "a row is accepted as a whole or not at all: {grouped}"
    );
    let status = store.status();
    assert_eq!(status.series, kept + grouped / 2);
    assert!(
        (16..=20).contains(&status.series),
        "{} series",
        status.series
    );
    assert_balanced(store.ledger());
}

#[test]
fn ticks_and_pushes_while_the_store_closes_are_counted() {
    let mut closed = 0;
    for _ in 0..60 {
        let dir = TempDir::new();
        let store = Store::open(StoreOptions::new(dir.join("store"))).expect("opens");
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut group = SampleGroup::new("one", 3, 5000);
                let slot = group
                    .declare(&Arc::new(FAMILY.clone()), &[])
                    .expect("valid");
                group.set(slot, 1.0);
                let mut tick = Tick::new(Input::Collect);
                while !is_over.load(Ordering::Relaxed) {
                    tick.reset(SystemClock.utc());
                    group.append_to(&mut tick);
                    store.tick(&mut tick);
                }
            });
            scope.spawn(|| {
                let series = series("a");
                while !is_over.load(Ordering::Relaxed) {
                    let (time, value) = (SystemClock.utc(), 1.0);
                    let series = series.clone();
                    let _ = store.push(
                        Input::Push,
                        vec![Point {
                            series,
                            time,
                            value,
                        }],
                    );
                }
            });
            thread::sleep(Duration::from_millis(2));
            store.close();
            is_over.store(true, Ordering::Relaxed);
        });
        assert_balanced(store.ledger());
        closed += store
            .ledger()
            .dropped_total(Input::Collect, DropReason::Closed);
    }
    assert!(
        closed > 0,
        "no tick arrived after closing: nothing was tested"
    );
}

#[test]
fn a_reader_keeps_its_block_and_new_blocks_keep_theirs() {
    let dir = TempDir::new();
    let clock = Arc::new(FakeClock::new(START));
    let mut options = StoreOptions::new(dir.join("store"));
    options.clock = clock.clone();
    options.keep.disk = Duration::from_secs(3600).into();
    let store = Store::open(options.clone()).expect("opens");
    let push = |label: &str, value: f64| {
        let point = Point {
            series: series(label),
            time: clock.utc(),
            value,
        };
        store.push(Input::Push, vec![point]).expect("taken");
        store.flush_to_blocks();
    };
    push("old", 1.0);
    push("old too", 2.0);
    let query = RangeQuery::new(Selector::all(), Millis::MIN, Millis::MAX, None);
    let mut visits = 0;
    store
        .query_range(&query, &mut |_, points| {
            assert_eq!(points.len(), 1);
            visits += 1;
            if visits == 1 {
                // While this result is read, its blocks are dropped and a new one is written.
                clock.advance(Duration::from_secs(7200));
                store.flush_to_blocks();
                push("new", 3.0);
            }
        })
        .expect("an answer");
    assert_eq!(
        visits, 2,
        "the reader sees the state at the start of its query"
    );
    let read = |store: &Store| {
        let mut found = Vec::new();
        let query = RangeQuery::new(Selector::all(), Millis::MIN, Millis::MAX, None);
        store
            .query_range(&query, &mut |series, points| {
                found.push((series.text().to_owned(), points.to_vec()));
            })
            .expect("an answer");
        found
    };
    let wanted = [("flow{at=\"new\"}".to_owned(), vec![(clock.utc(), 3.0)])];
    assert_eq!(read(&store), wanted);
    drop(store);
    let store = Store::open(options).expect("opens");
    assert_eq!(
        read(&store),
        wanted,
        "the new block's file outlives the reader"
    );
}

#[test]
fn many_live_series_alone_cause_no_blocks() {
    let dir = TempDir::new();
    let clock = Arc::new(FakeClock::new(START));
    let mut options = StoreOptions::new(dir.join("store"));
    options.clock = clock.clone();
    options.limits.memory = ByteSize::bytes(8 << 20);
    let store = Store::open(options).expect("opens");
    let all: Vec<Arc<Series>> = (0..10_000).map(|n| series(&n.to_string())).collect();
    let push = |which: &[Arc<Series>]| {
        clock.advance(Duration::from_millis(1500));
        let points = which.iter().map(|series| Point {
            series: series.clone(),
            time: clock.utc(),
            value: 1.0,
        });
        store.push(Input::Push, points.collect()).expect("taken");
    };
    push(&all);
    store.flush_to_blocks();
    for n in 0..50 {
        push(&all[n..n + 1]);
    }
    store.flush_to_blocks();
    let status = store.status();
    assert!(
        status.memory_bytes > (8 << 20) / 4,
        "they use much memory: {status:?}"
    );
    assert!(status.blocks <= 4, "{status:?}");
}

/// Sends one tick of a group with this many series, and waits until it was processed.
fn tick_of(store: &Store, time: Millis, count: usize) {
    let mut group = SampleGroup::new("many", 3, 5000);
    let mut tick = Tick::new(Input::Collect);
    for n in 0..count {
        let slot = group.declare(&Arc::new(FAMILY.clone()), &[("at", &n.to_string())]);
        group.set(slot.expect("valid"), 1.0);
    }
    tick.reset(time);
    group.append_to(&mut tick);
    store.tick(&mut tick);
    // Queued behind the tick.
    let _ = store.push(Input::Push, Vec::new());
}

#[test]
fn a_store_that_drops_the_nodes_samples_is_degraded() {
    type OptionsChange = fn(&mut StoreOptions);
    let cases: [(OptionsChange, DropReason, &str); 2] = [
        (
            |options| options.limits.memory = ByteSize::bytes(0),
            DropReason::Memory,
            "limits.memory",
        ),
        (
            |options| options.limits.series = NonZeroU32::new(2).expect("not zero"),
            DropReason::SeriesLimit,
            "limits.series",
        ),
    ];
    for (spoil, reason, key) in cases {
        let (dir, clock) = (TempDir::new(), Arc::new(FakeClock::new(START)));
        let mut options = StoreOptions::new(dir.path());
        options.clock = clock.clone();
        spoil(&mut options);
        let store = Store::open(options).expect("opens");
        assert_eq!(store.status().degraded, None);
        tick_of(&store, START, 5);
        assert_eq!(store.ledger().dropped_total(Input::Collect, reason), 5);
        let degraded = store.status().degraded.expect("it says so");
        assert!(degraded.reason.contains(key), "{degraded:?}");
        assert_eq!(degraded.since, START);
        clock.advance(Duration::from_secs(9));
        assert_eq!(store.status().degraded, Some(degraded), "still");
        clock.advance(Duration::from_secs(2));
        assert_eq!(store.status().degraded, None, "no recent drops");
    }
}

#[test]
fn programs_that_offer_too_many_series_do_not_degrade_the_store() {
    let dir = TempDir::new();
    let mut options = StoreOptions::new(dir.path());
    options.limits.series = NonZeroU32::new(2).expect("not zero");
    let store = Store::open(options).expect("opens");
    let now = SystemClock.utc();
    let points = (0..5).map(|n| Point {
        series: series(&n.to_string()),
        time: now,
        value: 1.0,
    });
    let pushed = store.push(Input::Push, points.collect()).expect("taken");
    assert_eq!(pushed.refused.len(), 3);
    assert_eq!(store.status().degraded, None);
}

/// Reduced series of a parent and results of rules are as many as others send series.
#[test]
fn derived_series_leave_room_for_the_node_and_for_programs() {
    let dir = TempDir::new();
    let mut options = StoreOptions::new(dir.path());
    options.limits.series = NonZeroU32::new(100).expect("not zero");
    let store = Store::open(options).expect("opens");
    let now = SystemClock.utc();
    let family = |input| Arc::new(FAMILY.clone().of_input(input));
    let push = |input, count: u32| {
        let family = family(input);
        let points = (0..count).map(|n| {
            let label = format!("{input:?} {n}");
            let series = Series::new(family.clone(), &[("at", &label)]).expect("a valid series");
            Point {
                series: Arc::new(series),
                time: now,
                value: 1.0,
            }
        });
        let pushed = store.push(input, points.collect()).expect("taken");
        pushed.kept
    };
    let tick = |input, name: &str, count: u32, later: Millis| {
        let mut group = SampleGroup::new(name, 3, 5000);
        let mut tick = Tick::new(input);
        for n in 0..count {
            let label = format!("{name} {n}");
            let slot = group.declare(&family(input), &[("at", &label)]);
            group.set(slot.expect("valid"), 1.0);
        }
        let before = store.ledger().kept_total(input);
        tick.reset(now + later);
        group.append_to(&mut tick);
        store.tick(&mut tick);
        let _ = store.push(Input::Push, Vec::new());
        store.ledger().kept_total(input) - before
    };
    assert_eq!(tick(Input::Tree, "tree-0", 30, 0), 30);
    assert_eq!(push(Input::Rules, 15), 15);
    // A group is accepted as a whole or not at all.
    assert_eq!(tick(Input::Tree, "tree-1", 6, 0), 0);
    assert_eq!(push(Input::Tree, 10), 5, "half of all");
    // A group that grows counts for what it adds.
    assert_eq!(tick(Input::Tree, "tree-0", 31, 1), 0);
    assert_eq!(tick(Input::Tree, "tree-0", 30, 2), 30);
    assert_eq!(push(Input::Put, 45), 45, "programs have the other half");
    assert_eq!(tick(Input::Collect, "node", 5, 0), 5, "and so has the node");
    assert_eq!(push(Input::Put, 46), 45);
    let dropped = |input| store.ledger().dropped_total(input, DropReason::SeriesLimit);
    assert_eq!((dropped(Input::Tree), dropped(Input::Collect)), (42, 0));
}

#[test]
fn derived_series_leave_the_last_twentieth_to_the_node() {
    let dir = TempDir::new();
    let mut options = StoreOptions::new(dir.path());
    options.limits.series = NonZeroU32::new(100).expect("not zero");
    let store = Store::open(options).expect("opens");
    let now = SystemClock.utc();
    let push = |input, count: u32| {
        let family = Arc::new(FAMILY.clone().of_input(input));
        let points = (0..count).map(|n| {
            let label = format!("{input:?} {n}");
            let series = Series::new(family.clone(), &[("at", &label)]).expect("a valid series");
            Point {
                series: Arc::new(series),
                time: now,
                value: 1.0,
            }
        });
        store.push(input, points.collect()).expect("taken").kept
    };
    assert_eq!(push(Input::Put, 75), 75);
    assert_eq!(push(Input::Tree, 50), 20);
    assert_eq!(push(Input::Collect, 5), 5);
}

/// Counts the block files in a directory that this process holds open.
fn open_blocks(dir: &std::path::Path) -> usize {
    let files = std::fs::read_dir("/proc/self/fd").expect("our own descriptors");
    let targets = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
    targets
        .filter(|path| path.starts_with(dir) && path.extension().is_some_and(|e| e == "blk"))
        .count()
}

#[test]
fn a_query_over_many_blocks_keeps_few_files_open() {
    const HOURS: usize = 280;
    let (dir, clock) = (TempDir::new(), Arc::new(FakeClock::new(START)));
    let mut options = StoreOptions::new(dir.path());
    options.clock = clock.clone();
    options.keep.disk = Duration::from_secs(30 * 86_400).into();
    options.block_files_max = 4;
    let store = Store::open(options).expect("opens");
    for hour in 0..HOURS as i64 {
        for name in ["a", "b"] {
            let point = Point {
                series: series(name),
                time: START + hour * 3_600_000,
                value: hour as f64,
            };
            store.push(Input::Push, vec![point]).expect("taken");
        }
        clock.advance(Duration::from_secs(3600));
        store.flush_to_blocks();
    }
    let blocks = store.status().blocks as usize;
    assert!(blocks > 270, "{blocks} blocks");
    let query = RangeQuery::new(
        Selector::name("flow"),
        START,
        START + HOURS as i64 * 3_600_000,
        None,
    );
    let (mut seen, mut most) = (0, 0);
    store
        .query_range(&query, &mut |_, points| {
            seen += points.len();
            most = most.max(open_blocks(dir.path()));
        })
        .expect("an answer");
    assert_eq!(seen, 2 * HOURS);
    assert!((1..=5).contains(&most), "{most} files");
}
