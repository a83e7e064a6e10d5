//! Steps of the clock, through the sampler and the store as the agent connects them. The machine's
//! own clock is not changed: the test adds an offset to it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use pegel_collect::{CollectSettings, Host, Sampler};
use pegel_metric::{Clock, DropReason, Input, Millis, Selector, SystemClock};
use pegel_store::{RangeQuery, Store, StoreOptions};
use pegel_testkit::{TempDir, eventually};

const SECOND: Millis = 1_000;
const HOUR: Millis = 3_600 * SECOND;
/// The end of 32-bit time, and 2100-01-01.
const YEAR_2038: Millis = (1 << 31) * SECOND;
const YEAR_2100: Millis = 4_102_444_800 * SECOND;
const RATE: Millis = 10;

/// The machine's clock with an offset.
#[derive(Debug, Default)]
struct SetClock(AtomicI64);

impl Clock for SetClock {
    fn utc(&self) -> Millis {
        self.utc_nanos().div_euclid(1_000_000)
    }

    fn utc_nanos(&self) -> i64 {
        SystemClock.utc_nanos() + self.0.load(Ordering::SeqCst) * 1_000_000
    }

    fn monotonic(&self) -> Duration {
        SystemClock.monotonic()
    }
}

struct ClockStepSetup {
    clock: Arc<SetClock>,
    store: Store,
    sampler: Sampler,
    steps: u64,
    _dir: TempDir,
}

impl ClockStepSetup {
    fn new(keep_disk: Duration) -> ClockStepSetup {
        let dir = TempDir::new();
        let clock = Arc::new(SetClock::default());
        let mut options = StoreOptions::new(dir.join("store"));
        options.clock = clock.clone();
        options.keep.disk = keep_disk.into();
        let store = Store::open(options).expect("the store opens");
        let settings = CollectSettings {
            rate: Duration::from_millis(RATE as u64),
            ..CollectSettings::default()
        };
        let sink = {
            let store = store.clone();
            Box::new(move |tick: &mut _| {
                store.tick(tick);
            })
        };
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/basic");
        let sampler = Sampler::start(
            &settings,
            Host::at(&fixture),
            3,
            Vec::new(),
            store.ledger().clone(),
            clock.clone(),
            sink,
        );
        ClockStepSetup {
            clock,
            store,
            sampler: sampler.expect("started"),
            steps: 0,
            _dir: dir,
        }
    }

    /// The times of all stored samples of a series.
    fn times(&self) -> Vec<Millis> {
        let selector = Selector::name("node_load1");
        let question = RangeQuery::new(selector, Millis::MIN, Millis::MAX, None);
        let mut times = Vec::new();
        let asked = self.store.query_range(&question, &mut |_, points| {
            assert!(times.is_empty(), "duplicate series");
            times.extend(points.iter().map(|(time, _)| *time));
        });
        asked.expect("an answer");
        assert!(
            times.is_sorted_by(|a, b| a < b),
            "stored twice or out of order"
        );
        times
    }

    /// When the current values were sampled.
    fn seen(&self) -> Millis {
        let (selector, mut seen) = (Selector::name("node_load1"), Millis::MIN);
        self.store
            .latest(&selector, 0, &mut |_, latest| seen = latest.last_sampled);
        seen
    }

    /// Waits until the current values have the new time of the clock, and a few more samples were
    /// taken.
    fn sample(&self) {
        let from = self.clock.utc() + 20 * RATE;
        eventually("it samples at the new time", || {
            let seen = self.seen();
            let is_now = from <= seen && seen <= self.clock.utc();
            if is_now { Ok(()) } else { Err((seen, from)) }
        });
    }

    /// Steps the clock and checks the result.
    fn step(&mut self, by: Millis) {
        let before = self.times();
        let last = self.clock.utc();
        self.clock.0.fetch_add(by, Ordering::SeqCst);
        let first = self.clock.utc();
        self.steps += 1;
        self.sample();
        let (after, now) = (self.times(), self.clock.utc());
        let counts = self.sampler.schedule_counts();
        assert_eq!(
            counts.clock_steps, self.steps,
            "a step by {by} ms is counted once"
        );
        let kept = before
            .iter()
            .filter(|time| after.binary_search(time).is_ok())
            .count();
        assert_eq!(
            kept,
            before.len(),
            "a step by {by} ms: stored samples are kept"
        );
        // New samples have times before the step or after it.
        let is_meant = |time: Millis| (time <= last + RATE) || (first - RATE..=now).contains(&time);
        let fresh = after
            .iter()
            .filter(|time| before.binary_search(time).is_err());
        let odd: Vec<_> = fresh.filter(|time| !is_meant(**time)).collect();
        assert!(odd.is_empty(), "a step by {by} ms: {odd:?}");
        // A step of hours is not a pause: no samples were missed.
        assert!(counts.missed < 1_000, "{counts:?}");
    }

