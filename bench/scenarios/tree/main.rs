//! A parent with many children: CPU time and bytes per node and second, memory, and the time of
//! queries over all nodes. The children are simulated in this process, with 300 series each, of
//! which a third changes every second; the parents are agents.
//!
//! `PEGEL_BENCH_CHILDREN=10000` adds a run with as many children, without gates.

mod measured_parent;

use std::process::ExitCode;

use measured_parent::{MeasuredParent, ParentCost};
use pegel_bench::{BenchReport, FigureGate, is_trial_run};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The budget for what one child adds per second.
const MICROS_MAX: f64 = 50.0;
const BYTES_MAX: f64 = 1000.0;
/// How much more a child may cost among many than among few.
const GROWTH_MAX: f64 = 1.5;
/// The budget for a query over 1,000 nodes.
const QUERY_MS_MAX: f64 = 100.0;

/// The nodes evaluate the first and send samples for the second.
const QUERIES: [(&str, &str); 2] = [
    ("sum(node_load1)", "sum%28node_load1%29"),
    ("node_load1", "node_load1"),
];

fn main() -> ExitCode {
    permit_connections();
    let mut report = BenchReport::new("tree");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let sizes: &[usize] = if is_trial_run() {
        &[8]
    } else {
        &[64, 250, 1000]
    };
    let mut micros = Vec::new();
    for &children in sizes {
        let parent = MeasuredParent::start(runtime.handle(), children);
        let cost = parent.cost(report.repetitions(5));
        micros.push(median_of(&cost.micros));
        let is_gated = children == 64;
        report_cost(&mut report, children, cost, is_gated);
        if children >= 1000 || is_trial_run() {
            report_queries(&mut report, &parent, children);
        }
    }
    if let [few, .., many] = micros[..] {
        let gate = FigureGate::AtMost(GROWTH_MAX);
        report.row(
            "a child among 1,000 against one among 64",
            "×",
            gate,
            vec![many / few],
        );
    }
    two_levels(&mut report, runtime.handle());
    if let Some(children) = std::env::var_os("PEGEL_BENCH_CHILDREN") {
        let children = children.to_str().and_then(|text| text.parse().ok());
        let children = children.expect("PEGEL_BENCH_CHILDREN is a whole number");
        let parent = MeasuredParent::start(runtime.handle(), children);
        let cost = parent.cost(report.repetitions(3));
        report_cost(&mut report, children, cost, false);
        for (shown, query) in QUERIES {
            let (p50, p99) = parent.query_ms(query, 20);
            let work = format!("{children} nodes, {shown}, p50");
            report.row(&work, "ms", FigureGate::None, vec![p50]);
            report.row(
                &work.replace("p50", "p99"),
                "ms",
                FigureGate::None,
                vec![p99],
            );
        }
    }
    report.finish()
}

fn report_cost(report: &mut BenchReport, children: usize, cost: ParentCost, is_gated: bool) {
    let gate = |budget: f64| match is_gated {
        true => FigureGate::AtMost(budget),
        false => FigureGate::None,
    };
    let work = |what: &str| format!("{children} children, {what}");
    report.row(
        &work("the parent before they connect, per second"),
        "µs",
        FigureGate::None,
        vec![cost.idle_micros],
    );
    // The parent is an agent that samples its own node; the budget is for its children.
    let own = cost.idle_micros / children as f64;
    let added = cost.micros.iter().map(|micros| micros - own).collect();
    report.row(
        &work("added per node-second"),
        "µs",
        gate(MICROS_MAX),
        added,
    );
    report.row(
        &work("per node-second, its own sampling included"),
        "µs",
        FigureGate::None,
        cost.micros,
    );
    report.row(
        &work("up, per node-second"),
        "bytes",
        gate(BYTES_MAX),
        cost.bytes_up,
    );
    report.row(
        &work("down, per node-second"),
        "bytes",
        FigureGate::None,
        cost.bytes_down,
    );
    report.row(
        &work("resident"),
        "MB",
        FigureGate::None,
        vec![cost.resident_mb],
    );
    report.row(
        &work("ticks not permitted"),
        "%",
        FigureGate::None,
        vec![cost.withheld_percent],
    );
}

fn report_queries(report: &mut BenchReport, parent: &MeasuredParent, children: usize) {
    for (shown, query) in QUERIES {
        let (p50, p99) = parent.query_ms(query, if is_trial_run() { 3 } else { 200 });
        let work = format!("{children} nodes, {shown}");
        report.row(&format!("{work}, p50"), "ms", FigureGate::None, vec![p50]);
        let gate = FigureGate::AtMost(QUERY_MS_MAX);
        report.row(&format!("{work}, p99"), "ms", gate, vec![p99]);
    }
}

/// Measures a root whose children are parents themselves.
fn two_levels(report: &mut BenchReport, runtime: &tokio::runtime::Handle) {
    let (middles, children) = if is_trial_run() { (2, 4) } else { (16, 64) };
    let parent = MeasuredParent::start_levels(runtime, middles, children);
    let cost = parent.cost(report.repetitions(3));
    let work = |what: &str| format!("{middles} × {children} nodes, {what}");
    report.row(
        &work("root, per node-second"),
        "µs",
        FigureGate::AtMost(MICROS_MAX),
        cost.micros,
    );
    report.row(
        &work("root, resident"),
        "MB",
        FigureGate::None,
        vec![cost.resident_mb],
    );
    let (p50, p99) = parent.query_ms(QUERIES[0].1, if is_trial_run() { 3 } else { 100 });
    report.row(
        &work("sum(node_load1), p50"),
        "ms",
        FigureGate::None,
        vec![p50],
    );
    let gate = FigureGate::AtMost(QUERY_MS_MAX);
    report.row(&work("sum(node_load1), p99"), "ms", gate, vec![p99]);
}

fn median_of(figures: &[f64]) -> f64 {
    pegel_bench::median(&mut figures.to_vec())
}

/// Raises the limit on open files, which the agents inherit.
fn permit_connections() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    setrlimit(Resource::Nofile, raised).expect("up to the hard limit");
}
