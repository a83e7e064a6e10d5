//! A million points of one series in shuffled order: CPU time of all threads per point, for the
//! pushes and for the replay of their log.

use std::sync::Arc;

use pegel_bench::{BenchReport, FigureGate, cpu_time, is_trial_run};
use pegel_metric::{Clock, Family, Input, MetricKind, Point, Series, SystemClock};
use pegel_store::{Store, StoreOptions};
use pegel_testkit::TempDir;

/// A prime, so that multiples of the stride visit every point once.
const POINTS: i64 = 1_000_003;
const STRIDE: i64 = 618_034;
const PER_PUSH: i64 = 1000;

pub(crate) fn report(report: &mut BenchReport) {
    let (mut pushed, mut replayed) = (Vec::new(), Vec::new());
    for _ in 0..report.repetitions(3) {
        let figures = measure();
        pushed.push(figures.0);
        replayed.push(figures.1);
    }
    let unit = "µs CPU/point";
    report.row(
        "shuffled back-fill of one series",
        unit,
        FigureGate::AtMost(3.0),
        pushed,
    );
    report.row("replay of its log", unit, FigureGate::AtMost(3.0), replayed);
}

fn measure() -> (f64, f64) {
    let dir = TempDir::new();
    let options = || StoreOptions::new(dir.path());
    let store = Store::open(options()).expect("the store opens");
    let count = if is_trial_run() { POINTS / 10 } else { POINTS };
    let base = SystemClock.utc() - POINTS * 100;
    let family = Arc::new(Family::new("filled", MetricKind::Gauge, "", 1, ""));
    let series = Arc::new(Series::new(family, &[]).expect("a valid series"));
    let point = |n: i64| Point {
        series: series.clone(),
        time: base + n * STRIDE % POINTS * 100,
        value: n as f64,
    };
    let before = cpu_time();
    for first in (0..count).step_by(PER_PUSH as usize) {
        let points = (first..count.min(first + PER_PUSH)).map(point).collect();
        store.push(Input::Put, points).expect("stored");
    }
    let pushed = cpu_time() - before;
    store.close();
    drop(store);
    let before = cpu_time();
    let store = Store::open(options()).expect("the store opens");
    let replayed = cpu_time() - before;
    drop(store);
    let per_point = |time: std::time::Duration| time.as_secs_f64() * 1e6 / count as f64;
    (per_point(pushed), per_point(replayed))
}
