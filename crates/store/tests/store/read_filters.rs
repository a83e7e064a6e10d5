//! Filters of readers act on handles for readers, in memory and in blocks, and nowhere else.

use std::sync::Arc;

use pegel_metric::{
    Clock, Family, Input, MetricKind, Millis, SampleGroup, Selector, Series, Tick, is_stale,
};
use pegel_store::{
    QueryStep, RangeQuery, ReadFilter, SampleColumn, StepAggregation, Store, StoreOptions,
    TickCompletion,
};
use pegel_testkit::{FakeClock, TempDir};

const START: Millis = 1_700_006_400_000;
static LOSS: Family = Family::new("loss", MetricKind::Gauge, "", 1, "").of_input(Input::Lane);

/// Stores rows of `loss` with the ranks 0, 1 and 2, which have equal values, each `interval`
/// milliseconds.
fn store_rows(store: &Store, clock: &FakeClock, interval: Millis, values: &[f64]) {
    let mut group = SampleGroup::new("lanes-0", 3, 5_000);
    let family = Arc::new(LOSS.clone());
    let slots = ["0", "1", "2"].map(|rank| group.declare(&family, &[("rank", rank)]));
    let mut tick = Tick::new(Input::Lane);
    for (value, row) in values.iter().zip(0..) {
        for slot in &slots {
            group.set(*slot.as_ref().expect("valid"), *value);
        }
        let time = START + row * interval;
        tick.reset(time);
        group.append_to(&mut tick);
        clock.step(time - clock.utc());
        store.tick(&mut tick);
    }
    // A push is acknowledged after everything queued before it.
    let _ = store.push(Input::Push, Vec::new());
}

fn open(dir: &TempDir, clock: &Arc<FakeClock>) -> Store {
    let mut options = StoreOptions::new(dir.join("store"));
    options.clock = clock.clone();
    Store::open(options).expect("the store opens")
}

fn set_filter(store: &Store, name: &str, pattern: &str, range: (Option<f64>, Option<f64>)) {
    let filter = ReadFilter::new(name, pattern, range.0, range.1).expect("valid");
    store.set_read_filter(filter).expect("written");
}

fn query(step: Option<QueryStep>) -> RangeQuery {
    RangeQuery::new(Selector::name("loss"), START, START + 60_000, step)
}

/// Returns the samples of every kind of reading, as `RANK: SECONDS=VALUE …`.
fn readings(store: &Store) -> [Vec<String>; 5] {
    let sample = |(time, value): (Millis, f64)| match is_stale(value) {
        true => format!(" {}=stale", (time - START) / 1_000),
        false => format!(" {}={value}", (time - START) / 1_000),
    };
    let rank = |series: &Series| series.label("rank").expect("a rank").to_string();
    let points = |step| {
        let mut found = Vec::new();
        let mut visit = |series: &Arc<Series>, points: &[(Millis, f64)]| {
            let samples: String = points.iter().copied().map(sample).collect();
            found.push(format!("{}:{samples}", rank(series)));
        };
        store.query_range(&query(step), &mut visit).expect("read");
        found
    };
    let mut columns = Vec::new();
    let mut completed = query(None);
    completed.ticks = Some(TickCompletion { interval: 10_000 });
    let mut visit = |series: &Arc<Series>, column: SampleColumn<'_>| {
        let pairs = column
            .times
            .iter()
            .copied()
            .zip(column.values.iter().copied());
        let samples: String = pairs.map(sample).collect();
        columns.push(format!("{}:{samples}", rank(series)));
    };
    store.query_columns(&completed, &mut visit).expect("read");
    let mut current = Vec::new();
    store.latest(&Selector::name("loss"), 0, &mut |series, latest| {
        current.push(format!("{}: {}", rank(series), latest.value));
    });
    current.sort_unstable();
    let mut listed = Vec::new();
    let mut list = |series: &Arc<Series>| listed.push(rank(series));
    store.series(&query(None), &mut list).expect("read");
    let step = QueryStep {
        millis: 60_000,
        aggregation: Some(StepAggregation::Avg),
    };
    [points(None), points(Some(step)), columns, current, listed]
}

#[test]
fn a_range_is_applied_before_samples_are_combined_and_after_values_are_repeated() {
    let (dir, clock) = (TempDir::new(), Arc::new(FakeClock::new(START)));
    let store = open(&dir, &clock);
    store_rows(&store, &clock, 20_000, &[1.0, 500.0, 3.0]);
    let unfiltered = readings(&store);
    assert_eq!(unfiltered[1], ["0: 0=168", "1: 0=168", "2: 0=168"]);
    set_filter(&store, "outliers", "loss{rank=\"0\"}", (None, Some(100.0)));
    set_filter(&store, "hidden", "*{rank=\"2\"}", (None, None));
    let expected = [
        &["0: 0=1 40=3", "1: 0=1 20=500 40=3"][..],
        &["0: 0=2", "1: 0=168"],
        // The value 1 is not repeated at 20 and 30, where it was 500.
        &[
            "0: 0=1 10=1 20=stale 40=3",
            "1: 0=1 10=1 20=500 30=500 40=3",
        ],
        &["0: 3", "1: 3"],
        &["0", "1"],
    ];
    assert_eq!(readings(&store.for_readers()), expected, "in memory");
    assert_eq!(readings(&store), unfiltered, "other handles");
    store.flush_to_blocks();
    assert_eq!(readings(&store.for_readers()), expected, "in a block");
    store.close();
    drop(store);
    let store = open(&dir, &clock);
    let [.., expected_current, _] = &expected;
    let opened = readings(&store.for_readers());
    assert_eq!(opened[..3], expected[..3], "opened again");
    assert_eq!(opened[4], expected[4], "opened again");
    assert!(opened[3].len() <= expected_current.len());
    for name in ["outliers", "hidden"] {
        assert!(store.remove_read_filter(name).expect("written"));
    }
    assert_eq!(readings(&store.for_readers()), readings(&store));
    store.close();
}

#[test]
fn a_current_value_out_of_range_is_hidden() {
    let (dir, clock) = (TempDir::new(), Arc::new(FakeClock::new(START)));
    let store = open(&dir, &clock);
    store_rows(&store, &clock, 20_000, &[1.0, 500.0]);
    set_filter(&store, "outliers", "loss{rank=\"0\"}", (None, Some(100.0)));
    let [.., current, listed] = readings(&store.for_readers());
    assert_eq!(current, ["1: 500", "2: 500"]);
    assert_eq!(listed, ["0", "1", "2"], "it has values in range");
    store.close();
}
