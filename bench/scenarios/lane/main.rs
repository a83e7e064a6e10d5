//! The cost of an update over that of its atomic operations alone, on one thread, for every kind of
//! series; and the cost of a pass over a thousand lanes for the agent.

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
    let names = [
        "counter",
        "striped counter",
        "float counter",
        "gauge",
        "histogram",
        "point",
    ];
    let mut plain_adds = Vec::new();
    let mut costs = names.map(|_| Vec::new());
    let [mut call_costs, mut timer_costs, mut disabled_costs] = [const { Vec::new() }; 3];
    for _ in 0..report.repetitions(7) {
        let floors = plain_atomics();
        let updates = [
            nanos(|number| counter.add(number & 1)),
            nanos(|number| striped.add(number & 1)),
            nanos(|number| seconds.add((number & 1) as f64)),
            nanos(|number| gauge.set(number as f64)),
            nanos(|number| histogram.record((number & 1023) as f64)),
            nanos(|number| points.add_at(1.0, number as i64)),
        ];
        let of_kind = [
            floors.add,
            floors.add,
            floors.float_add,
            floors.add,
            floors.add_and_float_add,
            floors.claim_and_store,
        ];
        for ((costs, update), floor) in costs.iter_mut().zip(updates).zip(of_kind) {
            costs.push(update - floor);
        }
        plain_adds.push(floors.add);
        call_costs.push(nanos(|number| calls.add(number & 7, number & 3)));
        timer_costs.push(nanos(|_| {
            let since = pegel_lane::monotonic_ns();
            let elapsed = pegel_lane::monotonic_ns() - since;
            timer.record_seconds(elapsed as f64 / 1e9);
        }));
        // `black_box` keeps the compiler from removing a call without effect.
        disabled_costs.push(nanos(|number| black_box(off).add(number & 1)));
    }
    report.row("a plain atomic add", "ns", FigureGate::None, plain_adds);
    for (name, costs) in names.into_iter().zip(costs) {
        let work = format!("{name}, over its atomics alone");
        report.row(&work, "ns", FigureGate::AtMost(10.0), costs);
    }
    report.row(
        "call: hits, bytes, time",
        "ns",
        FigureGate::None,
        call_costs,
    );
    report.row(
        "timer with two clock reads",
        "ns",
        FigureGate::None,
        timer_costs,
    );
    report.row("disabled counter", "ns", FigureGate::None, disabled_costs);
}

/// The cost of the atomic operations of an update on private memory, in nanoseconds.
///
/// Processors differ by a factor of three in these, so the budgets are for what a lane adds to
/// them.
struct PlainAtomics {
    add: f64,
    float_add: f64,
    /// A bucket and the sum of a histogram.
    add_and_float_add: f64,
    /// A point: takes a number, claims a slot, writes its four words.
    claim_and_store: f64,
}

fn plain_atomics() -> PlainAtomics {
    let words: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];
    let words = black_box(&words);
    let add = |at: usize| words[at].fetch_add(1, Ordering::Relaxed);
    let float_add = |at: usize| {
        let before = words[at].load(Ordering::Relaxed);
        let sum = (f64::from_bits(before) + 1.0).to_bits();
        let _ = words[at].compare_exchange(before, sum, Ordering::Relaxed, Ordering::Relaxed);
    };
    PlainAtomics {
        add: nanos(|_| {
            add(0);
        }),
        float_add: nanos(|_| float_add(0)),
        add_and_float_add: nanos(|number| {
            add(8 + number as usize % 8);
            float_add(0);
        }),
        claim_and_store: nanos(|_| {
            let number = add(0);
            let slot = 8 + (number as usize % 8) * 4;
            let before = words[slot].load(Ordering::Relaxed);
            let _ =
                words[slot].compare_exchange(before, number, Ordering::Acquire, Ordering::Relaxed);
            for word in 1..4 {
                words[slot + word].store(number, Ordering::Relaxed);
            }
            words[slot].store(number, Ordering::Release);
        }),
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
