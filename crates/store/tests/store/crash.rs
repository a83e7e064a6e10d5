//! Crashes on a simulated disk: of the process between any two file operations, and power failures
//! that lose unsynced data in any combination.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pegel_metric::{
    Clock, Family, Input, MetricKind, Millis, Point, SampleGroup, Selector, Series, SystemClock,
    Tick,
};
use pegel_store::{RangeQuery, Store, StoreOptions};
use pegel_testkit::{FakeClock, Rng, SimFiles, TempDir};

/// On the hour.
const START: Millis = 1_700_006_400_000;
const MINUTE: u64 = 60;
/// The most data that a power failure may cost.
const LOSS_MAX: Duration = Duration::from_secs(1);

/// In another class than the node's: a head becomes two blocks.
static DEPTH: Family =
    Family::new("depth", MetricKind::Gauge, "", 1, "How deep it is.").of_input(Input::Push);
static TURNS: Family = Family::new("turns_total", MetricKind::Counter, "", 1, "Turns.");

/// An acknowledged point: the number of file operations and the time at its acknowledgement.
struct AcknowledgedPoint {
    operations: usize,
    at: Instant,
    series: String,
    time: Millis,
    value: f64,
}

fn options(dir: &TempDir, files: &SimFiles, clock: Arc<dyn Clock>) -> StoreOptions {
    let mut options = StoreOptions::new(dir.path());
    options.files = Arc::new(files.clone());
    options.clock = clock;
    options
}

fn depth(gauge: u64) -> Arc<Series> {
    let labels = [("gauge", &*gauge.to_string())];
    Arc::new(Series::new(Arc::new(DEPTH.clone()), &labels).expect("a valid series"))
}

/// Pushes one point and records its acknowledgement.
fn push(
    store: &Store,
    disk: &SimFiles,
    gauge: u64,
    time: Millis,
    value: f64,
    told: &mut Vec<AcknowledgedPoint>,
) {
    let series = depth(gauge);
    let text = series.text().to_owned();
    let pushed = store
        .push(
            Input::Push,
            vec![Point {
                series,
                time,
                value,
            }],
        )
        .expect("taken");
    assert_eq!(pushed.kept, 1);
    let operations = disk.history().len();
    told.push(AcknowledgedPoint {
        operations,
        at: Instant::now(),
        series: text,
        time,
        value,
    });
}

/// Returns everything in the store; fails on duplicate or unordered times.
fn read_all(store: &Store) -> BTreeMap<(String, Millis), f64> {
    let mut all = BTreeMap::new();
    let query = RangeQuery::new(Selector::all(), 0, Millis::MAX / 2, None);
    let answer = store.query_range(&query, &mut |series, points| {
        assert!(
            points.is_sorted_by(|a, b| a.0 < b.0),
            "{series}: duplicate time"
        );
        all.extend(
            points
                .iter()
                .map(|&(time, value)| ((series.text().to_owned(), time), value)),
        );
    });
    answer.expect("an answer");
    all
}

/// Returns the last acknowledged value of each series and time.
fn expected<'a>(
    told: impl Iterator<Item = &'a AcknowledgedPoint>,
) -> BTreeMap<(String, Millis), f64> {
    told.map(|told| ((told.series.clone(), told.time), told.value))
        .collect()
}

#[test]
fn a_process_may_die_between_any_two_operations() {
    let (dir, disk) = (TempDir::new(), SimFiles::new());
    let clock = Arc::new(FakeClock::new(START));
    let store = Store::open(options(&dir, &disk, clock.clone())).expect("opens");
    let mut told = Vec::new();
    let mut group = SampleGroup::new("turns", 3, 5_000);
    let slot = group.declare(&Arc::new(TURNS.clone()), &[]).expect("valid");
    let mut tick = Tick::new(Input::Collect);
    // Four hours in steps of ten minutes: fresh blocks, sealed hours, late points, duplicates.
    for step in 0..24u64 {
        let now = clock.utc();
        tick.reset(now);
        group.set(slot, step as f64);
        group.append_to(&mut tick);
        store.tick(&mut tick);
        push(&store, &disk, step % 3, now, step as f64, &mut told);
        if step % 5 == 4 {
            push(&store, &disk, 7, START + step as i64, -1.0, &mut told);
            push(&store, &disk, 7, START, step as f64, &mut told);
        }
        clock.advance(Duration::from_secs(10 * MINUTE));
        store.flush_to_blocks();
    }
    store.close();
    drop(store);

    let count = disk.history().len();
    assert!(count > 100, "{count} operations");
    for died in 0..=count {
        let image = disk.image_after_kill(died);
        let store =
            Store::open(options(&dir, &image, clock.clone())).expect("opens after any crash");
        let wanted = expected(told.iter().filter(|told| told.operations <= died));
        let later = expected(told.iter());
        for round in ["at once", "after settling"] {
            let mut found = read_all(&store);
            found.retain(|(series, _), _| series.starts_with("depth"));
            for (place, value) in &wanted {
                let newer = later.get(place) != Some(value);
                assert!(
                    found.get(place) == Some(value) || (newer && found.contains_key(place)),
                    "after {died} of {count} operations, {round}: {place:?} should be {value}, is {:?}",
                    found.get(place)
                );
            }
            // Unacknowledged samples may be present, but only with the values sent.
            let invented = found.keys().find(|place| !later.contains_key(*place));
            assert_eq!(invented, None, "after {died} operations, {round}");
            store.flush_to_blocks();
        }
        assert!(
            store.status().set_aside.is_empty(),
            "after {died}: no damage expected"
        );
    }
}

#[test]
fn a_power_cut_costs_at_most_a_second() {
    let (dir, disk) = (TempDir::new(), SimFiles::new());
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let mut options_now = options(&dir, &disk, clock.clone());
    // Often enough that blocks are written and logs removed within this short test.
    options_now.keep.memory = Duration::from_millis(400).into();
    let store = Store::open(options_now).expect("opens");
    let mut told = Vec::new();
    let started = Instant::now();
    let mut step = 0u64;
    while started.elapsed() < Duration::from_millis(3500) {
        push(
            &store,
            &disk,
            step % 5,
            clock.utc() - (step % 7) as i64,
            step as f64,
            &mut told,
        );
        step += 1;
        std::thread::sleep(Duration::from_millis(3));
    }
    store.close();
    drop(store);

    let history = disk.history();
    let mut rng = Rng::new(7);
    for round in 0..300 {
        let cut = 1 + rng.below(history.len() as u64 - 1) as usize;
        let at = history[cut - 1].at;
        let image = disk.image_after_power_cut(cut, &mut rng);
        let store = Store::open(options(&dir, &image, clock.clone())).expect("opens after any cut");
        let found = read_all(&store);
        let all = expected(told.iter());
        let safe = expected(told.iter().filter(|told| told.at + LOSS_MAX < at));
        for (place, value) in &safe {
            let newer = all.get(place) != Some(value);
            assert!(
                found.get(place) == Some(value) || (newer && found.contains_key(place)),
                "round {round}, after {cut} of {} operations: {place:?} = {value} is lost",
                history.len()
            );
        }
        let invented = found.iter().find(|(place, _)| !all.contains_key(*place));
        assert_eq!(invented, None, "round {round}, after {cut} operations");
    }
}
