//! The samples: counters with resets, gauges with NaN and infinities, histograms, and series that
//! end, pause and return.

use std::sync::Arc;

use pegel_metric::{Family, Input, MetricKind, Millis, Point, STALE_NAN, Series};
use pegel_store::Store;
use pegel_testkit::Rng;

/// How long the samples last.
pub(super) const LENGTH: Millis = 2_400_000;
const INTERVAL: Millis = 10_000;

#[derive(Debug)]
pub(super) struct ReferenceSeries {
    pub name: &'static str,
    pub labels: Vec<(String, String)>,
    pub samples: Vec<(Millis, f64)>,
}

/// Stores the samples as points.
pub(super) fn store(store: &Store, all: &[ReferenceSeries]) {
    for one in all {
        let labels: Vec<(&str, &str)> = one.labels.iter().map(|(k, v)| (&**k, &**v)).collect();
        let family = Family::new(one.name, MetricKind::Unknown, "", 1, "").of_input(Input::Put);
        let series = Arc::new(Series::new(Arc::new(family), &labels).expect("valid"));
        let point = |(time, value): &(Millis, f64)| Point {
            series: series.clone(),
            time: *time,
            value: *value,
        };
        let points = one.samples.iter().map(point).collect();
        let pushed = store.push(Input::Put, points).expect("stored");
        assert_eq!(pushed.kept, one.samples.len() as u64, "{series}");
    }
    // A part is read from blocks.
    store.flush_to_blocks();
}

pub(super) fn reference_samples(begin: Millis, rng: &mut Rng) -> Vec<ReferenceSeries> {
    let mut all = Vec::new();
    for instance in ["a:1", "b:1", "c:1"] {
        for code in ["200", "404", "500"] {
            let labels = [("code", code), ("handler", "/x y")];
            let samples = counter(begin, rng, 40);
            all.push(series("requests_total", instance, &labels, samples));
        }
        let samples = gauge(begin, rng, 30.0);
        all.push(series("temperature", instance, &[("unit", "°C")], samples));
        let samples = gauge(begin, rng, 30.0);
        all.push(series("limit", instance, &[], samples));
        let version = if instance == "c:1" { "2" } else { "1" };
        let ones = sampled(begin, |_| Some(1.0));
        all.push(series(
            "build_info",
            instance,
            &[("version", version)],
            ones,
        ));
        histogram(&mut all, begin, instance, rng);
    }
    all.push(series(
        "requests_total",
        "d:1",
        &[("code", "200")],
        paused(begin, rng),
    ));
    all.push(series(
        "odd",
        "a:1",
        &[("kind", "nan")],
        special(begin, rng),
    ));
    all.push(series(
        "odd",
        "b:1",
        &[("kind", "inf")],
        special(begin, rng),
    ));
    all.push(series("odd", "b:1", &[("kind", "")], special(begin, rng)));
    all.push(series("ended", "a:1", &[], ended(begin, rng)));
    all.push(series("ended", "b:1", &[("x", "1")], ended(begin, rng)));
    all.push(series("single", "a:1", &[], vec![(begin + 600_000, 42.5)]));
    let index = |tick: i64| Some(tick as f64);
    all.push(series("job:index:sum", "a:1", &[], sampled(begin, index)));
    let constant = |_| Some(3.0);
    all.push(series(
        "constant",
        "a:1",
        &[("l", "ü\\n\"")],
        sampled(begin, constant),
    ));
    let tiny = |tick: i64| Some(1e-9 * tick as f64 - 1e-7);
    all.push(series("tiny", "a:1", &[], sampled(begin, tiny)));
    let huge = |tick: i64| Some(1e21 * (tick + 1) as f64);
    all.push(series("huge", "a:1", &[], sampled(begin, huge)));
    all
}

fn series(
    name: &'static str,
    instance: &str,
    labels: &[(&str, &str)],
    samples: Vec<(Millis, f64)>,
) -> ReferenceSeries {
    // With labels of its own, a series keeps them.
    let mut pairs = vec![("job", "test"), ("instance", instance)];
    pairs.extend(labels.iter().filter(|(_, value)| !value.is_empty()));
    let owned = pairs
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
    ReferenceSeries {
        name,
        labels: owned.collect(),
        samples,
    }
}

fn sampled(begin: Millis, mut value: impl FnMut(i64) -> Option<f64>) -> Vec<(Millis, f64)> {
    let ticks = 0..=LENGTH / INTERVAL;
    ticks
        .filter_map(|tick| Some((begin + tick * INTERVAL, value(tick)?)))
        .collect()
}

/// A counter that is reset about every `reset` samples, with gaps.
fn counter(begin: Millis, rng: &mut Rng, reset: u64) -> Vec<(Millis, f64)> {
    let mut total = 0.0;
    sampled(begin, |_| {
        // No two series have the same value: the order of equal ones is not defined.
        total += rng.unit() * 12.0;
        if rng.chance(reset) {
            total = rng.unit();
        }
        (!rng.chance(12)).then_some(total)
    })
}

fn gauge(begin: Millis, rng: &mut Rng, width: f64) -> Vec<(Millis, f64)> {
    sampled(begin, |_| {
        let value = (rng.unit() - 0.4) * width;
        (!rng.chance(15)).then_some(value)
    })
}

/// A counter with a pause longer than the lookback, after which it starts again.
fn paused(begin: Millis, rng: &mut Rng) -> Vec<(Millis, f64)> {
    let mut total = 1_000.0;
    sampled(begin, |tick| {
        total += rng.unit() * 9.0;
        match tick {
            60..=110 => {
                total = 0.0;
                None
            }
            _ => Some(total),
        }
    })
}

/// A gauge with NaN and both infinities.
fn special(begin: Millis, rng: &mut Rng) -> Vec<(Millis, f64)> {
    sampled(begin, |_| {
        Some(match rng.below(10) {
            0 => f64::NAN,
            1 => f64::INFINITY,
            2 => f64::NEG_INFINITY,
            3 => 0.0,
            _ => rng.unit() * 10.0 - 5.0,
        })
    })
}

/// A series that ends with stale markers and returns.
fn ended(begin: Millis, rng: &mut Rng) -> Vec<(Millis, f64)> {
    let mut is_live = true;
    sampled(begin, |_| {
        let changes = rng.chance(8);
        match (is_live, changes) {
            (true, true) => {
                is_live = false;
                Some(STALE_NAN)
            }
            (false, false) => None,
            (false, true) | (true, false) => {
                is_live = true;
                Some(rng.below(100) as f64)
            }
        }
    })
}

fn histogram(all: &mut Vec<ReferenceSeries>, begin: Millis, instance: &str, rng: &mut Rng) {
    let bounds = ["0.1", "0.5", "1", "2.5", "+Inf"];
    let mut counts = [0.0; 5];
    let mut rows: Vec<[f64; 5]> = Vec::new();
    for _ in 0..=LENGTH / INTERVAL {
        let mut below = 0.0;
        for count in &mut counts {
            below += rng.below(4) as f64;
            *count += below;
        }
        rows.push(counts);
    }
    for (index, bound) in bounds.iter().enumerate() {
        let samples = sampled(begin, |tick| Some(rows[tick as usize][index]));
        all.push(series(
            "latency_bucket",
            instance,
            &[("le", bound)],
            samples,
        ));
    }
    let counts = sampled(begin, |tick| Some(rows[tick as usize][4]));
    all.push(series("latency_count", instance, &[], counts));
    let sums = sampled(begin, |tick| Some(rows[tick as usize][3] * 0.7));
    all.push(series("latency_sum", instance, &[], sums));
}
