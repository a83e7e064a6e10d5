//! Shares of `keep.bytes`: an input that fills the disk drops only its own history.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use pegel_config::ByteSize;
use pegel_metric::{
    Clock, Family, Input, MetricKind, Millis, Point, SampleGroup, Selector, Series, Slot, Tick,
};
use pegel_store::{RangeQuery, Store, StoreOptions};
use pegel_testkit::{FakeClock, Rng, TempDir};

/// On the hour.
const START: Millis = 1_700_006_400_000;
const KEEP_BYTES: u64 = 1 << 20;
const STEP: Duration = Duration::from_secs(240);

static LOAD: Family = Family::new("load", MetricKind::Gauge, "", 1, "The node's own.");

struct ShareFixture {
    _home: TempDir,
    clock: Arc<FakeClock>,
    options: StoreOptions,
    rng: Rng,
    group: SampleGroup,
    slots: Vec<Slot>,
    tick: Tick,
    /// The number of steps in which the node was sampled.
    sampled: u64,
}

impl ShareFixture {
    fn new(node_series: u64) -> ShareFixture {
        let home = TempDir::new();
        let clock = Arc::new(FakeClock::new(START));
        let mut options = StoreOptions::new(home.join("store"));
        options.clock = clock.clone();
        options.keep.bytes = Some(ByteSize::bytes(KEEP_BYTES));
        let mut group = SampleGroup::new("load", 1, 300_000);
        let family = Arc::new(LOAD.clone());
        let slots = (0..node_series)
            .map(|n| group.declare(&family, &[("cpu", &n.to_string())]))
            .map(|slot| slot.expect("valid"));
        let slots = slots.collect();
        ShareFixture {
            _home: home,
            clock,
            options,
            rng: Rng::new(24),
            group,
            slots,
            tick: Tick::new(Input::Collect),
            sampled: 0,
        }
    }

    fn random(&mut self) -> f64 {
        f64::from_bits(self.rng.below(1 << 52) | 0x3ff0 << 48)
    }

    fn sample_node(&mut self, store: &Store) {
        self.tick.reset(self.clock.utc());
        for at in 0..self.slots.len() {
            let value = self.random();
            self.group.set(self.slots[at], value);
        }
        self.group.append_to(&mut self.tick);
        store.tick(&mut self.tick);
        self.sampled += 1;
    }

    /// Writes incompressible values: eight bytes for each series.
    fn flood(&mut self, store: &Store, input: Input, series: u64) {
        let family = Arc::new(Family {
            name: "".into(),
            input,
            ..LOAD.clone()
        });
        let time = self.clock.utc();
        let points = (0..series)
            .map(|n| {
                let labels = [("n", &*n.to_string())];
                let series = Series::named(family.clone(), input.as_str(), &labels);
                Point {
                    series: Arc::new(series.expect("valid")),
                    time,
                    value: self.random(),
                }
            })
            .collect();
        store.push(input, points).expect("taken");
    }

    fn step(&mut self, store: &Store) {
        store.flush_to_blocks();
        self.clock.advance(STEP);
    }
}

/// Returns the number of samples of one series, and the time of the oldest.
fn history(store: &Store, text: &str) -> (u64, Option<Millis>) {
    let wanted = Selector::parse(text).expect("valid");
    let query = RangeQuery::new(wanted, 0, Millis::MAX / 2, None);
    let mut found = (0, None);
    let read = store.query_range(&query, &mut |_, points| {
        found = (points.len() as u64, points.first().map(|point| point.0));
    });
    read.expect("an answer");
    found
}

fn disk_bytes(store: &Store) -> u64 {
    let status = store.status();
    status.block_bytes + status.log_bytes
}

