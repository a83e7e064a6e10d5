//! Current values of points that are late or ahead of the clock, across blocks and restarts.

use std::sync::Arc;
use std::time::Duration;

use pegel_metric::{
    Clock, Family, Input, MetricKind, Millis, Point, SampleGroup, Selector, Series, Tick,
};
use pegel_store::{RangeQuery, Store, StoreOptions};
use pegel_testkit::{FakeClock, TempDir};

const START: Millis = 1_700_006_400_000;
static DEPTH: Family = Family::new("depth", MetricKind::Gauge, "", 1, "").of_input(Input::Put);

struct Scene {
    dir: TempDir,
    clock: Arc<FakeClock>,
    series: Arc<Series>,
}

impl Scene {
    fn new() -> Scene {
        Scene {
            dir: TempDir::new(),
            clock: Arc::new(FakeClock::new(START)),
            series: Arc::new(Series::new(Arc::new(DEPTH.clone()), &[]).expect("valid")),
        }
    }

    fn open(&self) -> Store {
        let mut options = StoreOptions::new(self.dir.join("store"));
        options.clock = self.clock.clone();
        Store::open(options).expect("the store opens")
    }

    fn put(&self, store: &Store, time: Millis, value: f64) {
        let series = self.series.clone();
        let point = Point {
            series,
            time,
            value,
        };
        store.push(Input::Put, vec![point]).expect("taken");
    }

    fn current(store: &Store) -> Option<f64> {
        let mut value = None;
        store.latest(&Selector::all(), 0, &mut |_, latest| {
            value = Some(latest.value);
        });
        value
    }
}

#[test]
fn a_late_point_is_not_current_after_a_restart() {
    let scene = Scene::new();
    let store = scene.open();
    scene.put(&store, START, 2.0);
    store.flush_to_blocks();
    scene.put(&store, START - 1000, 1.0);
    assert_eq!(Scene::current(&store), Some(2.0));
    store.close();
    let store = scene.open();
    assert_eq!(Scene::current(&store), Some(2.0));
    scene.put(&store, START, 3.0);
    assert_eq!(Scene::current(&store), Some(3.0), "the same time again");
}

#[test]
fn a_point_ahead_of_the_clock_is_current_when_its_time_has_come() {
    for (is_in_block, is_reopened) in [(false, false), (true, false), (false, true), (true, true)] {
        let scene = Scene::new();
        let mut store = scene.open();
        scene.put(&store, START, 1.0);
        scene.put(&store, START + 120_000, 2.0);
        scene.put(&store, START + 60_000, 9.0);
        scene.put(&store, START - 1000, 0.0);
        assert_eq!(Scene::current(&store), Some(1.0));
        if is_in_block {
            store.flush_to_blocks();
            scene.put(&store, START, 1.0);
        }
        if is_reopened {
            store.close();
            store = scene.open();
        }
        let query = RangeQuery::new(Selector::all(), 0, Millis::MAX, None);
        let mut times = Vec::new();
        let answer = store.query_range(&query, &mut |_, points| {
            times.extend(points.iter().map(|(time, _)| time - START));
        });
        answer.expect("an answer");
        assert_eq!(times, [-1000, 0, 60_000, 120_000], "stored regardless");
        for (second, expected) in [(59, 1.0), (60, 9.0), (119, 9.0), (120, 2.0), (200, 2.0)] {
            let by = START + second * 1000 - scene.clock.utc();
            scene.clock.advance(Duration::from_millis(by as u64));
            let why = format!("{second} s, block {is_in_block}, reopened {is_reopened}");
            assert_eq!(Scene::current(&store), Some(expected), "{why}");
        }
    }
}

#[test]
fn groups_of_one_input_can_be_left_out() {
    let scene = Scene::new();
    let store = scene.open();
    for (name, input) in [("sampled", Input::Collect), ("reduced", Input::Tree)] {
        let family = Family::new(name, MetricKind::Gauge, "", 1, "").of_input(input);
        let mut group = SampleGroup::new(name, 3, 60_000);
        let slot = group.declare(&Arc::new(family), &[]).expect("valid");
        group.set(slot, 1.0);
        let mut tick = Tick::new(input);
        tick.reset(START);
        group.append_to(&mut tick);
        store.tick(&mut tick);
    }
    // Answered after the ticks.
    scene.put(&store, START, 2.0);
    let mut names = Vec::new();
    store.latest_without(Input::Tree, &mut |series, _| {
        names.push(series.name().to_owned());
    });
    names.sort();
    assert_eq!(names, ["depth", "sampled"]);
}