    /// Checks that received = kept + dropped, and that every kept sample is stored exactly once.
    fn assert_ledger(mut self) {
        self.sampler.stop();
        let ledger = self.store.ledger().clone();
        eventually("the store has written all", || {
            let account = &ledger.totals_by_input()[Input::Collect as usize];
            let dropped: u64 = account.dropped.iter().map(|(_, count)| count).sum();
            // A tick in progress during the step is refused for its time, and counted.
            let is_leap = |reason| matches!(reason, DropReason::TooOld | DropReason::Future);
            let others = account
                .dropped
                .iter()
                .filter(|(reason, _)| !is_leap(*reason));
            let is_all = others.map(|(_, count)| count).sum::<u64>() == 0;
            if account.received == account.kept + dropped && is_all {
                Ok(())
            } else {
                Err(account.clone())
            }
        });
        let mut question = RangeQuery::new(Selector::all(), Millis::MIN, Millis::MAX, None);
        question.bytes_max = 1 << 30;
        let mut stored = 0;
        let asked = self
            .store
            .query_range(&question, &mut |_, points| stored += points.len() as u64);
        asked.expect("an answer");
        let kept = ledger.kept_total(Input::Collect);
        assert_eq!(
            stored,
            kept - ledger.duplicates_total(),
            "{} duplicates",
            ledger.duplicates_total()
        );
    }
}

#[test]
fn a_clock_that_is_set_back_or_ahead_neither_loses_nor_doubles_samples() {
    let mut scene = ClockStepSetup::new(Duration::from_secs(2 * 86_400));
    scene.sample();
    for by in [
        -2 * SECOND,
        2 * SECOND,
        -3 * HOUR,
        3 * HOUR,
        3 * HOUR,
        -3 * HOUR,
        700,
        -700,
    ] {
        scene.step(by);
    }
    scene.assert_ledger();
}

#[test]
fn steps_of_years_are_handled_like_hours() {
    let mut scene = ClockStepSetup::new(Duration::from_secs(200 * 366 * 86_400));
    scene.sample();
    let start = scene.clock.utc();
    scene.step(YEAR_2038 - 150 - start);
    scene.step(YEAR_2100 - scene.clock.utc());
    scene.step(start - YEAR_2100);
    let times = scene.times();
    assert!(
        times
            .iter()
            .any(|time| *time < YEAR_2038 && YEAR_2038 - time < SECOND)
    );
    assert!(
        times
            .iter()
            .any(|time| *time >= YEAR_2038 && time - YEAR_2038 < 10 * SECOND)
    );
    scene.assert_ledger();
}

#[test]
fn a_clock_that_leaps_a_century_and_comes_back_costs_no_history() {
    let scene = ClockStepSetup::new(Duration::from_secs(2 * 86_400));
    scene.sample();
    scene.store.flush_to_blocks();
    let (before, start) = (scene.times(), scene.clock.utc());
    scene.clock.0.fetch_add(YEAR_2100 - start, Ordering::SeqCst);
    scene.sample();
    // Everything is now older than two days.
    scene.store.flush_to_blocks();
    assert!(scene.times().iter().all(|time| *time >= YEAR_2100));
    scene.clock.0.fetch_sub(YEAR_2100 - start, Ordering::SeqCst);
    scene.sample();
    scene.store.flush_to_blocks();
    let after = scene.times();
    let lost = before
        .iter()
        .filter(|time| after.binary_search(time).is_err());
    assert_eq!(lost.count(), 0, "of {}", before.len());
    assert_eq!(scene.sampler.schedule_counts().clock_steps, 2);
    scene.assert_ledger();
}

#[test]
fn a_small_difference_is_no_step() {
    let scene = ClockStepSetup::new(Duration::from_secs(86_400));
    scene.sample();
    scene.clock.0.fetch_add(-300, Ordering::SeqCst);
    scene.sample();
    scene.clock.0.fetch_add(300, Ordering::SeqCst);
    scene.sample();
    let counts = scene.sampler.schedule_counts();
    assert_eq!(counts.clock_steps, 0);
    assert_eq!(
        scene.store.ledger().duplicates_total(),
        0,
        "nominal times only count up"
    );
    scene.assert_ledger();
}
