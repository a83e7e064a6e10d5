//! One run of the model: a store, the naive store beside it, and random operations on both.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pegel_config::ByteSize;
use pegel_metric::{Clock, DropReason, Input, MetricKind, Millis, Point, Series, Tick};
use pegel_store::{Store, StoreOptions};
use pegel_testkit::{FakeClock, Rng, TempDir};

use super::collector::{ModelCollector, next_value, series};
use super::expected_current_values::ExpectedCurrentValues;
use super::naive_store::NaiveStore;

/// A Monday, on the hour.
pub(super) const START: Millis = 1_700_006_400_000;
pub(super) const MINUTE: Millis = 60_000;
pub(super) const HOUR: Millis = 60 * MINUTE;
pub(super) const AHEAD_MAX: Millis = 10 * MINUTE;

/// The focus of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ModelMode {
    /// All operations; bounded by age.
    Wild,
    /// Bounded by few bytes, all samples in order: exactly the oldest are missing.
    Ordered,
    /// Bounded by few bytes, samples in any order: what is present is right.
    Tight,
    /// A low limit of series.
    Crowded,
}

pub(super) struct ModelRun {
    pub mode: ModelMode,
    pub rng: Rng,
    dir: TempDir,
    pub clock: Arc<FakeClock>,
    pub options: StoreOptions,
    pub store: Store,
    pub naive: NaiveStore,
    pub currents: ExpectedCurrentValues,
    groups: Vec<ModelCollector>,
    loose: Vec<Arc<Series>>,
    last_value: HashMap<Arc<Series>, f64>,
    tick: Tick,
    /// Retention may have dropped older samples.
    pub retained_from: Millis,
    /// The number of samples that the ledger must count as kept since the store was opened.
    pub kept: u64,
    /// Samples that were overwritten. Beyond retention, the first value may reappear.
    pub rewritten: HashSet<(Arc<Series>, Millis)>,
    /// Reopened and not flushed: removed series reappear with their log.
    is_reopened: bool,
    /// The operations so far, printed on failure.
    pub operation_log: Vec<String>,
}

impl ModelRun {
    pub(super) fn new(seed: u64) -> ModelRun {
        let mut rng = Rng::new(seed);
        let mode = match seed % 8 {
            0 => ModelMode::Ordered,
            1 => ModelMode::Tight,
            2 => ModelMode::Crowded,
            _ => ModelMode::Wild,
        };
        let dir = TempDir::new();
        let clock = Arc::new(FakeClock::new(START + rng.between(0..HOUR)));
        let mut options = StoreOptions::new(dir.join("store"));
        options.clock = clock.clone();
        options.keep.memory = Duration::from_secs(*rng.pick(&[10, 60, 300])).into();
        options.keep.disk = Duration::from_secs(3600 * *rng.pick(&[3, 6, 24, 48])).into();
        if matches!(mode, ModelMode::Ordered | ModelMode::Tight) {
            options.keep.bytes = Some(ByteSize::bytes(*rng.pick(&[12, 24, 48]) << 10));
        }
        if mode == ModelMode::Crowded {
            options.limits.series = NonZeroU32::new(10).expect("not zero");
        }
        let groups: Vec<ModelCollector> = ["cpu", "disk", "net"]
            .into_iter()
            .map(|name| ModelCollector::new(name, &mut rng))
            .collect();
        let mut loose: Vec<Arc<Series>> = (0..6)
            .map(|n| {
                series(
                    "loose",
                    if n % 2 == 0 {
                        MetricKind::Gauge
                    } else {
                        MetricKind::Counter
                    },
                    n,
                )
            })
            .collect();
        // Two series are both in a group and pushed.
        loose.extend(groups[0].absent.iter().take(2).cloned());
        let store = Store::open(options.clone()).expect("an empty directory opens");
        ModelRun {
            mode,
            rng,
            dir,
            retained_from: clock.utc() - keep_ms(&options),
            clock,
            options,
            store,
            naive: NaiveStore::default(),
            currents: ExpectedCurrentValues::default(),
            groups,
            loose,
            last_value: HashMap::new(),
            tick: Tick::new(Input::Collect),
            kept: 0,
            rewritten: HashSet::new(),
            is_reopened: false,
            operation_log: vec![format!("seed {seed}: {mode:?}")],
        }
    }

    pub(super) fn step(&mut self) {
        match self.rng.below(24) {
            0..=6 => self.ticks(),
            7..=11 => self.push(),
            12..=13 => self.change_members(),
            14 => self.flush_to_blocks(),
            15..=16 => self.pass_time(),
            17 if matches!(self.mode, ModelMode::Wild | ModelMode::Tight) => self.step_back(),
            18 if self.rng.chance(3) => self.reopen(),
            19 if self.rng.chance(3) => self.crash(),
            20 => self.check_currents(),
            _ => self.check_random_query(),
        }
    }

    /// Ends the run: everything must be present, and the ledger must balance.
    pub(super) fn finish(&mut self) {
        self.flush_to_blocks();
        self.check_everything();
        self.reopen();
        self.check_everything();
    }

