//! Finished blocks for the archive, and what retention does with those that are not archived.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use pegel_config::{ByteSize, TimeSpan};
use pegel_metric::{Family, Input, MetricKind, Millis, Point, Series};
use pegel_store::{ArchiveProgress, FinishedBlock, Store, StoreOptions};
use pegel_testkit::{FakeClock, Rng, TempDir};

/// On the hour.
const START: Millis = 1_700_006_400_000;
const HOUR: Millis = 3_600_000;

struct ArchiveFixture {
    _home: TempDir,
    clock: Arc<FakeClock>,
    options: StoreOptions,
    progress: Arc<ArchiveProgress>,
}

impl ArchiveFixture {
    fn new() -> ArchiveFixture {
        let home = TempDir::new();
        let clock = Arc::new(FakeClock::new(START));
        let progress = Arc::new(ArchiveProgress::default());
        let mut options = StoreOptions::new(home.join("store"));
        options.clock = clock.clone();
        options.archive = Some(progress.clone());
        ArchiveFixture {
            _home: home,
            clock,
            options,
            progress,
        }
    }

    fn open(&self) -> Store {
        Store::open(self.options.clone()).expect("opens")
    }
}

fn series(name: &str) -> Arc<Series> {
    let mut family = Family::new("", MetricKind::Gauge, "", 0, "");
    family.input = Input::Http;
    Arc::new(Series::named(Arc::new(family), name, &[]).expect("a series"))
}

fn push(store: &Store, points: &[(&str, Millis, f64)]) {
    let points = points.iter().map(|(name, time, value)| Point {
        series: series(name),
        time: *time,
        value: *value,
    });
    let pushed = store.push(Input::Http, points.collect()).expect("pushed");
    drop(pushed);
}

fn visited(store: &Store, block: &FinishedBlock) -> (Vec<(String, Millis, f64)>, u64) {
    let mut samples = Vec::new();
    let skipped = store.visit_finished(block, Millis::MIN..Millis::MAX, &mut |series, points| {
        let named = points
            .iter()
            .map(|(time, value)| (series.text().to_owned(), *time, *value));
        samples.extend(named);
        ControlFlow::Continue(())
    });
    (samples, skipped.expect("read").repeated)
}

#[test]
fn sealed_hours_and_late_samples_are_finished_and_repetitions_are_left_out() {
    let fixture = ArchiveFixture::new();
    let store = fixture.open();
    push(
        &store,
        &[
            ("b", START + 1, 1.0),
            ("a", START + 2, 2.0),
            ("a", START + 3, 3.0),
        ],
    );
    store.flush_to_blocks();
    assert!(store.finished_blocks().is_empty(), "the hour is not over");
    fixture.clock.advance(Duration::from_secs(2 * 3600 + 1));
    store.flush_to_blocks();
    let blocks = store.finished_blocks();
    assert_eq!(blocks.len(), 1);
    assert_eq!(blocks[0].class(), "points");
    assert_eq!(blocks[0].span(), (START + 1, START + 3));
    let expected = |name: &str, time, value| (name.to_owned(), START + time, value);
    let sealed = vec![
        expected("a", 2, 2.0),
        expected("a", 3, 3.0),
        expected("b", 1, 1.0),
    ];
    assert_eq!(visited(&store, &blocks[0]), (sealed, 0));

    // Late: a repetition, a correction, and a new sample.
    push(
        &store,
        &[
            ("a", START + 2, 2.0),
            ("a", START + 3, 33.0),
            ("a", START + 4, 4.0),
        ],
    );
    store.flush_to_blocks();
    let blocks = store.finished_blocks();
    assert_eq!(blocks.len(), 2);
    let late = vec![expected("a", 3, 33.0), expected("a", 4, 4.0)];
    assert_eq!(visited(&store, &blocks[1]), (late, 1));
    // The value of the correction again, and the one before it.
    push(&store, &[("a", START + 3, 33.0), ("a", START + 2, 2.0)]);
    store.flush_to_blocks();
    push(&store, &[("a", START + 3, 3.0)]);
    store.flush_to_blocks();
    let blocks = store.finished_blocks();
    assert_eq!(visited(&store, &blocks[2]), (Vec::new(), 2));
    assert_eq!(
        visited(&store, &blocks[3]),
        (vec![expected("a", 3, 3.0)], 0)
    );
}

#[test]
fn blocks_outlive_their_age_until_they_are_archived() {
    let mut fixture = ArchiveFixture::new();
    fixture.options.keep.disk = TimeSpan::seconds(6 * 3600);
    let store = fixture.open();
    fixture.clock.advance(Duration::from_secs(3601));
    push(&store, &[("a", START, 1.0), ("a", START + HOUR, 2.0)]);
    store.flush_to_blocks();
    // The clock is trusted again an hour after a jump.
    for _ in 0..24 {
        fixture.clock.advance(Duration::from_secs(3600));
        store.flush_to_blocks();
    }
    let blocks = store.finished_blocks();
    assert_eq!(blocks.len(), 2, "far beyond their age");
    fixture.progress.mark(blocks[0].identity());
    drop(blocks);
    store.flush_to_blocks();
    let blocks = store.finished_blocks();
    assert_eq!(blocks.len(), 1);
    assert_eq!(blocks[0].span().0, START + HOUR);
    assert_eq!(fixture.progress.lost(), (0, 0));
}

#[test]
fn a_full_disk_drops_blocks_that_are_not_archived_and_counts_their_samples() {
    let mut fixture = ArchiveFixture::new();
    fixture.options.keep.bytes = Some(ByteSize::bytes(200_000));
    let store = fixture.open();
    let mut rng = Rng::new(7);
    let (mut pushed, hours) = (0, 20);
    for hour in 0..hours {
        let points: Vec<(&str, Millis, f64)> = (0..3000)
            .map(|n| ("a", START + hour * HOUR + n * 1000, rng.unit()))
            .collect();
        pushed += points.len() as u64;
        fixture.clock.advance(Duration::from_secs(3600));
        push(&store, &points);
        store.flush_to_blocks();
    }
    let kept: u64 = {
        let query = pegel_store::RangeQuery::new(
            pegel_metric::Selector::all(),
            START,
            START + hours * HOUR,
            None,
        );
        let mut count = 0;
        let read = store.query_range(&query, &mut |_, points| count += points.len() as u64);
        read.expect("read");
        count
    };
    let (lost, blocks) = fixture.progress.lost();
    assert!(lost > 0 && blocks > 0);
    assert_eq!(kept + lost, pushed);
}
