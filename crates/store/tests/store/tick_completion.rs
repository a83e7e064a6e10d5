//! What rows tell besides values: the ends of series, and the values of idle groups.

use std::sync::Arc;

use pegel_metric::{
    Clock, Family, Input, MetricKind, Millis, SampleGroup, Selector, Series, Tick, is_stale,
};
use pegel_store::{RangeQuery, SampleColumn, Store, StoreOptions, TickCompletion};
use pegel_testkit::{FakeClock, TempDir};

const START: Millis = 1_700_006_400_000;
static OF_NODE: Family = Family::new("node_disk", MetricKind::Gauge, "", 1, "");
static OF_PROGRAM: Family =
    Family::new("steps", MetricKind::Counter, "", 1, "").of_input(Input::Lane);

struct TickScene {
    dir: TempDir,
    clock: Arc<FakeClock>,
}

impl TickScene {
    fn new() -> TickScene {
        TickScene {
            dir: TempDir::new(),
            clock: Arc::new(FakeClock::new(START)),
        }
    }

    fn open(&self) -> Store {
        let mut options = StoreOptions::new(self.dir.join("store"));
        options.clock = self.clock.clone();
        Store::open(options).expect("the store opens")
    }

    fn set_clock(&self, seconds: i64) {
        self.clock.step(START + seconds * 1_000 - self.clock.utc());
    }

    /// Stores a row of a group, which holds these series and no others, `seconds` after the start.
    fn row(&self, store: &Store, seconds: i64, group: (&str, &Family), values: &[(&str, f64)]) {
        let mut rows = SampleGroup::new(group.0, 3, 5_000);
        let family = Arc::new(group.1.clone());
        for (device, value) in values {
            let slot = rows.declare(&family, &[("device", device)]);
            rows.set(slot.expect("valid"), *value);
        }
        let mut tick = Tick::new(Input::Collect);
        tick.reset(START + seconds * 1_000);
        rows.append_to(&mut tick);
        self.set_clock(seconds);
        store.tick(&mut tick);
        // A push is acknowledged after everything queued before it.
        let _ = store.push(Input::Push, Vec::new());
    }

    /// Stores a row of a group whose members stay the same: those without a value are absent.
    fn rows_of_one_group(&self, store: &Store, rows: &[(i64, Option<f64>)]) {
        let mut group = SampleGroup::new("disk", 3, 5_000);
        let family = Arc::new(OF_NODE.clone());
        let a = group.declare(&family, &[("device", "a")]).expect("valid");
        let b = group.declare(&family, &[("device", "b")]).expect("valid");
        let mut tick = Tick::new(Input::Collect);
        for (seconds, value) in rows {
            group.clear();
            group.set(b, 1.0);
            if let Some(value) = value {
                group.set(a, *value);
            }
            tick.reset(START + seconds * 1_000);
            group.append_to(&mut tick);
            self.set_clock(*seconds);
            store.tick(&mut tick);
        }
        let _ = store.push(Input::Push, Vec::new());
    }
}

/// Returns the samples of the device `a` within a range of seconds, as `seconds=value`.
fn samples(store: &Store, (start, end): (i64, i64)) -> Vec<String> {
    let of_a = |series: &Series| series.label("device").is_some_and(|device| device == "a");
    let mut query = RangeQuery::new(
        Selector::filter(of_a),
        START + start * 1_000,
        START + end * 1_000,
        None,
    );
    query.ticks = Some(TickCompletion { interval: 10_000 });
    let mut found = Vec::new();
    let mut visit = |_: &Arc<Series>, column: SampleColumn<'_>| {
        let points = column.times.iter().zip(column.values);
        found.extend(points.map(|(time, value)| {
            let seconds = (time - START) / 1_000;
            match is_stale(*value) {
                true => format!("{seconds}=stale"),
                false => format!("{seconds}={value}"),
            }
        }));
    };
    store.query_columns(&query, &mut visit).expect("read");
    found
}

/// Checks the samples in memory, in a block, and after the store was opened again.
#[track_caller]
fn check_everywhere(scene: &TickScene, store: Store, range: (i64, i64), expected: &[&str]) {
    assert_eq!(samples(&store, range), expected, "in memory");
    store.flush_to_blocks();
    assert_eq!(samples(&store, range), expected, "in a block");
    store.close();
    drop(store);
    let store = scene.open();
    assert_eq!(samples(&store, range), expected, "opened again");
    store.close();
}

