//! Blocks whose indexes would become too large are split, in every step of maintenance, and no
//! sample is lost.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use pegel_metric::{
    Clock, Family, Input, MetricKind, Millis, Point, SampleGroup, Selector, Series, Slot, Tick,
};
use pegel_store::{BlockLimits, RangeQuery, Store, StoreOptions};
use pegel_testkit::{FakeClock, TempDir};

/// On the hour.
const START: Millis = 1_700_006_400_000;
const ROUNDS: usize = 5;
const MEMBERS: usize = 40;

static FAMILY: Family = Family::new("m", MetricKind::Gauge, "", 1, "A metric.");

/// Pushes one point of each of `count` series with a name and a long help text of its own.
fn push(store: &Store, name: &str, count: usize, time: Millis) {
    let point = |n: usize| {
        let family = Arc::new(Family {
            name: "".into(),
            help: format!("{n}{}", "h".repeat(1_000)).into(),
            input: Input::Put,
            ..FAMILY.clone()
        });
        let series = Series::named(family, &format!("{name}_{n}"), &[]);
        Point {
            series: Arc::new(series.expect("valid")),
            time,
            value: n as f64,
        }
    };
    let pushed = store.push(Input::Put, (0..count).map(point).collect());
    assert_eq!(pushed.expect("taken").refused, []);
}

/// Returns the number of series that match, and of their samples.
fn history(store: &Store, text: &str) -> (usize, usize) {
    let wanted = Selector::parse(text).expect("valid");
    let query = RangeQuery::new(wanted, 0, Millis::MAX / 2, None);
    let (mut series, mut samples) = (0, 0);
    let read = store.query_range(&query, &mut |_, points| {
        series += 1;
        samples += points.len();
    });
    read.expect("an answer");
    (series, samples)
}

#[test]
fn an_index_beyond_its_limit_is_split_and_loses_no_acknowledged_point() {
    let home = TempDir::new();
    let clock = Arc::new(FakeClock::new(START));
    let mut options = StoreOptions::new(home.join("store"));
    options.clock = clock.clone();
    options.block_limits = BlockLimits {
        index_bytes: 8 << 10,
        run_bytes: 100,
    };
    // Wider than an index of this size.
    let family = Arc::new(Family {
        help: "h".repeat(1_000).into(),
        ..FAMILY.clone()
    });
    let mut group = SampleGroup::new("wide", 1, 300_000);
    let slots: Vec<Slot> = (0..MEMBERS)
        .map(|n| group.declare(&family, &[("n", &n.to_string())]))
        .map(|slot| slot.expect("valid"))
        .collect();
    let mut tick = Tick::new(Input::Collect);
    let mut store = Store::open(options.clone()).expect("opens");
    let expect_all = |store: &Store, rounds: usize, when: &str| {
        assert_eq!(history(store, "victim_*"), (20, 20 * rounds), "{when}");
        assert_eq!(history(store, "flood_*"), (100, 100 * rounds), "{when}");
        let members = (MEMBERS, MEMBERS * rounds);
        assert_eq!(history(store, "m"), members, "{when}");
        assert!(!home.join("store/aside").exists(), "{when}");
    };
    for round in 0..ROUNDS {
        tick.reset(clock.utc());
        for (n, slot) in slots.iter().enumerate() {
            group.set(*slot, (round * MEMBERS + n) as f64 / 3.0);
        }
        group.append_to(&mut tick);
        store.tick(&mut tick);
        push(&store, "victim", 20, clock.utc());
        push(&store, "flood", 100, clock.utc());
        store.flush_to_blocks();
        expect_all(&store, round + 1, "in fresh blocks");
        clock.advance(Duration::from_secs(240));
    }
    let blocks = || {
        fs::read_dir(home.join("store/blocks"))
            .expect("there")
            .count()
    };
    assert!(blocks() > 20 * ROUNDS, "{} fresh blocks", blocks());
    store.close();
    store = Store::open(options.clone()).expect("opens");
    expect_all(&store, ROUNDS, "in fresh blocks of an earlier process");
    clock.advance(Duration::from_secs(3 * 3_600));
    store.flush_to_blocks();
    expect_all(&store, ROUNDS, "in sealed blocks");
    assert!(blocks() > 20, "{} sealed blocks", blocks());
    assert!(blocks() < 20 * ROUNDS, "merged: {} blocks", blocks());
    store.close();
    store = Store::open(options).expect("opens");
    expect_all(&store, ROUNDS, "in sealed blocks of an earlier process");
    store.close();
}
