//! CPU time of one full sample of this machine by all fast collectors.

use std::process::ExitCode;
use std::sync::Arc;

use pegel_bench::{BenchReport, FigureGate, cpu_time};
use pegel_collect::{CollectSettings, CollectorSet, Host};
use pegel_metric::{Input, Ledger, SystemClock, Tick};

/// Passes per figure: a single pass is too short for the resolution of the clock.
const PASSES: u32 = 200;

fn main() -> ExitCode {
    let mut report = BenchReport::new("node_sample");
    let mut set = CollectorSet::open(
        &CollectSettings::default(),
        Host::local(),
        3,
        Vec::new(),
        Arc::new(Ledger::default()),
        Arc::new(SystemClock),
    )
    .expect("the default settings are valid");
    let mut tick = Tick::new(Input::Collect);
    // The fast tier is the first track; vmstat has its own.
    let fast = [0];
    set.sample(0, &fast, &mut tick);
    let mut figures = Vec::new();
    for _ in 0..report.repetitions(31) {
        let before = cpu_time();
        for _ in 0..PASSES {
            set.sample(0, &fast, &mut tick);
        }
        figures.push((cpu_time() - before).as_secs_f64() * 1e6 / f64::from(PASSES));
    }
    report.row(
        &format!("one sample, {} series", tick.sample_count()),
        "µs CPU",
        FigureGate::AtMost(100.0),
        figures,
    );
    report.finish()
}
