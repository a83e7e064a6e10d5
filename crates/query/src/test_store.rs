//! Test helpers: series from their text, and a temporary store.

use std::sync::Arc;

use pegel_metric::{Family, Input, MetricKind, Millis, Point, Series};
use pegel_store::{Store, StoreOptions};
use pegel_testkit::{FakeClock, TempDir};

use crate::{Annotations, QueryEngine};

/// A Tuesday, 22:13:20 UTC.
pub(crate) const NOW: Millis = 1_700_000_000_000;

pub(crate) fn series(text: &str) -> Series {
    let family = |name: &str| {
        Arc::new(Family {
            name: name.to_owned().into(),
            ..Family::new("", MetricKind::Gauge, "", 1, "")
        })
    };
    Series::parse(text, family).expect("a valid series")
}

/// A store in a temporary directory, removed on drop.
pub(crate) struct TestStore {
    pub store: Store,
    pub annotations: Arc<Annotations>,
    _dir: TempDir,
}

impl TestStore {
    pub(crate) fn new(now: Millis) -> TestStore {
        let dir = TempDir::new();
        let mut options = StoreOptions::new(dir.join("store"));
        options.clock = Arc::new(FakeClock::new(now));
        let store = Store::open(options).expect("opens");
        let annotations = Annotations::open(dir.path()).expect("opens");
        TestStore {
            store,
            annotations: Arc::new(annotations),
            _dir: dir,
        }
    }

    pub(crate) fn engine(&self, node: &str) -> QueryEngine {
        QueryEngine::new(self.store.clone(), self.annotations.clone(), node, false)
    }

    pub(crate) fn put(&self, text: &str, samples: &[(Millis, f64)]) {
        let series = Arc::new(series(text));
        let point = |&(time, value): &(Millis, f64)| Point {
            series: series.clone(),
            time,
            value,
        };
        let points: Vec<Point> = samples.iter().map(point).collect();
        let pushed = self.store.push(Input::Push, points).expect("taken");
        assert_eq!(pushed.kept, samples.len() as u64, "{text}");
    }
}
