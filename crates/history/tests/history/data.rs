//! Two hours of samples, and stores that hold all or the last of them.

use std::sync::Arc;
use std::time::Duration;

use pegel_history::{HistorySettings, PrometheusHistory};
use pegel_metric::{Family, Input, MetricKind, Millis, Point, STALE_NAN, Series};
use pegel_query::promql::{NodeLabels, StoreSource};
use pegel_store::{Store, StoreOptions};
use pegel_testkit::{FakeClock, TempDir};

pub(crate) const JOB: &str = "node";
pub(crate) const INSTANCE: &str = "n1:1337";
const STEP: Millis = 10_000;
const LENGTH: Millis = 2 * 3_600_000;
/// How long the small store keeps samples.
const KEEP: Millis = 3_600_000;

/// One series as an engine has it, without `job` and `instance`.
pub(crate) struct TestSeries {
    pub(crate) name: &'static str,
    pub(crate) labels: Vec<(&'static str, String)>,
    /// Whether remote write sent it, with stale markers. Otherwise it is a series of the node.
    pub(crate) is_remote: bool,
    pub(crate) samples: Vec<(Millis, f64)>,
}

/// All samples of the last two hours.
pub(crate) struct TestData {
    pub(crate) start: Millis,
    pub(crate) now: Millis,
    /// The time from which on the small store is complete.
    pub(crate) border: Millis,
    pub(crate) series: Vec<TestSeries>,
}

impl TestData {
    pub(crate) fn new(now: Millis) -> TestData {
        let now = now / STEP * STEP;
        let (start, border) = (now - LENGTH, now - KEEP + 60_000);
        let mut data = TestData {
            start,
            now,
            border,
            series: Vec::new(),
        };
        data.add_counters();
        data.add_gauges();
        data.add_ending();
        data
    }

    fn times(&self, from: Millis, until: Millis) -> impl Iterator<Item = Millis> + use<> {
        (from..=until).step_by(STEP as usize)
    }