    pub(super) fn log_operation(&mut self, what: String) {
        self.operation_log
            .push(format!("{:>9} {what}", self.clock.utc() - START));
    }

    fn ticks(&mut self) {
        let count = match self.rng.below(8) {
            0 => 300,
            _ => self.rng.between(1..40),
        };
        let pause = *self.rng.pick(&[7, 100, 500, 1000]);
        let is_calm = self.rng.chance(2);
        self.log_operation(format!("{count} ticks every {pause} ms"));
        for _ in 0..count {
            let again = self.mode != ModelMode::Ordered && self.rng.chance(30);
            self.advance(if again { 0 } else { pause });
            self.tick_once();
            if is_calm {
                self.sync();
            }
        }
        self.sync();
        if !is_calm {
            self.currents.mark_change_times_inexact();
        }
    }

    fn tick_once(&mut self) {
        let time = self.clock.utc();
        let which = match self.mode {
            // One at a time, so that the ledger shows whether it was rejected.
            ModelMode::Crowded => 1 << self.rng.below(3),
            _ => self.rng.below(7) + 1,
        };
        self.tick.reset(time);
        let mut rows = Vec::new();
        for (number, collector) in self.groups.iter_mut().enumerate() {
            if which >> number & 1 == 0 {
                continue;
            }
            collector.group.clear();
            let mut row = Vec::new();
            for (slot, series) in &collector.slots {
                if !self.rng.chance(6) {
                    let value = next_value(&mut self.rng, &mut self.last_value, series);
                    collector.group.set(*slot, value);
                    row.push((series.clone(), value));
                }
            }
            collector.group.append_to(&mut self.tick);
            rows.push((number, collector.live_for, row));
        }
        let refused = || {
            self.store
                .ledger()
                .dropped_total(Input::Collect, DropReason::SeriesLimit)
        };
        let refused_before = refused();
        self.store.tick(&mut self.tick);
        if self.mode == ModelMode::Crowded {
            self.sync();
            let refused = refused() - refused_before;
            if refused > 0 {
                assert_eq!(
                    refused,
                    rows[0].2.len() as u64,
                    "a row is refused as a whole"
                );
                return;
            }
        }
        for (number, live_for, row) in rows {
            self.kept += row.len() as u64;
            for (series, value) in &row {
                self.write(series, time, *value);
            }
            self.currents.row(number, live_for, time, &row);
        }
    }

    fn push(&mut self) {
        let count = match self.rng.below(10) {
            0 => 600,
            _ => self.rng.between(1..20),
        };
        self.advance(1);
        let now = self.clock.utc();
        let mut points = Vec::new();
        let few = self
            .rng
            .chance(2)
            .then(|| self.rng.pick(&self.loose).clone());
        for _ in 0..count {
            let series = few
                .clone()
                .unwrap_or_else(|| self.rng.pick(&self.loose).clone());
            let time = self.push_time(&series, now);
            let value = next_value(&mut self.rng, &mut self.last_value, &series);
            points.push(Point {
                series,
                time,
                value,
            });
        }
        self.log_operation(format!("push {count} points"));
        let pushed = self
            .store
            .push(Input::Push, points.clone())
            .expect("the store takes pushes");
        self.currents.changed(now);
        let refused: HashMap<usize, DropReason> = pushed.refused.iter().copied().collect();
        assert_eq!(pushed.kept + refused.len() as u64, points.len() as u64);
        self.kept += pushed.kept;
        for (at, point) in points.iter().enumerate() {
            let expected = if point.time > now + AHEAD_MAX {
                Some(DropReason::Future)
            } else if point.time < now - keep_ms(&self.options) {
                Some(DropReason::TooOld)
            } else {
                None
            };
            match refused.get(&at) {
                Some(DropReason::SeriesLimit) if expected.is_none() => {
                    assert_eq!(self.mode, ModelMode::Crowded, "a series too many");
                }
                other => {
                    assert_eq!(
                        other.copied(),
                        expected,
                        "point {at} at {}",
                        point.time - START
                    );
                    if expected.is_none() {
                        self.write(&point.series, point.time, point.value);
                        self.currents
                            .point(&point.series, point.time, point.value, now);
                    }
                }
            }
        }
        self.currents.clock(now);
        let count = self.store.status().series;
        assert!(
            self.is_reopened || count <= u64::from(self.options.limits.series.get()),
            "{count} series"
        );
    }

    fn write(&mut self, series: &Arc<Series>, time: Millis, value: f64) {
        if self.naive.write(series, time, value) {
            self.rewritten.insert((series.clone(), time));
        }
    }