#[test]
fn a_flood_of_one_input_drops_only_its_own_history() {
    for input in [Input::Statsd, Input::Put] {
        let mut scene = ShareFixture::new(4);
        let store = Store::open(scene.options.clone()).expect("opens");
        // Four hours: fresh blocks, sealed hours; several times the bytes that the store may keep.
        for _ in 0..60 {
            scene.sample_node(&store);
            scene.flood(&store, input, 4_000);
            scene.step(&store);
            assert!(disk_bytes(&store) <= KEEP_BYTES, "{:?}", store.status());
        }
        let node = history(&store, r#"load{cpu="0"}"#);
        assert_eq!(node, (scene.sampled, Some(START)), "{input:?}");
        let (kept, oldest) = history(&store, &format!(r#"{}{{n="0"}}"#, input.as_str()));
        assert!(0 < kept && kept < 60, "{input:?}: {kept} kept");
        assert!(oldest > Some(START), "{input:?}");
        let classes = store.status().classes;
        assert_eq!(classes[0].oldest, Some(START), "{classes:?}");
        let taken: u64 = classes.iter().map(|class| class.block_bytes).sum();
        assert_eq!(taken, store.status().block_bytes, "{classes:?}");
        // Each class states from which time on nothing is missing.
        let series = |input: Input, name: &str| {
            let family = LOAD.clone().of_input(input);
            Series::named(Arc::new(family), name, &[("n", "0")]).expect("valid")
        };
        let complete = store.complete_since();
        assert_eq!(complete.of(&series(Input::Collect, "load")), START);
        let border = complete.of(&series(input, input.as_str()));
        assert!(
            START < border && Some(border) <= oldest,
            "{border} {oldest:?}"
        );
        // The same after a restart.
        store.close();
        drop(store);
        let store = Store::open(scene.options.clone()).expect("opens");
        assert_eq!(history(&store, r#"load{cpu="0"}"#), node, "{input:?}");
        let again = store.complete_since();
        assert_eq!(again.of(&series(input, input.as_str())), border);
    }
}

#[test]
fn a_flood_of_points_keeps_what_the_agent_derives() {
    for input in [Input::Rules, Input::Tree] {
        let mut scene = ShareFixture::new(4);
        let store = Store::open(scene.options.clone()).expect("opens");
        for _ in 0..60 {
            scene.flood(&store, input, 4);
            scene.flood(&store, Input::Put, 4_000);
            scene.step(&store);
        }
        let derived = history(&store, &format!(r#"{}{{n="0"}}"#, input.as_str()));
        assert_eq!(derived, (60, Some(START)), "{input:?}");
        let (kept, oldest) = history(&store, r#"put{n="0"}"#);
        assert!(0 < kept && kept < 60 && oldest > Some(START), "{kept} kept");
    }
}

#[test]
fn borrowed_space_is_returned_to_the_node() {
    let mut scene = ShareFixture::new(1_000);
    let store = Store::open(scene.options.clone()).expect("opens");
    while disk_bytes(&store) < KEEP_BYTES * 7 / 8 {
        scene.flood(&store, Input::Statsd, 4_000);
        scene.step(&store);
    }
    // The node needs nearly its half of the bytes: 8,000 in each step.
    for _ in 0..30 {
        scene.sample_node(&store);
        // Few enough that a merged block of several steps fits into the share of statsd.
        scene.flood(&store, Input::Statsd, 1_000);
        scene.step(&store);
        assert!(disk_bytes(&store) <= KEEP_BYTES, "{:?}", store.status());
    }
    let (kept, _) = history(&store, r#"load{cpu="0"}"#);
    assert_eq!(kept, 30, "its share is reserved");
    // Beyond its share it drops its own history, not that of others.
    let (before, oldest) = history(&store, r#"statsd{n="0"}"#);
    assert!(before > 0);
    for _ in 0..100 {
        scene.sample_node(&store);
        scene.step(&store);
    }
    assert!(history(&store, r#"load{cpu="0"}"#).0 < 130);
    let after = history(&store, r#"statsd{n="0"}"#);
    assert!(
        after.0 > 0 && after.1 >= oldest,
        "{before} before, {after:?} after"
    );
}

/// Sets the class in the headers of all blocks: the second byte of the kind.
fn set_class(options: &StoreOptions, class: u8) {
    for entry in fs::read_dir(options.dir.join("blocks")).expect("a directory") {
        let path = entry.expect("an entry").path();
        let mut bytes = fs::read(&path).expect("a block");
        assert!(![0, class].contains(&bytes[13]), "{}", path.display());
        bytes[13] = class;
        let crc = crc32fast::hash(&bytes[..16]).to_le_bytes();
        bytes[16..20].copy_from_slice(&crc);
        fs::write(&path, bytes).expect("written");
    }
}

/// The version before derived series had a class of their own wrote them into blocks of points.
#[test]
fn derived_series_in_blocks_of_points_are_sealed_there() {
    const POINTS: u8 = 4;
    let mut scene = ShareFixture::new(4);
    let store = Store::open(scene.options.clone()).expect("opens");
    let family = Arc::new(Family {
        input: Input::Tree,
        ..LOAD.clone()
    });
    let mut group = SampleGroup::new("reduced", 1, 300_000);
    let slot = group.declare(&family, &[("stat", "sum")]).expect("valid");
    let mut tick = Tick::new(Input::Tree);
    for _ in 0..10 {
        tick.reset(scene.clock.utc());
        let value = scene.random();
        group.set(slot, value);
        group.append_to(&mut tick);
        store.tick(&mut tick);
        scene.flood(&store, Input::Rules, 1);
        scene.step(&store);
    }
    store.close();
    drop(store);
    set_class(&scene.options, POINTS);
    let store = Store::open(scene.options.clone()).expect("opens");
    assert_eq!(store.status().set_aside, [] as [std::path::PathBuf; 0]);
    // Four hours.
    for _ in 0..60 {
        scene.sample_node(&store);
        scene.step(&store);
    }
    for text in [r#"load{stat="sum"}"#, r#"rules{n="0"}"#] {
        assert_eq!(history(&store, text), (10, Some(START)), "{text}");
    }
}

/// Blocks of the version before classes: the second byte of the kind is zero.
#[test]
fn blocks_without_a_class_are_read_and_accounted_to_the_node() {
    let mut scene = ShareFixture::new(4);
    let store = Store::open(scene.options.clone()).expect("opens");
    for _ in 0..10 {
        scene.sample_node(&store);
        scene.flood(&store, Input::Statsd, 10);
        scene.step(&store);
    }
    store.close();
    drop(store);
    set_class(&scene.options, 0);
    let store = Store::open(scene.options.clone()).expect("opens");
    assert_eq!(store.status().set_aside, [] as [std::path::PathBuf; 0]);
    for _ in 0..60 {
        scene.sample_node(&store);
        scene.flood(&store, Input::Statsd, 4_000);
        scene.step(&store);
        assert!(disk_bytes(&store) <= KEEP_BYTES, "{:?}", store.status());
    }
    // Sealed in their own class, together with the node's.
    let node = history(&store, r#"load{cpu="0"}"#);
    assert_eq!(node, (scene.sampled, Some(START)));
}
