//! A temporary store and queries over it.

use std::sync::Arc;

use pegel_metric::{Family, Input, MetricKind, Millis, Point, Series};
use pegel_query::{Annotations, OpentsdbError, QueryEngine, QueryParams, QueryRequest};
use pegel_store::{Store, StoreOptions};
use pegel_testkit::{FakeClock, TempDir};
use serde_json::Value;

/// A Tuesday, 22:13:20 UTC.
pub(crate) const NOW: Millis = 1_700_000_000_000;
/// The start of the test series: a full hour, more than an hour before now.
pub(crate) const T0: Millis = 1_699_995_600_000;

pub(crate) struct QueryFixture {
    pub engine: QueryEngine,
    pub store: Store,
    _dir: TempDir,
}

impl QueryFixture {
    pub(crate) fn new() -> QueryFixture {
        let dir = TempDir::new();
        let mut options = StoreOptions::new(dir.join("store"));
        options.clock = Arc::new(FakeClock::new(NOW));
        let store = Store::open(options).expect("opens");
        let annotations = Arc::new(Annotations::open(dir.path()).expect("opens"));
        QueryFixture {
            engine: QueryEngine::new(store.clone(), annotations, "nid1", false),
            store,
            _dir: dir,
        }
    }

    /// Samples at milliseconds after T0.
    pub(crate) fn put(&self, text: &str, samples: &[(Millis, f64)]) {
        let series = Arc::new(series(text));
        let point = |&(time, value): &(Millis, f64)| Point {
            series: series.clone(),
            time: T0 + time,
            value,
        };
        let points: Vec<Point> = samples.iter().map(point).collect();
        let pushed = self.store.push(Input::Push, points).expect("taken");
        assert_eq!(pushed.kept, samples.len() as u64, "{text}");
    }

    pub(crate) fn run(&self, request: &QueryRequest) -> Result<Value, OpentsdbError> {
        let mut out = Vec::new();
        self.engine.query(request, &mut out)?;
        Ok(serde_json::from_slice(&out).expect("JSON"))
    }

    /// Queries with `m=`, in milliseconds, from T0 on.
    pub(crate) fn query(&self, m: &str) -> Vec<ResponseSeries> {
        self.query_range(m, T0, T0 + 100_000)
    }

    pub(crate) fn query_range(&self, m: &str, start: Millis, end: Millis) -> Vec<ResponseSeries> {
        self.query_with(m, start, end, true)
    }

    /// Queries without `msResolution`. Its points have times in milliseconds as well.
    pub(crate) fn query_seconds(&self, m: &str, start: Millis, end: Millis) -> Vec<ResponseSeries> {
        let mut lines = self.query_with(m, start, end, false);
        for line in &mut lines {
            for point in &mut line.points {
                point.0 = (point.0 + T0) * 1_000 - T0;
            }
        }
        lines
    }

    fn query_with(&self, m: &str, start: Millis, end: Millis, ms: bool) -> Vec<ResponseSeries> {
        let pairs =
            [("start", start), ("end", end)].map(|(key, time)| (key.to_owned(), time.to_string()));
        let mut pairs = pairs.to_vec();
        pairs.push(("m".into(), m.into()));
        pairs.push(("ms".into(), ms.to_string()));
        pairs.push(("arrays".into(), "true".into()));
        let request = QueryRequest::from_uri(&QueryParams::new(pairs), NOW).expect(m);
        let answer = self.run(&request).expect(m);
        answer
            .as_array()
            .expect("a list")
            .iter()
            .map(ResponseSeries::read)
            .collect()
    }

    pub(crate) fn query_json(&self, body: &str) -> Result<Value, OpentsdbError> {
        self.run(&QueryRequest::from_json(
            body.as_bytes(),
            &QueryParams::default(),
            NOW,
        )?)
    }
}

/// One element of a response.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ResponseSeries {
    pub tags: String,
    pub aggregate_tags: String,
    /// Milliseconds after T0; `None` for NaN.
    pub points: Vec<(Millis, f64)>,
}

impl ResponseSeries {
    fn read(value: &Value) -> ResponseSeries {
        let tags = value["tags"].as_object().expect("tags");
        let tags: Vec<String> = tags
            .iter()
            .map(|(key, value)| format!("{key}={}", value.as_str().expect("text")))
            .collect();
        let texts = |value: &Value| {
            let list = value.as_array().expect("a list").iter();
            list.map(|text| text.as_str().expect("text").to_owned())
                .collect::<Vec<_>>()
        };
        let point = |pair: &Value| {
            let time = pair[0].as_i64().expect("a time") - T0;
            (time, pair[1].as_f64().unwrap_or(f64::NAN))
        };
        ResponseSeries {
            tags: tags.join(","),
            aggregate_tags: texts(&value["aggregateTags"]).join(","),
            points: value["dps"]
                .as_array()
                .expect("points")
                .iter()
                .map(point)
                .collect(),
        }
    }

    /// Values at whole tens of seconds, as the manual's tables show them.
    pub(crate) fn tens(&self) -> Vec<(Millis, f64)> {
        self.points
            .iter()
            .map(|(time, value)| (time / 10_000, *value))
            .collect()
    }
}

pub(crate) fn series(text: &str) -> Series {
    let family = |name: &str| {
        Arc::new(Family {
            name: name.to_owned().into(),
            ..Family::new("", MetricKind::Gauge, "", 1, "")
        })
    };
    Series::parse(text, family).expect("a valid series")
}
