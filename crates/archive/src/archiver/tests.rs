use std::path::Path;

use pegel_config::TimeSpan;
use pegel_metric::{Family, Input, MetricKind, Point, Series};
use pegel_storage::RecordPlace;
use pegel_store::StoreOptions;
use pegel_testkit::{FakeClock, TempDir, eventually};

use super::*;

/// Midnight, 2026-11-18.
const START: Millis = 1_794_960_000_000;
const HOUR: Millis = 3_600_000;

fn open_store(home: &TempDir, clock: &Arc<FakeClock>) -> Store {
    let mut options = StoreOptions::new(home.join("store"));
    options.keep.disk = TimeSpan::seconds(20 * 86_400);
    options.clock = clock.clone();
    options.archive = Some(Arc::default());
    Store::open(options).expect("opens")
}

fn start(store: &Store, home: &TempDir, clock: &Arc<FakeClock>) -> Archiver {
    start_in(home.join("archive"), store, home, clock)
}

fn start_in(archive: PathBuf, store: &Store, home: &TempDir, clock: &Arc<FakeClock>) -> Archiver {
    let options = ArchiverOptions {
        settings: ArchiveSettings::default(),
        place: ArchivePlace(RecordPlace::Directory(archive)),
        node: "n1".to_owned(),
        dir: home.join("store"),
        store: store.clone(),
        progress: store.archive_progress().expect("set above").clone(),
        clock: clock.clone(),
        supervisor: store.supervisor().clone(),
    };
    Archiver::start(options).expect("started")
}

/// Pushes a sample at each of these times, and writes them to blocks.
fn push(store: &Store, times: &[Millis]) {
    let mut family = Family::new("", MetricKind::Gauge, "", 0, "");
    family.input = Input::Http;
    let series = Series::named(Arc::new(family), "a", &[]).expect("a series");
    let series = Arc::new(series);
    let point = |time: &Millis| Point {
        series: series.clone(),
        time: *time,
        value: 1.0,
    };
    let points = times.iter().map(point).collect();
    drop(store.push(Input::Http, points).expect("pushed"));
    store.flush_to_blocks();
}

fn files_below(dir: &Path) -> usize {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let counts = entries.map(|entry| match entry.path().is_dir() {
        true => files_below(&entry.path()),
        false => 1,
    });
    counts.sum()
}

#[test]
fn a_block_that_cannot_be_read_does_not_hold_up_the_others() {
    let (home, clock) = (TempDir::new(), Arc::new(FakeClock::new(START)));
    let store = open_store(&home, &clock);
    push(&store, &[START + 1]);
    clock.advance(Duration::from_secs(2 * 3600 + 1));
    store.flush_to_blocks();
    // Late: blocks of their own.
    push(&store, &[START + 2]);
    push(&store, &[START - HOUR]);
    let blocks = store.finished_blocks();
    assert_eq!(blocks.len(), 3);
    let name = format!("{:010}.blk", blocks[0].identity().id);
    let (path, away) = (home.join("store/blocks").join(name), home.join("away"));
    std::fs::rename(&path, &away).expect("moved");
    let archiver = start(&store, &home, &clock);
    eventually("the other blocks are archived", || {
        let counts = archiver.counts();
        let is_done = counts.blocks == 2 && counts.errors > 0 && counts.pending_blocks == 1;
        is_done.then_some(()).ok_or(format!("{counts:?}"))
    });
    assert_eq!(files_below(&home.join("archive")), 2);
    std::fs::rename(&away, &path).expect("moved back");
    eventually("the block is archived", || {
        let counts = archiver.counts();
        let is_done = counts.blocks == 3 && counts.pending_blocks == 0;
        is_done.then_some(()).ok_or(format!("{counts:?}"))
    });
    assert_eq!(files_below(&home.join("archive")), 3);
    drop(archiver);
    store.close();
}

#[test]
fn a_block_of_several_days_becomes_a_file_for_each() {
    let clock = Arc::new(FakeClock::new(START + 30 * HOUR));
    let home = TempDir::new();
    let store = open_store(&home, &clock);
    push(&store, &[START + 27 * HOUR]);
    // Both sides of midnight, and a day without samples between two others, in one late block.
    push(&store, &[START - 1, START, START - 71 * HOUR]);
    assert_eq!(store.finished_blocks().len(), 2);
    let archiver = start(&store, &home, &clock);
    eventually("both blocks are archived", || {
        let counts = archiver.counts();
        (counts.samples == 4)
            .then_some(())
            .ok_or(format!("{counts:?}"))
    });
    assert_eq!(archiver.counts().files, 4);
    for (day, count) in [("15", 1), ("16", 0), ("17", 1), ("18", 1), ("19", 1)] {
        let dir = home.join(format!("archive/date=2026-11-{day}"));
        assert_eq!(files_below(&dir), count, "{day}");
    }
    drop(archiver);
    store.close();
}

#[test]
fn an_unusable_place_is_reported_before_the_first_block() {
    let (home, clock) = (TempDir::new(), Arc::new(FakeClock::new(START)));
    let store = open_store(&home, &clock);
    let file = home.join("file");
    std::fs::write(&file, "").expect("written");
    let archiver = start_in(file.join("archive"), &store, &home, &clock);
    eventually("the place is reported", || {
        let counts = archiver.counts();
        let error = counts.last_error.as_deref().unwrap_or_default();
        let is_done = error.contains("file/archive") && counts.errors > 0;
        is_done.then_some(()).ok_or(format!("{counts:?}"))
    });
    std::fs::remove_file(&file).expect("removed");
    eventually("the place is usable", || {
        let counts = archiver.counts();
        counts
            .last_error
            .is_none()
            .then_some(())
            .ok_or(format!("{counts:?}"))
    });
    assert_eq!(files_below(&file), 0);
    drop(archiver);
    store.close();
}
