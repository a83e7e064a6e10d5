//! The store through its public API: samples are preserved across blocks, hours and restarts.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use pegel_metric::{
    Clock, DropReason, Family, Input, MetricKind, Millis, Point, SampleGroup, Selector, Series,
    Tick,
};
use pegel_store::{
    QueryError, QueryStep, RangeQuery, StepAggregation, Store, StoreOpenError, StoreOptions,
};

/// A Monday, on the hour.
const START: Millis = 1_700_006_400_000;
const HOUR: Millis = 3_600_000;

static TEMPERATURE: Family = Family::new(
    "temperature_celsius",
    MetricKind::Gauge,
    "celsius",
    2,
    "How warm it is.",
)
.of_input(Input::Http);
static TURNS: Family = Family::new("turns_total", MetricKind::Counter, "", 2, "Turns.");

#[derive(Debug)]
struct ManualClock(AtomicI64);

impl Clock for ManualClock {
    fn utc(&self) -> Millis {
        self.0.load(Ordering::SeqCst)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis((self.utc() - START + 10 * HOUR) as u64)
    }
}

struct TestStoreDir {
    dir: std::path::PathBuf,
    clock: Arc<ManualClock>,
}

impl TestStoreDir {
    fn new(name: &str) -> TestStoreDir {
        let dir = std::env::temp_dir().join(format!("pegel-store-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        TestStoreDir {
            dir,
            clock: Arc::new(ManualClock(AtomicI64::new(START))),
        }
    }

    fn options(&self) -> StoreOptions {
        let mut options = StoreOptions::new(&self.dir);
        options.clock = self.clock.clone();
        options
    }

    fn open(&self) -> Store {
        Store::open(self.options()).expect("the store opens")
    }

    fn set(&self, time: Millis) {
        self.clock.0.store(time, Ordering::SeqCst);
    }
}

impl Drop for TestStoreDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn series(family: &Family, room: &str) -> Arc<Series> {
    Arc::new(Series::new(Arc::new(family.clone()), &[("room", room)]).expect("a valid series"))
}

fn points(
    store: &Store,
    pattern: &str,
    start: Millis,
    end: Millis,
    step: Option<QueryStep>,
) -> Vec<(String, Vec<(Millis, f64)>)> {
    let query = RangeQuery::new(Selector::parse(pattern).expect("valid"), start, end, step);
    let mut answer = Vec::new();
    store
        .query_range(&query, &mut |series, points| {
            answer.push((series.text().to_owned(), points.to_vec()))
        })
        .expect("an answer");
    answer
}

fn push(store: &Store, series: &Arc<Series>, samples: &[(Millis, f64)]) {
    let points = samples
        .iter()
        .map(|&(time, value)| Point {
            series: series.clone(),
            time,
            value,
        })
        .collect();
    let pushed = store.push(Input::Push, points).expect("the push is taken");
    assert_eq!(
        (pushed.kept, pushed.refused.len()),
        (samples.len() as u64, 0)
    );
}

/// Ticks of two series every 500 ms; the second is absent from every third tick.
fn feed(place: &TestStoreDir, store: &Store, ticks: std::ops::Range<i64>) {
    let mut group = SampleGroup::new("room", 3, 5_000);
    let warm = group
        .declare(&Arc::new(TEMPERATURE.clone()), &[("room", "a")])
        .expect("valid");
    let turns = group
        .declare(&Arc::new(TURNS.clone()), &[("room", "a")])
        .expect("valid");
    let mut tick = Tick::new(Input::Collect);
    for n in ticks {
        let time = START + n * 500;
        place.set(time);
        tick.reset(time);
        group.clear();
        group.set(warm, 20.0 + (n % 10) as f64 / 10.0);
        if n % 3 != 0 {
            group.set(turns, (n * 7) as f64);
        }
        group.append_to(&mut tick);
        store.tick(&mut tick);
        // The queue is bounded: let the writer catch up.
        if n % 500 == 0 {
            drain_queue(store);
        }
    }
    drain_queue(store);
}

/// A push is acknowledged after everything queued before it.
fn drain_queue(store: &Store) {
    let _ = store.push(Input::Push, Vec::new());
}

fn expected_turns(ticks: std::ops::Range<i64>) -> Vec<(Millis, f64)> {
    ticks
        .filter(|n| n % 3 != 0)
        .map(|n| (START + n * 500, (n * 7) as f64))
        .collect()
}

#[test]
fn ticks_read_back_from_memory_from_blocks_and_after_reopening() {
    let place = TestStoreDir::new("ticks");
    let store = place.open();
    feed(&place, &store, 0..500);
    let wanted = expected_turns(0..500);
    let read = |store: &Store| {
        points(store, "turns_total", START, START + HOUR, None)[0]
            .1
            .clone()
    };
    assert_eq!(read(&store), wanted, "from memory");
    store.flush_to_blocks();
    assert_eq!(store.status().blocks, 2, "one for each class of inputs");
    assert_eq!(read(&store), wanted, "from a block");
    store.close();
    drop(store);
    let store = place.open();
    assert_eq!(read(&store), wanted, "after reopening");
    assert_eq!(points(&store, "*", START, START + 1000, None).len(), 2);
}

#[test]
fn series_are_listed_from_memory_and_from_blocks_whether_live_or_not() {
    let place = TestStoreDir::new("list");
    let store = place.open();
    let listed = |store: &Store, pattern: &str, start: Millis, end: Millis| {
        let selector = Selector::parse(pattern).expect("valid");
        let query = RangeQuery::new(selector, start, end, None);
        let mut texts = Vec::new();
        let visit = &mut |series: &Arc<Series>| texts.push(series.text().to_owned());
        store.series(&query, visit).expect("listed");
        texts
    };
    feed(&place, &store, 0..500);
    push(&store, &series(&TURNS, "b"), &[(START + 10_000, 1.0)]);
    let [warm, a, b] = [
        "temperature_celsius{room=\"a\"}",
        "turns_total{room=\"a\"}",
        "turns_total{room=\"b\"}",
    ];
    for place_now in ["memory", "a block", "a block, long ago"] {
        assert_eq!(
            listed(&store, "*", START, START + HOUR),
            [warm, a, b],
            "{place_now}"
        );
        assert_eq!(listed(&store, "turns_total", START, START + HOUR), [a, b]);
        assert_eq!(listed(&store, "*", START + HOUR, START + 2 * HOUR), [""; 0]);
        store.flush_to_blocks();
        if place_now == "a block" {
            place.set(START + 9 * HOUR);
        }
    }
    let query = RangeQuery::new(Selector::all(), 5, 4, None);
    let reversed = store.series(&query, &mut |_| {});
    assert!(matches!(reversed, Err(QueryError::Reversed)));
    let mut small = RangeQuery::new(Selector::all(), START, START + HOUR, None);
    small.bytes_max = 32;
    let large = store.series(&small, &mut |_| {});
    assert!(matches!(large, Err(QueryError::TooLarge(32))));
}

#[test]
fn hours_are_sealed_and_keep_every_sample() {
    let place = TestStoreDir::new("seal");
    let store = place.open();
    for part in 0..6 {
        feed(&place, &store, part * 2400..(part + 1) * 2400);
        store.flush_to_blocks();
    }
    place.set(START + 3 * HOUR);
    store.flush_to_blocks();
    let names: Vec<_> = std::fs::read_dir(place.dir.join("blocks"))
        .expect("a directory")
        .collect();
    assert_eq!(
        names.len(),
        4,
        "two hours, one sealed block for each class: {names:?}"
    );
    let wanted = expected_turns(0..14_400);
    assert_eq!(
        points(&store, "turns_total", START, START + 9 * HOUR, None)[0].1,
        wanted
    );
    // Late, after the hour was sealed: it goes to its own block and takes precedence.
    push(
        &store,
        &series(&TURNS, "a"),
        &[(START + 500, -1.0), (START + 1, 5.0)],
    );
    store.flush_to_blocks();
    let read = points(&store, "turns_total", START, START + 1000, None);
    assert_eq!(
        read[0].1,
        [(START + 1, 5.0), (START + 500, -1.0), (START + 1000, 14.0)]
    );
}

#[test]
fn acknowledged_samples_survive_the_end_of_the_process() {
    let place = TestStoreDir::new("vanish");
    let store = place.open();
    let a = series(&TEMPERATURE, "a");
    push(&store, &a, &[(START, 1.0), (START + 10, 2.0)]);
    feed(&place, &store, 0..300);
    // The state after a crash: a copy of the files while the store is open.
    let copy = TestStoreDir::new("vanish-copy");
    for name in ["log", "blocks"] {
        std::fs::create_dir_all(copy.dir.join(name)).expect("a directory");
        for entry in std::fs::read_dir(place.dir.join(name)).expect("a directory") {
            let entry = entry.expect("an entry");
            std::fs::copy(entry.path(), copy.dir.join(name).join(entry.file_name()))
                .expect("a copy");
        }
    }
    copy.set(place.clock.utc());
    let reopened = copy.open();
    assert_eq!(
        points(&reopened, "*", START, START + HOUR, None),
        points(&store, "*", START, START + HOUR, None)
    );
    assert_eq!(reopened.status().torn_bytes, 0);
}

#[test]
fn the_last_sample_of_equal_times_is_kept_and_counted() {
    let place = TestStoreDir::new("duplicates");
    let store = place.open();
    let a = series(&TEMPERATURE, "a");
    push(
        &store,
        &a,
        &[(START + 20, 1.0), (START, 2.0), (START + 20, 3.0)],
    );
    store.flush_to_blocks();
    push(&store, &a, &[(START, 4.0), (START + 10, 5.0)]);
    assert_eq!(
        points(&store, "*", START, START + HOUR, None)[0].1,
        [(START, 4.0), (START + 10, 5.0), (START + 20, 3.0)]
    );
    assert_eq!(store.ledger().duplicates_total(), 1);
    assert!(store.ledger().out_of_order_total() >= 2);
}

#[test]
fn steps_aggregate_as_documented() {
    let place = TestStoreDir::new("steps");
    let store = place.open();
    let a = series(&TEMPERATURE, "a");
    push(
        &store,
        &a,
        &[
            (START, 1.0),
            (START + 400, 4.0),
            (START + 999, 2.5),
            (START + 2000, 7.0),
        ],
    );
    for (fold, expected) in [
        (StepAggregation::First, 1.0),
        (StepAggregation::Last, 2.5),
        (StepAggregation::Min, 1.0),
        (StepAggregation::Max, 4.0),
        (StepAggregation::Avg, 2.5),
        (StepAggregation::Sum, 7.5),
        (StepAggregation::Count, 3.0),
    ] {
        let step = Some(QueryStep {
            millis: 1000,
            aggregation: Some(fold),
        });
        let last = if fold == StepAggregation::Count {
            1.0
        } else {
            7.0
        };
        let wanted = [(START, expected), (START + 2000, last)];
        assert_eq!(
            points(&store, "*", START, START + HOUR, step)[0].1,
            wanted,
            "{fold:?} from memory"
        );
        store.flush_to_blocks();
        assert_eq!(
            points(&store, "*", START, START + HOUR, step)[0].1,
            wanted,
            "{fold:?} from a block"
        );
    }
}

#[test]
fn refusals_have_a_reason() {
    let place = TestStoreDir::new("refused");
    let mut options = place.options();
    options.limits.series = NonZeroU32::new(2).expect("not zero");
    let store = Store::open(options).expect("opens");
    let now = START;
    let make = |room: &str, time| Point {
        series: series(&TEMPERATURE, room),
        time,
        value: 1.0,
    };
    let pushed = store
        .push(
            Input::Push,
            vec![
                make("a", now),
                make("b", now + 11 * 60_000),
                make("c", now - 49 * HOUR),
                make("d", now),
                make("e", now),
            ],
        )
        .expect("taken");
    assert_eq!(pushed.kept, 2);
    assert_eq!(
        pushed.refused,
        [
            (1, DropReason::Future),
            (2, DropReason::TooOld),
            (4, DropReason::SeriesLimit)
        ]
    );
    for account in store.ledger().totals_by_input() {
        let dropped: u64 = account.dropped.iter().map(|(_, count)| count).sum();
        assert_eq!(account.received, account.kept + dropped, "{account:?}");
    }
}

#[test]
fn a_second_writer_is_refused_by_name() {
    let place = TestStoreDir::new("lock");
    let _store = place.open();
    match Store::open(place.options()) {
        Err(StoreOpenError::Locked { pid, .. }) => assert_eq!(pid, std::process::id()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_newer_format_is_refused_and_left_unchanged() {
    let place = TestStoreDir::new("format");
    place.open().close();
    std::fs::write(place.dir.join("format"), "pegel store 2\n").expect("written");
    let error = Store::open(place.options())
        .expect_err("refused")
        .to_string();
    assert!(
        error.contains("format 2") && error.contains("--dir"),
        "{error}"
    );
    assert_eq!(
        std::fs::read_to_string(place.dir.join("format")).expect("there"),
        "pegel store 2\n"
    );
}

#[test]
fn queries_are_bounded() {
    let place = TestStoreDir::new("bounds");
    let store = place.open();
    feed(&place, &store, 0..2000);
    let mut query = RangeQuery::new(Selector::all(), START, START + HOUR, None);
    query.bytes_max = 10_000;
    assert!(matches!(
        store.query_range(&query, &mut |_, _| {}),
        Err(QueryError::TooLarge(10_000))
    ));
    query.bytes_max = 1 << 20;
    query.deadline = std::time::Instant::now() - Duration::from_secs(1);
    assert!(matches!(
        store.query_range(&query, &mut |_, _| {}),
        Err(QueryError::TooLong)
    ));
    let reversed = RangeQuery::new(Selector::all(), START, START - 1, None);
    assert!(matches!(
        store.query_range(&reversed, &mut |_, _| {}),
        Err(QueryError::Reversed)
    ));
}

#[test]
fn current_values_have_the_time_of_their_change() {
    let place = TestStoreDir::new("latest");
    let store = place.open();
    feed(&place, &store, 0..30);
    let mut seen = Vec::new();
    let change = store.latest(
        &Selector::parse("temperature*").expect("valid"),
        0,
        &mut |series, latest| {
            seen.push((series.text().to_owned(), latest.value, latest.last_changed));
        },
    );
    assert_eq!(
        seen,
        [(
            "temperature_celsius{room=\"a\"}".to_owned(),
            20.9,
            START + 29 * 500
        )]
    );
    let mut changed = 0;
    store.latest(&Selector::all(), change, &mut |_, _| changed += 1);
    assert_eq!(changed, 0, "nothing changed since");
    place.set(START + HOUR);
    store.latest(&Selector::all(), 0, &mut |_, _| changed += 1);
    assert_eq!(changed, 0, "nothing is current an hour later");
}

#[test]
fn age_and_size_bound_the_store() {
    let place = TestStoreDir::new("retention");
    let mut options = place.options();
    options.keep.disk = Duration::from_secs(2 * 3600).into();
    let store = Store::open(options).expect("opens");
    let a = series(&TEMPERATURE, "a");
    for hour in 0..6 {
        place.set(START + hour * HOUR);
        push(&store, &a, &[(START + hour * HOUR, hour as f64)]);
        store.flush_to_blocks();
    }
    let read = points(&store, "*", START, START + 9 * HOUR, None);
    let values: Vec<f64> = read[0].1.iter().map(|(_, value)| *value).collect();
    assert_eq!(values, [3.0, 4.0, 5.0]);
}

#[test]
fn hidden_samples_stay_hidden_for_one_kind_of_series_only() {
    let place = TestStoreDir::new("hidden");
    let store = place.open();
    // Both kinds are in one group, so that they share their times; in memory and in a block.
    feed(&place, &store, 0..400);
    store.flush_to_blocks();
    feed(&place, &store, 400..800);
    let ungrouped = series(&TEMPERATURE, "b");
    push(&store, &ungrouped, &[(START, 1.0), (START + 100_000, 2.0)]);
    let end = START + HOUR;
    let all = |store: &Store, step| points(store, "*", START, end, step);
    let step = Some(QueryStep {
        millis: 60_000,
        aggregation: Some(StepAggregation::Count),
    });
    let before = all(&store, None);
    let cut = START + 100_000;
    store.hide_before(Input::Http, cut).expect("hidden");
    store.hide_before(Input::Http, START).expect("no less");
    let expected: Vec<_> = before
        .iter()
        .map(|(name, points)| {
            let from = if name.starts_with("temperature") {
                cut
            } else {
                START
            };
            let shown = points.iter().filter(|(time, _)| *time >= from);
            (name.clone(), shown.copied().collect::<Vec<_>>())
        })
        .collect();
    assert_eq!(all(&store, None), expected);
    let counted = |store: &Store| -> Vec<f64> {
        let counts = all(store, step);
        let sums = counts
            .iter()
            .map(|(_, points)| points.iter().map(|(_, n)| n).sum());
        sums.collect()
    };
    let counts: Vec<f64> = expected
        .iter()
        .map(|(_, points)| points.len() as f64)
        .collect();
    assert_eq!(counted(&store), counts);
    store.flush_to_blocks();
    assert_eq!(all(&store, None), expected, "from blocks");
    store.close();
    let store = place.open();
    assert_eq!(all(&store, None), expected, "after a restart");
    assert_eq!(store.hidden_before(Input::Http), Some(cut));
    assert_eq!(store.hidden_before(Input::Collect), None);

    // Current values are those of the log, which is empty after a restart.
    place.set(START + 400_000);
    push(&store, &ungrouped, &[(START + 400_000, 3.0)]);
    push(&store, &series(&TURNS, "b"), &[(START + 400_000, 3.0)]);
    let live = |store: &Store| {
        let mut names = Vec::new();
        store.latest(&Selector::all(), 0, &mut |series, _| {
            names.push(series.text().to_owned());
        });
        names.sort();
        names
    };
    assert_eq!(live(&store).len(), 2);
    store.hide_before(Input::Http, end + 1).expect("hidden");
    assert_eq!(live(&store), ["turns_total{room=\"b\"}"]);
    let left = all(&store, None);
    assert!(
        left.iter().all(|(name, _)| name.starts_with("turns")),
        "{left:?}"
    );
}
