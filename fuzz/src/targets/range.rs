//! The parameters of `/api/v1/range`, and the response of the store.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use pegel_metric::{Family, Input, MetricKind, Millis, Point, SampleGroup, Selector, Series, Tick};
use pegel_serve::fuzzing::{range_question, selector};
use pegel_store::{QueryError, RangeQuery, StepAggregation, Store, StoreOptions};
use pegel_testkit::TempDir;

use super::Target;
use crate::fixed_clock::{FixedClock, NOW};
use crate::memory::bounded;

const SAMPLES: i64 = 900;

pub(super) const RANGE: Target = Target {
    name: "range",
    run: range,
    dictionary: &[
        b"match=",
        b"start=",
        b"end=",
        b"step=",
        b"agg=",
        b"names=",
        b"&",
        b"%7B",
        b"%22",
        b"now",
        b"-5m",
        b"-90s",
        b"1700006000",
        b"1700006400000",
        b"1e15",
        b"500ms",
        b"36500d",
        b"last",
        b"avg",
        b"sum",
        b"count",
        b"max",
        b"temp*",
        b"turns_total",
    ],
    seeds: || {
        [
            "match=temp*&start=-5m&end=now",
            "match=turns_total&start=1700006000&end=1700006400000&step=10s&agg=max",
            "match=*&start=0&end=1e15&step=36500d&agg=sum",
            "match=temp%7Broom%3D%22a%22%7D&step=7ms",
            "match=loose&start=-15m&step=1m&agg=count",
            "start=now&end=-5m&step=0.001",
        ]
        .map(|text| text.as_bytes().to_vec())
        .to_vec()
    },
};

struct RangeFixture {
    store: Store,
    /// Every sample, by series.
    all: BTreeMap<String, (MetricKind, Vec<(Millis, f64)>)>,
    _dir: TempDir,
}

static FIXTURE: LazyLock<RangeFixture> = LazyLock::new(|| {
    let dir = TempDir::new();
    let mut options = StoreOptions::new(dir.join("store"));
    options.clock = Arc::new(FixedClock);
    let store = Store::open(options).expect("opens");
    fill(&store);
    store.flush_to_blocks();
    let mut all = BTreeMap::new();
    let everything = RangeQuery::new(Selector::all(), 0, NOW + 600_000, None);
    let keep = &mut |series: &Arc<Series>, points: &[(Millis, f64)]| {
        all.insert(
            series.text().to_owned(),
            (series.family().kind, points.to_vec()),
        );
    };
    store.query_range(&everything, keep).expect("answered");
    assert_eq!(all.len(), 4, "two rooms, turns and one loose series");
    RangeFixture {
        store,
        all,
        _dir: dir,
    }
});

fn fill(store: &Store) {
    let temp = Arc::new(Family::new("temp", MetricKind::Gauge, "", 1, ""));
    let turns = Arc::new(Family::new("turns_total", MetricKind::Counter, "", 1, ""));
    let mut group = SampleGroup::new("room", 4, 5_000);
    let a = group.declare(&temp, &[("room", "a")]).expect("valid");
    let b = group.declare(&temp, &[("room", "b")]).expect("valid");
    let c = group.declare(&turns, &[]).expect("valid");
    for number in 0..SAMPLES {
        group.clear();
        group.set(a, 20.0 + (number % 17) as f64 / 10.0);
        if number % 3 != 0 {
            group.set(b, -(number as f64));
        }
        group.set(c, (number * number) as f64);
        let mut tick = Tick::new(Input::Collect);
        tick.reset(NOW - (SAMPLES - number) * 1_000);
        group.append_to(&mut tick);
        store.tick(&mut tick);
    }
    let loose = Family::new("loose", MetricKind::Unknown, "", 1, "");
    let loose = Arc::new(Series::new(Arc::new(loose), &[]).expect("valid"));
    let points = (0..100).map(|number| Point {
        series: loose.clone(),
        time: NOW - 800_000 + number * number * 70,
        value: number as f64 / 3.0,
    });
    store.push(Input::Push, points.collect()).expect("taken");
}

/// The response to any query equals that of a naive scan over every sample.
fn range(input: &[u8]) {
    let query = String::from_utf8_lossy(input);
    let _ = selector(&query);
    let Some(question) = range_question(&query, NOW) else {
        return;
    };
    assert!(question.start <= 1_000_000_000_000_000 && question.end <= 1_000_000_000_000_000);
    let mut found: BTreeMap<String, Vec<(Millis, f64)>> = BTreeMap::new();
    let keep = &mut |series: &Arc<Series>, points: &[(Millis, f64)]| {
        let before = found.insert(series.text().to_owned(), points.to_vec());
        assert!(before.is_none(), "{series} twice");
    };
    let store = &FIXTURE.store;
    let answered = bounded(question.bytes_max + (8 << 20), || {
        store.query_range(&question, keep)
    });
    if question.start > question.end {
        return assert!(
            matches!(answered, Err(QueryError::Reversed)),
            "{answered:?}"
        );
    }
    answered.expect("answered");
    found.retain(|_, points| !points.is_empty());
    for (text, (kind, samples)) in &FIXTURE.all {
        let series = Series::parse(text, |name| {
            Arc::new(Family {
                name: name.to_owned().into(),
                ..Family::new("", *kind, "", 1, "")
            })
        });
        let expected = if question.selector.matches(&series.expect("a series")) {
            by_hand(samples, *kind, &question)
        } else {
            Vec::new()
        };
        let answer = found.remove(text).unwrap_or_default();
        assert_eq!(
            answer.len(),
            expected.len(),
            "{text}: {answer:?} instead of {expected:?}"
        );
        for ((time, value), (time_expected, value_expected)) in answer.iter().zip(&expected) {
            assert_eq!(time, time_expected, "{text}");
            // Sums may be computed in another order.
            let difference = (value - value_expected).abs();
            assert!(
                difference <= 1e-9 * value_expected.abs().max(1.0),
                "{text}: {value} for {value_expected}"
            );
        }
    }
    assert!(found.is_empty(), "{found:?}");
}

fn by_hand(
    samples: &[(Millis, f64)],
    kind: MetricKind,
    question: &RangeQuery,
) -> Vec<(Millis, f64)> {
    let inside = samples
        .iter()
        .copied()
        .filter(|(time, _)| (question.start..=question.end).contains(time));
    let Some(step) = question.step else {
        return inside.collect();
    };
    let fold = step.aggregation.unwrap_or(if kind == MetricKind::Counter {
        StepAggregation::Last
    } else {
        StepAggregation::Avg
    });
    let mut buckets: BTreeMap<Millis, Vec<f64>> = BTreeMap::new();
    for (time, value) in inside {
        buckets
            .entry(time.div_euclid(step.millis) * step.millis)
            .or_default()
            .push(value);
    }
    let fold = |values: &[f64]| match fold {
        StepAggregation::First => values[0],
        StepAggregation::Last => values[values.len() - 1],
        StepAggregation::Min => values.iter().copied().fold(f64::INFINITY, f64::min),
        StepAggregation::Max => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        StepAggregation::Sum => values.iter().sum(),
        StepAggregation::Avg => values.iter().sum::<f64>() / values.len() as f64,
        StepAggregation::Count => values.len() as f64,
    };
    buckets
        .iter()
        .map(|(time, values)| (*time, fold(values)))
        .collect()
}
