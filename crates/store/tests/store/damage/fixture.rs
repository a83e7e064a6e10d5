//! A store with known contents, and helpers to compare what remains of them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pegel_metric::{
    Family, Input, MetricKind, Millis, Point, SampleGroup, Selector, Series, Slot, Tick,
};
use pegel_store::{Files, PushError, RangeQuery, Store, StoreOptions};
use pegel_testkit::{FakeClock, TempDir};

/// A Monday, on the hour.
pub(super) const START: Millis = 1_700_006_400_000;

static FAMILY: Family = Family::new("depth", MetricKind::Gauge, "metres", 1, "How deep it is.");

/// Bits of values by series text and time.
pub(super) type SampleBits = BTreeMap<(String, Millis), u64>;

/// A directory, a clock, and the groups and series that write into it.
pub(super) struct DamageFixture {
    _dir: TempDir,
    pub clock: Arc<FakeClock>,
    pub options: StoreOptions,
    groups: Vec<(SampleGroup, Vec<(Slot, String)>)>,
    tick: Tick,
    count: u64,
}

pub(super) fn series(label: &str) -> Arc<Series> {
    Arc::new(Series::new(Arc::new(FAMILY.clone()), &[("at", label)]).expect("a valid series"))
}

impl DamageFixture {
    pub(super) fn new() -> DamageFixture {
        let dir = TempDir::new();
        let clock = Arc::new(FakeClock::new(START));
        let mut options = StoreOptions::new(dir.join("store"));
        options.clock = clock.clone();
        let group = |name: &str| {
            let mut group = SampleGroup::new(name, 3, 5000);
            let slots = (0..3)
                .map(|n| {
                    let label = format!("{name}{n}");
                    let slot = group.declare(&Arc::new(FAMILY.clone()), &[("at", &label)]);
                    (slot.expect("valid"), series(&label).text().to_owned())
                })
                .collect();
            (group, slots)
        };
        DamageFixture {
            _dir: dir,
            clock,
            options,
            groups: vec![group("bank"), group("weir")],
            tick: Tick::new(Input::Collect),
            count: 0,
        }
    }

    pub(super) fn with_files(mut self, files: impl Files + 'static) -> DamageFixture {
        self.options.files = Arc::new(files);
        self
    }

    pub(super) fn open(&self) -> Store {
        Store::open(self.options.clone()).expect("the store opens")
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.options.dir.join(name)
    }

    pub(super) fn now(&self) -> Millis {
        pegel_metric::Clock::utc(&*self.clock)
    }

    pub(super) fn advance(&self, millis: u64) {
        self.clock.advance(Duration::from_millis(millis));
    }

    /// Sends a tick of some groups and waits until it can be read; returns its samples.
    pub(super) fn tick(&mut self, store: &Store, which: &[usize]) -> SampleBits {
        self.count += 1;
        let time = self.now();
        let mut samples = SampleBits::new();
        self.tick.reset(time);
        for &at in which {
            let (group, slots) = &mut self.groups[at];
            group.clear();
            for (index, (slot, text)) in slots.iter().enumerate() {
                if !(self.count + index as u64).is_multiple_of(5) {
                    let value = (self.count * 7 + index as u64) as f64 / 10.0;
                    group.set(*slot, value);
                    samples.insert((text.clone(), time), value.to_bits());
                }
            }
            group.append_to(&mut self.tick);
        }
        store.tick(&mut self.tick);
        // A push is completed after everything queued before it, even if it is rejected.
        let _ = store.push(Input::Push, Vec::new());
        samples
    }

    /// Pushes one point of each label; returns the points if they were accepted.
    pub(super) fn push(&mut self, store: &Store, labels: &[&str]) -> Result<SampleBits, PushError> {
        self.count += 1;
        let points: Vec<Point> = labels
            .iter()
            .map(|label| Point {
                series: series(label),
                time: self.now(),
                value: self.count as f64 * 1.25,
            })
            .collect();
        let samples = points.iter().map(|point| {
            let key = (point.series.text().to_owned(), point.time);
            (key, point.value.to_bits())
        });
        let samples = samples.collect();
        let pushed = store.push(Input::Push, points)?;
        assert_eq!(pushed.refused, []);
        Ok(samples)
    }
}

pub(super) fn read(store: &Store) -> SampleBits {
    try_read(store).expect("an answer")
}

pub(super) fn try_read(store: &Store) -> Result<SampleBits, pegel_store::QueryError> {
    let mut samples = SampleBits::new();
    let query = RangeQuery::new(Selector::all(), Millis::MIN, Millis::MAX, None);
    store.query_range(&query, &mut |series, points| {
        assert!(
            points.is_sorted_by(|a, b| a.0 < b.0),
            "{series} is out of order"
        );
        for (time, value) in points {
            samples.insert((series.text().to_owned(), *time), value.to_bits());
        }
    })?;
    Ok(samples)
}

/// Returns what is in `all` and not in `found`. Panics if `found` holds anything else.
#[track_caller]
pub(super) fn missing(all: &SampleBits, found: &SampleBits, context: &str) -> SampleBits {
    for (key, bits) in found {
        assert_eq!(
            all.get(key).map(|bits| f64::from_bits(*bits)),
            Some(f64::from_bits(*bits)),
            "{context}: {key:?} was never written so"
        );
    }
    let lost = all.iter().filter(|(key, _)| !found.contains_key(*key));
    lost.map(|(key, bits)| (key.clone(), *bits)).collect()
}

/// Returns the only file in a folder of the store.
pub(super) fn only_file(folder: &Path) -> PathBuf {
    let files = files_in(folder);
    assert_eq!(files.len(), 1, "{files:?}");
    files[0].clone()
}

/// Returns the files of a folder, sorted; empty if it does not exist.
pub(super) fn files_in(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .map(|entry| entry.expect("an entry").path())
        .collect();
    paths.sort();
    paths
}

/// Returns every file of the store except the lock, with its contents.
pub(super) fn contents(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let folders = [
        dir.to_owned(),
        dir.join("log"),
        dir.join("blocks"),
        dir.join("aside"),
    ];
    let files = folders.iter().flat_map(|folder| files_in(folder));
    files
        .filter(|path| path.is_file() && !path.ends_with("lock"))
        .map(|path| (path.clone(), fs::read(&path).expect("a file")))
        .collect()
}

/// Makes the store's folder hold exactly these files.
pub(super) fn restore(dir: &Path, contents: &BTreeMap<PathBuf, Vec<u8>>) {
    let _ = fs::remove_dir_all(dir);
    for (path, bytes) in contents {
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, bytes).expect("a file");
    }
}
