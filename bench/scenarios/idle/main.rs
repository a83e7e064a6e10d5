//! An agent at its default rate without clients: CPU usage of one core, and resident memory.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use pegel_bench::{
    BenchReport, FigureGate, is_trial_run, process_cpu_time, release_binary, resident_mb,
};
use pegel_testkit::AgentBuilder;

fn main() -> ExitCode {
    let mut report = BenchReport::new("idle");
    let agent = AgentBuilder::new(release_binary()).start();
    let (window, windows) = if is_trial_run() { (2, 1) } else { (20, 4) };
    std::thread::sleep(Duration::from_secs(if is_trial_run() { 1 } else { 5 }));
    let (mut shares, mut resident) = (Vec::new(), Vec::new());
    for _ in 0..windows {
        let (before, started) = (process_cpu_time(agent.pid()), Instant::now());
        std::thread::sleep(Duration::from_secs(window));
        let used = process_cpu_time(agent.pid()) - before;
        shares.push(used.as_secs_f64() / started.elapsed().as_secs_f64() * 100.0);
        resident.push(resident_mb(agent.pid()));
    }
    report.row(
        "idle agent, 2 Hz",
        "% of a core",
        FigureGate::AtMost(0.2),
        shares,
    );
    report.row(
        "idle agent, resident",
        "MB",
        FigureGate::AtMost(20.0),
        resident,
    );
    agent.stop();
    report.finish()
}