    fn add(
        &mut self,
        name: &'static str,
        labels: &[(&'static str, &str)],
        is_remote: bool,
        samples: Vec<(Millis, f64)>,
    ) {
        let labels = labels
            .iter()
            .map(|(key, value)| (*key, (*value).to_owned()));
        self.series.push(TestSeries {
            name,
            labels: labels.collect(),
            is_remote,
            samples,
        });
    }

    /// Counters that are reset at, before and after the border, and buckets.
    fn add_counters(&mut self) {
        for (path, reset, speed) in [
            ("a", self.border, 0.7),
            ("b", self.border - 600_000, 1.3),
            ("c", self.border + 600_000, 0.1),
        ] {
            let value = |time: Millis| {
                let since = if time >= reset { reset } else { self.start };
                (time - since) as f64 / 1_000. * speed
            };
            let samples = self
                .times(self.start, self.now)
                .map(|time| (time, value(time)));
            self.add(
                "requests_total",
                &[("path", path)],
                false,
                samples.collect(),
            );
        }
        for (index, le) in ["0.1", "0.5", "1", "+Inf"].into_iter().enumerate() {
            let samples = self.times(self.start, self.now).map(|time| {
                let ticks = (time - self.start) / STEP;
                (time, (ticks * (index as Millis + 1) + ticks / 7) as f64)
            });
            self.add(
                "latency_seconds_bucket",
                &[("le", le)],
                false,
                samples.collect(),
            );
        }
    }

    fn add_gauges(&mut self) {
        for (queue, phase) in [("x", 0.), ("y", 1.), ("z", 2.)] {
            let samples = self.times(self.start, self.now).map(|time| {
                let angle = (time - self.start) as f64 / 400_000. + phase;
                (time, (angle.sin() * 50.).round() / 4.)
            });
            self.add("queue_depth", &[("queue", queue)], false, samples.collect());
        }
        // A gap across the border, and samples at odd times.
        let samples = self.times(self.start + 137, self.now);
        let samples = samples.filter(|time| (time - self.border).abs() > 200_000);
        let samples: Vec<(Millis, f64)> = samples.map(|time| (time, (time % 97) as f64)).collect();
        self.add("sparse", &[], false, samples);
    }

    /// Series that begin and end, some of them with stale markers near the border.
    fn add_ending(&mut self) {
        let (start, border, now) = (self.start, self.border, self.now);
        for (name, from, until) in [
            ("ended_long_ago", start, start + 1_000_000),
            ("ended_before", start, border - 20_000),
            ("ended_at_border", start, border - 10_000),
            ("ended_after", start, border + 20_000),
            ("began_after", border + 30_000, now),
        ] {
            let samples = self
                .times(from, until)
                .map(|time| (time, (time / STEP % 11) as f64));
            let mut samples: Vec<(Millis, f64)> = samples.collect();
            if until < now {
                samples.push((until + STEP, STALE_NAN));
            }
            self.add(name, &[("kind", "ending")], true, samples);
        }
        // Absent for a while on both sides of the border.
        let is_there = |time: &Millis| (time / 70_000) % 2 == 0;
        let mut samples = Vec::new();
        for time in self.times(start, now) {
            match is_there(&time) {
                true => samples.push((time, 1.)),
                false if is_there(&(time - STEP)) => samples.push((time, STALE_NAN)),
                false => {}
            }
        }
        self.add("flapping", &[], true, samples);
    }
}

impl TestSeries {
    /// Returns the labels of the series in an engine.
    pub(crate) fn engine_labels(&self) -> Vec<(String, String)> {
        let own = self.labels.iter();
        let own = own.map(|(key, value)| ((*key).to_owned(), value.clone()));
        let added = [
            ("__name__", self.name),
            ("instance", INSTANCE),
            ("job", JOB),
        ];
        let added = added.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let mut labels: Vec<(String, String)> = own.chain(added).collect();
        labels.sort();
        labels
    }

    fn stored(&self) -> Arc<Series> {
        let input = match self.is_remote {
            true => Input::RemoteWrite,
            false => Input::Push,
        };
        let is_counter = self.name.ends_with("_total") || self.name.ends_with("_bucket");
        let kind = match is_counter {
            true => MetricKind::Counter,
            false => MetricKind::Gauge,
        };
        let family = Family::new("", kind, "", 1, "").of_input(input);
        let mut labels: Vec<(&str, &str)> = self
            .labels
            .iter()
            .map(|(key, value)| (*key, &**value))
            .collect();
        if self.is_remote {
            labels.extend([("instance", INSTANCE), ("job", JOB)]);
        }
        Arc::new(Series::named(Arc::new(family), self.name, &labels).expect("valid"))
    }
}

/// A store that received all samples when they were new.
pub(crate) struct RetainedStore {
    pub(crate) store: Store,
    pub(crate) source: StoreSource,
    _dir: TempDir,
}

impl RetainedStore {
    /// Returns a store that keeps everything.
    pub(crate) fn of_all(data: &TestData) -> RetainedStore {
        RetainedStore::new(data, 30 * 24 * 3_600_000)
    }

    /// Returns a store that keeps the last hour, from which retention dropped the first.
    pub(crate) fn of_last(data: &TestData) -> RetainedStore {
        let small = RetainedStore::new(data, KEEP);
        assert_eq!(small.store.complete_since().of_all(), data.border);
        small
    }

    fn new(data: &TestData, keep: Millis) -> RetainedStore {
        let dir = TempDir::new();
        let clock = Arc::new(FakeClock::new(data.start - 1_000));
        let mut options = StoreOptions::new(dir.join("store"));
        options.keep.disk = Duration::from_millis(keep as u64).into();
        options.clock = clock.clone();
        let store = Store::open(options).expect("opens");
        let mut from = data.start - 1_000;
        while from < data.now {
            let until = (from + 600_000).min(data.now);
            clock.advance(Duration::from_millis((until - from) as u64));
            for series in &data.series {
                let stored = series.stored();
                let new =
                    { series.samples.iter() }.filter(|(time, _)| (from + 1..=until).contains(time));
                let points: Vec<Point> = new
                    .map(|(time, value)| Point {
                        series: stored.clone(),
                        time: *time,
                        value: *value,
                    })
                    .collect();
                let count = points.len() as u64;
                if count > 0 {
                    let pushed = store.push(stored.family().input, points).expect("taken");
                    assert_eq!(pushed.kept, count, "{}", series.name);
                }
            }
            store.flush_to_blocks();
            from = until;
        }
        let node = NodeLabels {
            job: JOB.to_owned(),
            instance: INSTANCE.to_owned(),
        };
        RetainedStore {
            source: StoreSource::new(store.clone(), node, Duration::from_millis(500)),
            store,
            _dir: dir,
        }
    }
}

/// Returns a reader of the engine at a URL.
pub(crate) fn history(
    url: &str,
    change: impl FnOnce(&mut HistorySettings),
) -> Arc<PrometheusHistory> {
    let mut settings = HistorySettings {
        url: Some(url.parse().expect("a URL")),
        ..HistorySettings::default()
    };
    change(&mut settings);
    Arc::new(PrometheusHistory::new(&settings).expect("configured"))
}
