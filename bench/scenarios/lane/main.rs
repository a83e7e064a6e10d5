//! The cost of an update compared with a plain atomic addition, on one thread, for every kind of series; and the cost
//! of a pass over a thousand lanes for the agent.

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

use pegel_bench::{BenchReport, FigureGate, cpu_time, is_trial_run};
use pegel_lane::reader::{LaneFile, LaneValue};
use pegel_lane::{
    Calls, Counter, FloatCounter, Gauge, Handle, Histogram, LaneKind, LaneSeriesSpec, Points,
    ProcessLanes, StripedCounter, Timer,
};
use pegel_testkit::{TempDir, open_lanes};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const LANES: usize = 1000;
const SERIES: usize = 10;

fn main() -> ExitCode {
    let mut report = BenchReport::new("lane");
    updates(&mut report);
    passes(&mut report);
    report.finish()
}

/// Returns the CPU time of one call of `work`, in nanoseconds.
fn nanos(mut work: impl FnMut(u64)) -> f64 {
    let times = if is_trial_run() { 100_000 } else { 10_000_000 };
    let before = cpu_time();
    for number in 0..times {
        work(number);
    }
    (cpu_time() - before).as_nanos() as f64 / times as f64
}

fn updates(report: &mut BenchReport) {
    let dir = TempDir::new();
    let home = ProcessLanes::in_directory(dir.path());
    let spec = LaneSeriesSpec::new(LaneKind::Counter, "bench_total");
    let striped = LaneSeriesSpec { stripes: 8, ..spec };
    let counter = Counter::create_in(home, &spec).expect("created");
    let striped = StripedCounter::create_in(home, &striped).expect("created");
    let seconds = FloatCounter::create_in(home, &spec).expect("created");
    let gauge = Gauge::create_in(home, &spec).expect("created");
    let calls = Calls::create_in(home, &spec).expect("created");
    let histogram = Histogram::create_in(home, &spec).expect("created");
    let timer = Timer::create_in(home, &spec).expect("created");
    let points = Points::create_in(home, &spec).expect("created");
    assert!(home.is_published());
    let off = Counter::none();
    let plain = black_box(AtomicU64::new(0));

    let mut floor = Vec::new();
    let mut rows: Vec<(&str, FigureGate, Vec<f64>)> = [
        ("counter, over an atomic add", FigureGate::AtMost(10.0)),
        (
            "striped counter, over an atomic add",
            FigureGate::AtMost(10.0),
        ),
        (
            "float counter, over an atomic add",
            FigureGate::AtMost(10.0),
        ),
        ("gauge, over an atomic add", FigureGate::AtMost(10.0)),
        (
            "call: hits, bytes, time, over an atomic add",
            FigureGate::None,
        ),
        ("histogram, over an atomic add", FigureGate::AtMost(10.0)),
        ("timer with two clock reads", FigureGate::None),
        ("point, over an atomic add", FigureGate::AtMost(10.0)),
        ("disabled counter, over an atomic add", FigureGate::None),
    ]
    .into_iter()
    .map(|(work, gate)| (work, gate, Vec::new()))
    .collect();
    for _ in 0..report.repetitions(7) {
        let add = nanos(|number| {
            plain.fetch_add(number & 1, Ordering::Relaxed);
        });
        floor.push(add);
        let figures = [
            nanos(|number| counter.add(number & 1)),
            nanos(|number| striped.add(number & 1)),
            nanos(|number| seconds.add((number & 1) as f64)),
            nanos(|number| gauge.set(number as f64)),
            nanos(|number| calls.add(number & 7, number & 3)),
            nanos(|number| histogram.record((number & 1023) as f64)),
            nanos(|_| {
                let since = pegel_lane::monotonic_ns();
                let elapsed = pegel_lane::monotonic_ns() - since;
                timer.record_seconds(elapsed as f64 / 1e9);
            }),
            nanos(|number| points.add_at(1.0, number as i64)),
            // `black_box` keeps the compiler from removing a call without effect.
            nanos(|number| black_box(off).add(number & 1)),
        ];
        for (row, figure) in rows.iter_mut().zip(figures) {
            row.2.push(figure - add);
        }
    }
    report.row("a plain atomic add", "ns", FigureGate::None, floor);
    for (work, gate, figures) in rows {
        report.row(work, "ns", gate, figures);
    }
}

fn passes(report: &mut BenchReport) {
    allow_open_files(LANES as u64 + 100);
    let dir = TempDir::new();
    for number in 0..LANES {
        let home = ProcessLanes::in_directory(dir.path());
        for series in 0..SERIES {
            let name = format!("bench_{series}_total");
            let labels = [("phase", "assembly")];
            let spec = LaneSeriesSpec {
                help: "Counts for the bench.",
                labels: &labels,
                ..LaneSeriesSpec::new(LaneKind::Counter, &name)
            };
            let counter = Counter::create_in(home, &spec).expect("created");
            counter.add(number as u64);
        }
        assert!(home.is_published(), "no room for a thousand lanes");
    }
    let (mut open, mut first, mut pass, mut ended) = (vec![], vec![], vec![], vec![]);
    let mut buffer = Vec::new();
    for _ in 0..report.repetitions(9) {
        let before = cpu_time();
        let mut lanes = open_lanes(&dir);
        open.push((cpu_time() - before).as_secs_f64() * 1e3);
        for figures in [&mut first, &mut pass] {
            let before = cpu_time();
            let sum = read_all(&mut lanes, &mut buffer);
            figures.push((cpu_time() - before).as_secs_f64() * 1e3);
            assert_eq!(sum, (SERIES * LANES * (LANES - 1) / 2) as u64);
        }
        let before = cpu_time();
        assert!(!lanes.iter().any(|lane| lane.is_ended().expect("a state")));
        ended.push((cpu_time() - before).as_secs_f64() * 1e3);
    }
    report.row("find and open 1,000 lanes", "ms", FigureGate::None, open);
    report.row(
        "first read of 1,000 lanes of 10 series",
        "ms",
        FigureGate::None,
        first,
    );
    report.row(
        "read 1,000 lanes of 10 series",
        "ms",
        FigureGate::AtMost(1.0),
        pass,
    );
    report.row(
        "check 1,000 lanes for their end",
        "ms",
        FigureGate::None,
        ended,
    );
}

fn read_all(lanes: &mut [LaneFile], buffer: &mut Vec<u8>) -> u64 {
    let mut sum = 0;
    for lane in lanes {
        let view = lane.read(buffer).expect("readable");
        for (_, value) in view.iter() {
            if let Some(LaneValue::Counter(value)) = value {
                sum += value;
            }
        }
    }
    sum
}

fn allow_open_files(count: u64) {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < count) {
        let raised = Rlimit {
            current: Some(count),
            ..limit
        };
        setrlimit(Resource::Nofile, raised).expect("within the hard limit");
    }
}
