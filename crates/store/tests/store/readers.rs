//! Slow readers delay neither samples nor other readers, and end at their deadline.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pegel_metric::{
    Clock, Family, Input, MetricKind, Millis, Point, SampleGroup, Selector, Series, SystemClock,
    Tick,
};
use pegel_store::{QueryError, RangeQuery, Store, StoreOptions};
use pegel_testkit::TempDir;

static FAMILY: Family = Family::new("flow", MetricKind::Gauge, "", 1, "How much flows.");

fn series(label: &str) -> Arc<Series> {
    Arc::new(Series::new(Arc::new(FAMILY.clone()), &[("at", label)]).expect("a valid series"))
}

fn points(count: usize, time: Millis) -> Vec<Point> {
    let point = |n| Point {
        series: series(&format!("loose {n}")),
        time,
        value: 1.0,
    };
    (0..count).map(point).collect()
}

/// A group of three and a hundred ungrouped series, at the present time.
fn filled(dir: &TempDir) -> (Store, SampleGroup, Millis) {
    let store = Store::open(StoreOptions::new(dir.join("store"))).expect("opens");
    let now = SystemClock.utc();
    let mut group = SampleGroup::new("three", 3, 60_000);
    for n in 0..3 {
        let slot = group.declare(&Arc::new(FAMILY.clone()), &[("at", &n.to_string())]);
        group.set(slot.expect("valid"), 1.0);
    }
    let mut tick = Tick::new(Input::Collect);
    tick.reset(now - 10_000);
    group.append_to(&mut tick);
    store.tick(&mut tick);
    store.push(Input::Push, points(100, now)).expect("kept");
    (store, group, now)
}

/// A selector that signals when it is evaluated, and returns only after it was released.
fn stuck() -> (Selector, Receiver<()>, Sender<()>) {
    let (asked, is_asked) = channel();
    let (release, released) = channel::<()>();
    let released = Mutex::new(released);
    let selector = Selector::with_predicate("flow", move |_| {
        let _ = asked.send(());
        let _ = released.lock().recv();
        true
    });
    (selector, is_asked, release)
}

fn query(selector: Selector, now: Millis) -> RangeQuery {
    let mut query = RangeQuery::new(selector, now - 60_000, now + 60_000, None);
    query.deadline = Instant::now() + Duration::from_secs(600);
    query
}

type ReadOperation = fn(&Store, Selector, Millis);

#[test]
fn a_reader_that_is_stuck_in_its_selector_delays_nothing() {
    let reads: [ReadOperation; 3] = [
        |store, selector, _| {
            store.latest(&selector, 0, &mut |_, _| {});
        },
        |store, selector, now| {
            let _ = store.query_range(&query(selector, now), &mut |_, _| {});
        },
        |store, selector, now| {
            let _ = store.series(&query(selector, now), &mut |_| {});
        },
    ];
    for read in reads {
        let dir = TempDir::new();
        let (store, mut group, now) = filled(&dir);
        let (selector, is_asked, release) = stuck();
        let reader = {
            let store = store.clone();
            thread::spawn(move || read(&store, selector, now))
        };
        is_asked.recv().expect("the reader has begun to match");

        let (done, is_done) = channel();
        let others = {
            let store = store.clone();
            thread::spawn(move || {
                let mut tick = Tick::new(Input::Collect);
                for n in 1..=100 {
                    tick.reset(now - 10_000 + n);
                    group.append_to(&mut tick);
                    store.tick(&mut tick);
                    let pushed = store.push(Input::Push, points(10, now + n)).expect("kept");
                    assert_eq!(pushed.kept, 10);
                    assert_eq!(store.status().newest, Some(now + n));
                }
                let mut seen = 0;
                store.latest(&Selector::all(), 0, &mut |_, _| seen += 1);
                store.flush_to_blocks();
                done.send(seen).expect("the test waits");
            })
        };
        // The timeout only matters on failure: nothing here waits for the reader.
        let seen = is_done.recv_timeout(Duration::from_secs(60));
        drop(release);
        assert_eq!(seen, Ok(103), "series seen by other readers meanwhile");
        others.join().expect("no panic");
        reader.join().expect("no panic");
    }
}

