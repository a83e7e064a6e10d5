//! The cost of an update in Python, beside one HTTP request per value as Dragon's telemetry sends
//! it. The package is the wheel that users install; times are CPU time of the Python process, the
//! client's side only.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, ExitCode};

use pegel_bench::{BenchReport, FigureGate, is_trial_run, median, release_binary};
use pegel_testkit::{AgentBuilder, PythonPackage, need_peer};

/// What the script measures, in its order; figures are in nanoseconds.
const ROWS: [(&str, FigureGate); 8] = [
    ("an empty call of a built-in method", FigureGate::None),
    ("counter.add(1)", FigureGate::AtMost(150.0)),
    ("gauge.set(0.5)", FigureGate::AtMost(150.0)),
    ("histogram.record(0.5)", FigureGate::None),
    ("add_data(name, value)", FigureGate::AtMost(1000.0)),
    ("add_data with a tag and a time", FigureGate::AtMost(1000.0)),
    ("a function with @timed, added", FigureGate::None),
    ("with timed(name)", FigureGate::None),
];
/// The last line of the script: a request for each value.
const POST: &str = "POST /api/metrics";

fn main() -> ExitCode {
    let mut report = BenchReport::new("python");
    let Some(marker) = need_peer("python-client/bin/pegel-tests") else {
        return ExitCode::SUCCESS;
    };
    let tools = marker.ancestors().nth(2).expect("a virtual environment");
    let package = PythonPackage::build(tools, "release");
    let agent = AgentBuilder::new(release_binary()).start();
    let mut figures: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for _ in 0..report.repetitions(7) {
        let mut command = Command::new(&package.python);
        agent.connect(&mut command);
        command
            .env("PYTHONPATH", &package.site)
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/python/updates.py"))
            .arg(agent.http().to_string())
            .arg(if is_trial_run() { "1000" } else { "200000" });
        let output = command.output().expect("python starts");
        assert!(output.status.success(), "{output:?}");
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let (name, nanos) = line.split_once('\t').expect("name and figure");
            let nanos = nanos.parse().expect("a number");
            figures.entry(name.to_owned()).or_default().push(nanos);
        }
    }
    let posts = figures.get_mut(POST).expect("the script measures it");
    let post = median(posts);
    for (work, gate) in ROWS {
        let nanos = figures.remove(work).expect("the script measures it");
        let peers: &[(&str, f64)] = match work.starts_with("add_data(") {
            true => &[(POST, post)],
            false => &[],
        };
        report.row_with_peers(work, "ns", gate, nanos, peers);
    }
    report.finish()
}