    fn push_time(&mut self, series: &Arc<Series>, now: Millis) -> Millis {
        let keep = keep_ms(&self.options);
        if self.mode == ModelMode::Ordered {
            return match self.rng.below(20) {
                0 => now + AHEAD_MAX + 1,
                1 => now - keep - 1,
                _ => now,
            };
        }
        match self.rng.below(20) {
            0 => now + AHEAD_MAX + self.rng.between(0..3),
            1 => now - keep + self.rng.between(-2..2),
            2 => now + self.rng.between(0..AHEAD_MAX),
            3..=6 => now - self.rng.between(0..HOUR),
            7..=8 => now - self.rng.between(0..keep),
            9..=11 => {
                let known = self.naive.times(series);
                if known.is_empty() {
                    now
                } else if self.rng.chance(2) {
                    *self.rng.pick(&known)
                } else {
                    // Mostly recent times, which are still in memory.
                    *self.rng.pick(&known[known.len().saturating_sub(20)..])
                }
            }
            _ => now - self.rng.between(0..2000),
        }
    }

    fn change_members(&mut self) {
        let at = self.rng.below(self.groups.len() as u64) as usize;
        let what = self.groups[at].change(&mut self.rng);
        self.log_operation(what);
    }

    fn flush_to_blocks(&mut self) {
        self.log_operation("settle".into());
        self.store.flush_to_blocks();
        self.is_reopened = false;
        let status = self.store.status();
        // Groups that exceed the limit are expected.
        if let Some(degraded) = &status.degraded {
            assert!(degraded.reason.contains("limits.series"), "{degraded:?}");
        }
        assert!(
            status.set_aside.is_empty() && status.torn_bytes == 0,
            "{status:?}"
        );
        let bytes = status.log_bytes + status.block_bytes;
        assert!(
            bytes <= self.options.keep.bytes_max() || status.blocks == 0,
            "{status:?}"
        );
    }

    fn pass_time(&mut self) {
        let by = match self.rng.below(4) {
            0 => self.rng.between(0..10_000),
            1 => self.rng.between(0..30 * MINUTE),
            2 => self.rng.between(0..2 * HOUR),
            _ => self.rng.between(0..8 * HOUR),
        };
        self.log_operation(format!("{} min pass", by / MINUTE));
        self.advance(by);
    }

    fn step_back(&mut self) {
        let by = match self.rng.below(3) {
            0 => self.rng.between(1..5000),
            1 => self.rng.between(1..20 * MINUTE),
            _ => self.rng.between(1..2 * HOUR),
        };
        self.log_operation(format!("the clock steps back by {by} ms"));
        self.sync();
        self.currents.changed(self.clock.utc());
        self.clock.step(-by);
        self.currents.set_back(self.clock.utc());
    }

    fn advance(&mut self, by: Millis) {
        self.clock.advance(Duration::from_millis(by as u64));
        self.retained_from = self
            .retained_from
            .max(self.clock.utc() - keep_ms(&self.options));
        self.currents.clock(self.clock.utc());
    }

    fn reopen(&mut self) {
        self.log_operation("close and reopen".into());
        self.sync();
        self.check_ledger();
        self.store.close();
        self.open_in(self.options.dir.clone());
    }

    /// Simulates a crash: reopens a copy of the files taken while the store is open.
    fn crash(&mut self) {
        self.log_operation("crash and reopen".into());
        self.sync();
        self.check_ledger();
        let dir = TempDir::new();
        let to = dir.join("store");
        while !copy_store(&self.options.dir, &to) {}
        let old = std::mem::replace(&mut self.dir, dir);
        self.open_in(to);
        drop(old);
    }

    fn open_in(&mut self, dir: std::path::PathBuf) {
        self.options.dir = dir;
        self.store = Store::open(self.options.clone()).expect("the store opens again");
        let status = self.store.status();
        assert!(
            status.set_aside.is_empty() && status.torn_bytes == 0,
            "{status:?}"
        );
        self.kept = 0;
        self.is_reopened = true;
        self.currents.reopened(self.clock.utc(), &self.naive);
    }

    /// Waits until everything queued so far was processed.
    pub(super) fn sync(&self) {
        self.store
            .push(Input::Push, Vec::new())
            .expect("the store takes pushes");
    }
}

fn keep_ms(options: &StoreOptions) -> Millis {
    options.keep.disk.duration().as_millis() as Millis
}

/// Copies log and blocks; returns false if the store changed its files meanwhile, which a real
/// crash would not see.
fn copy_store(from: &Path, to: &Path) -> bool {
    let _ = std::fs::remove_dir_all(to);
    let list = || -> Vec<std::path::PathBuf> {
        let mut paths = Vec::new();
        for folder in ["log", "blocks"] {
            for entry in std::fs::read_dir(from.join(folder)).expect("a directory") {
                let path = entry.expect("an entry").path();
                paths.push(path.strip_prefix(from).expect("below it").to_owned());
            }
        }
        paths.sort();
        paths
    };
    let before = list();
    for folder in ["log", "blocks"] {
        std::fs::create_dir_all(to.join(folder)).expect("a directory");
    }
    let copied = before
        .iter()
        .all(|path| std::fs::copy(from.join(path), to.join(path)).is_ok());
    copied && list() == before
}
