//! An agent at its default rate with nobody asking: CPU share of one core, and resident memory.

use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use pegel_bench::{Gate, Report, is_once};
use pegel_testkit::AgentBuilder;

fn main() -> ExitCode {
    let mut report = Report::new("idle");
    let binary = release_binary();
    let agent = AgentBuilder::new(binary).start();
    let (window, windows) = if is_once() { (2, 1) } else { (20, 4) };
    std::thread::sleep(Duration::from_secs(if is_once() { 1 } else { 5 }));
    let (mut shares, mut resident) = (Vec::new(), Vec::new());
    for _ in 0..windows {
        let (before, started) = (cpu_ns(agent.pid()), Instant::now());
        std::thread::sleep(Duration::from_secs(window));
        let used = (cpu_ns(agent.pid()) - before) as f64 / 1e9;
        shares.push(used / started.elapsed().as_secs_f64() * 100.0);
        resident.push(resident_mb(agent.pid()));
    }
    report.row("idle agent, 2 Hz", "% of a core", Gate::AtMost(0.2), shares);
    report.row("idle agent, resident", "MB", Gate::AtMost(20.0), resident);
    agent.stop();
    report.finish()
}

fn release_binary() -> std::path::PathBuf {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let built = Command::new(env!("CARGO"))
        .args(["build", "--release", "--locked", "--package", "pegel"])
        .current_dir(root)
        .status()
        .expect("cargo starts");
    assert!(built.success(), "the agent does not build");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), Into::into);
    target.join("release/pegel")
}

/// The time that all threads of a process were on a CPU, by the scheduler's own books.
fn cpu_ns(pid: u32) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the agent runs");
    tasks
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok())
        .filter_map(|text| text.split_whitespace().next()?.parse::<u64>().ok())
        .sum()
}

fn resident_mb(pid: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the agent runs");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a VmRSS line");
    let kib: f64 = line.split_whitespace().nth(1).and_then(|text| text.parse().ok()).expect("a number");
    kib * 1024.0 / 1e6
}
