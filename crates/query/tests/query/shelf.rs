//! A store with what a test puts in, and questions about it.

use std::sync::Arc;

use pegel_metric::{Family, Input, Kind, Millis, Point, Series};
use pegel_query::{Annotations, Engine, Pairs, Problem, Request};
use pegel_store::{Options, Store};
use pegel_testkit::{FakeClock, TempDir};
use serde_json::Value;

/// A Tuesday, 22:13:20 UTC.
pub const NOW: Millis = 1_700_000_000_000;
/// Where the tests' series begin: a whole hour before now, and more.
pub const T0: Millis = 1_699_995_600_000;

pub struct Shelf {
    pub engine: Engine,
    _dir: TempDir,
}

impl Shelf {
    pub fn new() -> Shelf {
        let dir = TempDir::new();
        let mut options = Options::new(dir.join("store"));
        options.clock = Arc::new(FakeClock::new(NOW));
        let store = Store::open(options).expect("opens");
        let annotations = Arc::new(Annotations::open(dir.path()).expect("opens"));
        Shelf {
            engine: Engine::new(store, annotations, "nid1", false),
            _dir: dir,
        }
    }

    /// Samples at milliseconds after T0.
    pub fn put(&self, text: &str, samples: &[(Millis, f64)]) {
        let series = Arc::new(series(text));
        let point = |&(time, value): &(Millis, f64)| Point {
            series: series.clone(),
            time: T0 + time,
            value,
        };
        let points: Vec<Point> = samples.iter().map(point).collect();
        let pushed = self.engine.store.push(Input::Push, points).expect("taken");
        assert_eq!(pushed.kept, samples.len() as u64, "{text}");
    }

    pub fn ask(&self, request: &Request) -> Result<Value, Problem> {
        let mut out = Vec::new();
        self.engine.query(request, &mut out)?;
        Ok(serde_json::from_slice(&out).expect("JSON"))
    }

    /// Asks with `m=`, in milliseconds, from T0 on.
    pub fn m(&self, m: &str) -> Vec<Line> {
        self.span(m, T0, T0 + 100_000)
    }

    pub fn span(&self, m: &str, start: Millis, end: Millis) -> Vec<Line> {
        let pairs =
            [("start", start), ("end", end)].map(|(key, time)| (key.to_owned(), time.to_string()));
        let mut pairs = pairs.to_vec();
        pairs.push(("m".into(), m.into()));
        pairs.push(("ms".into(), "true".into()));
        pairs.push(("arrays".into(), "true".into()));
        let request = Request::from_uri(&Pairs::new(pairs), NOW).expect(m);
        let answer = self.ask(&request).expect(m);
        answer
            .as_array()
            .expect("a list")
            .iter()
            .map(Line::read)
            .collect()
    }

    pub fn json(&self, body: &str) -> Result<Value, Problem> {
        self.ask(&Request::from_json(
            body.as_bytes(),
            &Pairs::default(),
            NOW,
        )?)
    }
}

/// One element of an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    pub tags: String,
    pub aggregate_tags: String,
    /// Milliseconds after T0; what is no number is none.
    pub points: Vec<(Millis, f64)>,
}

impl Line {
    fn read(value: &Value) -> Line {
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
        Line {
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
    pub fn tens(&self) -> Vec<(Millis, f64)> {
        self.points
            .iter()
            .map(|(time, value)| (time / 10_000, *value))
            .collect()
    }
}

pub fn series(text: &str) -> Series {
    let family = |name: &str| {
        Arc::new(Family {
            name: name.to_owned().into(),
            ..Family::new("", Kind::Gauge, "", 1, "")
        })
    };
    Series::parse(text, family).expect("a valid series")
}