#[test]
fn a_series_that_is_absent_from_a_row_ends_there() {
    let scene = TickScene::new();
    let store = scene.open();
    let rows = [
        (0, None),
        (1, Some(1.0)),
        (2, None),
        (3, None),
        (4, Some(4.0)),
        (5, None),
    ];
    scene.rows_of_one_group(&store, &rows);
    let expected = ["0=stale", "1=1", "2=stale", "4=4", "5=stale"];
    check_everywhere(&scene, store, (0, 10), &expected);
}

#[test]
fn a_series_that_leaves_its_group_ends_with_the_next_row() {
    let scene = TickScene::new();
    let store = scene.open();
    let group = ("disk", &OF_NODE);
    scene.row(&store, 0, group, &[("a", 1.0), ("b", 1.0)]);
    scene.row(&store, 1, group, &[("a", 2.0), ("b", 1.0)]);
    scene.row(&store, 2, group, &[("b", 1.0)]);
    scene.row(&store, 3, group, &[("b", 1.0), ("c", 1.0)]);
    scene.row(&store, 4, group, &[("a", 5.0), ("b", 1.0)]);
    // Rows of other groups end nothing.
    scene.row(&store, 5, ("net", &OF_NODE), &[("x", 1.0)]);
    assert_eq!(samples(&store, (1, 1)), ["1=2"]);
    check_everywhere(&scene, store, (0, 10), &["0=1", "1=2", "2=stale", "4=5"]);
}

#[test]
fn a_series_that_a_restart_does_not_bring_back_ends() {
    let scene = TickScene::new();
    let store = scene.open();
    let group = ("disk", &OF_NODE);
    scene.row(&store, 0, group, &[("a", 1.0), ("b", 1.0)]);
    store.flush_to_blocks();
    store.close();
    drop(store);
    let store = scene.open();
    assert_eq!(samples(&store, (0, 100)), ["0=1"], "no row since");
    scene.row(&store, 90, group, &[("b", 1.0)]);
    check_everywhere(&scene, store, (0, 100), &["0=1", "90=stale"]);
}

#[test]
fn values_of_an_idle_group_count_at_every_tick() {
    let scene = TickScene::new();
    let store = scene.open();
    let group = ("lanes-0", &OF_PROGRAM);
    scene.row(&store, 0, group, &[("a", 1.0)]);
    scene.row(&store, 30, group, &[("a", 2.0)]);
    scene.set_clock(65);
    let expected = ["0=1", "10=1", "20=1", "30=2", "40=2", "50=2", "60=2"];
    assert_eq!(samples(&store, (0, 60)), expected);
    assert_eq!(
        samples(&store, (31, 55)),
        ["40=2", "50=2"],
        "rows before the range count"
    );
    // The agent did not run for two minutes.
    scene.row(&store, 200, group, &[("b", 1.0)]);
    check_everywhere(
        &scene,
        store,
        (0, 300),
        &["0=1", "10=1", "20=1", "30=2", "200=stale"],
    );
}

#[test]
fn a_late_row_of_a_program_takes_the_place_of_its_tick() {
    let scene = TickScene::new();
    let store = scene.open();
    let group = ("lanes-0", &OF_PROGRAM);
    scene.row(&store, 0, group, &[("a", 0.0)]);
    scene.row(&store, 10, group, &[("a", 10.0)]);
    scene.row(&store, 23, group, &[("a", 23.0)]);
    scene.row(&store, 30, group, &[("a", 30.0)]);
    let expected = ["0=0", "10=10", "23=23", "30=30"];
    check_everywhere(&scene, store, (0, 34), &expected);
}

#[test]
fn a_query_without_completion_returns_what_was_stored() {
    let scene = TickScene::new();
    let store = scene.open();
    scene.rows_of_one_group(&store, &[(0, Some(1.0)), (1, None), (2, Some(2.0))]);
    let mut found = 0;
    let query = RangeQuery::new(Selector::name("node_disk"), START, START + 9_000, None);
    let mut visit = |_: &Arc<Series>, points: &[(Millis, f64)]| {
        assert!(points.iter().all(|(_, value)| !is_stale(*value)));
        found += points.len();
    };
    store.query_range(&query, &mut visit).expect("read");
    assert_eq!(found, 5);
    store.close();
}
