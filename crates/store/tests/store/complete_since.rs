//! The times from which on the store is complete: after a restart, with a damaged file, and when
//! the clock was wrong.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use pegel_metric::{Family, Input, MetricKind, Millis, Point, Series};
use pegel_store::{Store, StoreOptions};
use pegel_testkit::{FakeClock, TempDir};

const START: Millis = 1_700_006_400_000;
const HOUR: Duration = Duration::from_secs(3_600);
const CENTURY: Millis = 100 * 365 * 86_400_000;

fn series() -> Arc<Series> {
    let family = Family::new("", MetricKind::Gauge, "", 1, "").of_input(Input::Put);
    Arc::new(Series::named(Arc::new(family), "depth", &[]).expect("valid"))
}

fn open(dir: &TempDir, clock: &Arc<FakeClock>) -> Store {
    let mut options = StoreOptions::new(dir.join("store"));
    options.clock = clock.clone();
    Store::open(options).expect("opens")
}

fn push(store: &Store, time: Millis) {
    let point = Point {
        series: series(),
        time,
        value: 1.0,
    };
    let pushed = store.push(Input::Put, vec![point]).expect("taken");
    assert_eq!(pushed.kept, 1);
}

fn close(store: Store) {
    store.close();
    drop(store);
}

#[test]
fn a_store_is_complete_from_its_creation_on_also_after_restarts() {
    let (dir, clock) = (TempDir::new(), Arc::new(FakeClock::new(START)));
    let store = open(&dir, &clock);
    assert_eq!(store.complete_since().of_all(), START);
    clock.advance(HOUR);
    push(&store, START + 1_000);
    // A late sample does not mean that the time after it is there.
    push(&store, START - 7_200_000);
    assert_eq!(store.complete_since().of(&series()), START);
    close(store);
    clock.advance(HOUR);
    let store = open(&dir, &clock);
    assert_eq!(store.complete_since().of_all(), START);
}

#[test]
fn a_damaged_file_is_replaced_by_the_oldest_samples() {
    let (dir, clock) = (TempDir::new(), Arc::new(FakeClock::new(START)));
    let store = open(&dir, &clock);
    clock.advance(HOUR);
    push(&store, START + 1_000);
    store.flush_to_blocks();
    close(store);
    let path = dir.join("store/complete-since");
    let oversized = "1 node\n".repeat(1_000);
    for damaged in [
        "",
        "nonsense",
        "99999999999999999999 node\n",
        oversized.as_str(),
    ] {
        fs::write(&path, damaged).expect("written");
        let store = open(&dir, &clock);
        let complete = store.complete_since();
        assert_eq!(complete.of(&series()), START + 1_000, "{damaged:?}");
        // Classes without samples are complete from now on.
        assert_eq!(complete.of_all(), complete.now);
        close(store);
        clock.advance(HOUR);
        let store = open(&dir, &clock);
        let again = store.complete_since();
        assert_eq!(again.of_all(), complete.of_all(), "written again");
        close(store);
    }
}

#[test]
fn a_clock_that_was_ahead_leaves_the_store_complete() {
    let (dir, clock) = (TempDir::new(), Arc::new(FakeClock::new(START + CENTURY)));
    let store = open(&dir, &clock);
    assert_eq!(store.complete_since().of_all(), START + CENTURY);
    clock.step(-CENTURY);
    clock.advance(HOUR);
    push(&store, START + 5_000);
    let complete = store.complete_since();
    assert_eq!(complete.of(&series()), START + 5_000);
    assert!(complete.of_all() <= complete.now, "{complete:?}");
    // The border does not follow the clock.
    clock.advance(HOUR);
    assert_eq!(store.complete_since().of_all(), complete.of_all());
    close(store);
    let store = open(&dir, &clock);
    assert_eq!(store.complete_since().of(&series()), START + 5_000);
}
