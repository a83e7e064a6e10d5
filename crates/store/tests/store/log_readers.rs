//! Readers of the log: positions, segments that are kept for them, and damage.

use std::fs;
use std::sync::Arc;

use pegel_metric::{Family, GroupRow, Input, MetricKind, Millis, Point, Series};
use pegel_store::{LogStep, LogVisitor, Store, StoreOptions};
use pegel_testkit::{FakeClock, TempDir};

const START: Millis = 1_700_006_400_000;

#[derive(Default)]
struct ReadPoints(Vec<f64>);

impl LogVisitor for ReadPoints {
    fn row(&mut self, _: Millis, _: u64, _: &GroupRow) {}

    fn point(&mut self, _: u64, _: &Arc<Series>, _: Millis, value: f64) {
        self.0.push(value);
    }
}

fn open(dir: &TempDir, keep_log: bool) -> Store {
    let mut options = StoreOptions::new(dir.join("store"));
    options.clock = Arc::new(FakeClock::new(START));
    options.keep_log = keep_log;
    Store::open(options).expect("opens")
}

fn push(store: &Store, value: f64) {
    let family = Family::new("m", MetricKind::Gauge, "", 1, "").of_input(Input::Put);
    let point = Point {
        series: Arc::new(Series::new(Arc::new(family), &[]).expect("valid")),
        time: START - 100_000 + value as i64,
        value,
    };
    store.push(Input::Put, vec![point]).expect("stored");
}

/// Reads to the end; returns the values and the steps that are not frames.
fn read_from(store: &Store, segment: u64) -> (Vec<f64>, Vec<LogStep>) {
    let mut reader = store.log_reader(segment);
    let (mut points, mut steps) = (ReadPoints::default(), Vec::new());
    loop {
        match reader.step(&mut points).expect("read") {
            LogStep::Frame => {}
            LogStep::End => break,
            step => steps.push(step),
        }
    }
    assert_eq!(reader.position(), store.log_end());
    (points.0, steps)
}

fn names(dir: &TempDir, name: &str) -> usize {
    fs::read_dir(dir.join("store").join(name)).map_or(0, Iterator::count)
}

#[test]
fn a_reader_follows_the_log_while_it_is_written() {
    let dir = TempDir::new();
    let store = open(&dir, true);
    let mut reader = store.log_reader(store.log_end().segment);
    let mut points = ReadPoints::default();
    for value in 0..10 {
        assert_eq!(reader.step(&mut points).expect("read"), LogStep::End);
        push(&store, f64::from(value));
        if value % 3 == 2 {
            store.flush_to_blocks();
        }
        while reader.step(&mut points).expect("read") != LogStep::End {}
        assert_eq!(points.0.len(), value as usize + 1);
    }
    assert_eq!(points.0, (0..10).map(f64::from).collect::<Vec<_>>());
}

#[test]
fn kept_segments_are_not_replayed() {
    let dir = TempDir::new();
    let store = open(&dir, true);
    let first = store.log_end().segment;
    for value in 0..4 {
        push(&store, f64::from(value));
        store.flush_to_blocks();
    }
    push(&store, 4.0);
    assert_eq!(names(&dir, "outgoing"), 4);
    store.close();
    drop(store);
    // Without the blocks that name them, they are not replayed either.
    fs::remove_dir_all(dir.join("store/blocks")).expect("removed");
    let store = open(&dir, true);
    assert_eq!(store.ledger().duplicates_total(), 0);
    let query =
        pegel_store::RangeQuery::new(pegel_metric::Selector::all(), START - 200_000, START, None);
    let mut stored = Vec::new();
    let mut visit = |_: &Arc<Series>, points: &[(Millis, f64)]| {
        stored.extend(points.iter().map(|(_, value)| *value));
    };
    store.query_range(&query, &mut visit).expect("read");
    assert_eq!(stored, [4.0]);
    // They can still be read, and numbers are not used again.
    let (values, steps) = read_from(&store, first);
    assert_eq!(values, [0.0, 1.0, 2.0, 3.0, 4.0]);
    assert!(steps.iter().all(|step| *step == LogStep::NextSegment));
    assert!(store.log_end().segment > first + 4);
    // Released ones are removed, and what is left is read after a gap.
    store.release_log(first + 2);
    store.flush_to_blocks();
    let (values, steps) = read_from(&store, first);
    assert_eq!((values, steps[0]), (vec![2.0, 3.0, 4.0], LogStep::Gap));
    store.close();
    drop(store);
    let store = open(&dir, false);
    assert_eq!(
        names(&dir, "outgoing"),
        0,
        "without readers nothing is kept"
    );
    drop(store);
}

#[test]
fn without_readers_no_segment_is_kept() {
    let dir = TempDir::new();
    let store = open(&dir, false);
    push(&store, 1.0);
    store.flush_to_blocks();
    assert_eq!((names(&dir, "outgoing"), names(&dir, "log")), (0, 1));
}

#[test]
fn damage_costs_only_the_frames_that_it_hits() {
    let dir = TempDir::new();
    let store = open(&dir, true);
    let first = store.log_end().segment;
    let mut ends = Vec::new();
    for value in 0..5 {
        push(&store, f64::from(value));
        ends.push(store.log_end().offset as usize);
    }
    store.flush_to_blocks();
    push(&store, 5.0);
    let path = dir.join(format!("store/outgoing/{first:010}.log"));
    let whole = fs::read(&path).expect("kept");
    // The last byte of the third push, and half of the last one.
    let mut bytes = whole[..ends[4] - 3].to_vec();
    bytes[ends[2] - 1] ^= 1;
    fs::write(&path, bytes).expect("written");
    let (values, steps) = read_from(&store, first);
    assert_eq!(values, [0.0, 1.0, 3.0, 5.0]);
    assert_eq!(steps, [LogStep::Damaged, LogStep::NextSegment]);
    fs::write(&path, "short").expect("written");
    assert_eq!(read_from(&store, first).0, [5.0]);
}