#[test]
fn an_overrun_is_an_error_even_before_the_first_sample() {
    let dir = TempDir::new();
    let (store, _, now) = filled(&dir);
    store.flush_to_blocks();
    store.push(Input::Push, points(100, now + 1)).expect("kept");
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let deadline = Instant::now() + Duration::from_millis(500);
    // Matches nothing, and takes longer than the whole query may.
    let selector = Selector::with_predicate("flow", move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        thread::sleep(deadline.saturating_duration_since(Instant::now()));
        false
    });
    let mut query = query(selector.clone(), now);
    query.deadline = deadline;
    let is_late = |result: Result<(), QueryError>| matches!(result, Err(QueryError::TooLong));
    let never = |_: &Arc<Series>, _: &[(Millis, f64)]| panic!("nothing matches");
    assert!(is_late(store.query_range(&query, &mut { never })));
    let first = asked.load(Ordering::Relaxed);
    assert!(0 < first && first < 100, "{first} series were tried");
    // From here on the deadline has passed before any work is done.
    assert!(is_late(store.query_range(&query, &mut { never })));
    assert!(is_late(
        store.series(&query, &mut |_| panic!("nothing matches"))
    ));
    let latest = store.latest_until(deadline, &selector, 0, &mut |_, _| panic!("no match"));
    assert!(is_late(latest.map(drop)));
    assert_eq!(asked.load(Ordering::Relaxed), first);
}

#[test]
fn a_long_push_is_seen_whole_by_followers_of_changes() {
    let dir = TempDir::new();
    let store = Store::open(StoreOptions::new(dir.join("store"))).expect("opens");
    let now = SystemClock.utc();
    let pusher = {
        let store = store.clone();
        thread::spawn(move || store.push(Input::Push, points(20_000, now)))
    };
    let (mut after, mut seen) = (0, std::collections::HashSet::new());
    loop {
        let is_over = pusher.is_finished();
        after = store.latest(&Selector::all(), after, &mut |series, _| {
            seen.insert(series.clone());
        });
        if is_over {
            break;
        }
    }
    let pushed = pusher.join().expect("no panic").expect("kept");
    assert_eq!(pushed.kept, 20_000);
    assert_eq!(seen.len(), 20_000);
}

#[test]
fn shuffled_points_read_back_from_memory_after_a_restart_and_from_blocks() {
    let dir = TempDir::new();
    let options = || StoreOptions::new(dir.join("store"));
    let base = SystemClock.utc() - 70_000_000;
    let one = series("one");
    let store = Store::open(options()).expect("opens");
    // Each time is written twice, the second value wins; 65,537 is a prime.
    for value in [1.0, 2.0] {
        for batch in 0..64 {
            let point = |n: i64| Point {
                series: one.clone(),
                time: base + (n + 1) * 40_503 % 65_537,
                value,
            };
            let points = (batch * 1024..(batch + 1) * 1024).map(point).collect();
            store.push(Input::Push, points).expect("kept");
        }
    }
    assert_eq!(store.ledger().kept_total(Input::Push), 2 * 65_536);
    let check = |store: &Store, what: &str| {
        let mut query = RangeQuery::new(Selector::all(), base, base + 70_000, None);
        query.deadline = Instant::now() + Duration::from_secs(600);
        let mut found = Vec::new();
        let answered = store.query_range(&query, &mut |_, points| found.extend_from_slice(points));
        answered.expect("an answer");
        let expected = (1..65_537).map(|n| (base + n, 2.0));
        assert!(found.into_iter().eq(expected), "{what}");
    };
    check(&store, "from memory");
    store.close();
    drop(store);
    let store = Store::open(options()).expect("opens");
    check(&store, "after a restart");
    store.flush_to_blocks();
    assert!(store.status().blocks > 0);
    check(&store, "from blocks");
}

#[test]
fn duplicates_among_shuffled_points_are_counted_when_they_go_to_a_block_at_the_latest() {
    let dir = TempDir::new();
    let store = Store::open(StoreOptions::new(dir.join("store"))).expect("opens");
    let base = SystemClock.utc() - 70_000_000;
    let one = series("one");
    for round in 0..3 {
        let point = |n: i64| Point {
            series: one.clone(),
            time: base + (n + 1) * 3_001 % 7_919,
            value: f64::from(round),
        };
        store
            .push(Input::Push, (0..5_000).map(point).collect())
            .expect("kept");
    }
    store.flush_to_blocks();
    assert_eq!(store.ledger().duplicates_total(), 10_000);
}
