//! Keeps simulated nodes connected to a parent on this machine, to look at its page:
//!
//! ```text
//! simulated_nodes ADDRESS:PORT [nodes=2000] [seconds=600] [prefix=nid]
//! ```
//!
//! The parent needs `tree: {accept: ADDRESS:PORT, children_max: 10000}`; its token is in
//! `PEGEL_TOKEN`. Prints a line every ten seconds.

#![allow(clippy::print_stdout, clippy::print_stderr)] // A command-line tool.

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use pegel_tree_simulator::{ChildSimulation, SimulationPlan};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const REPORT_EVERY: Duration = Duration::from_secs(10);
/// Connections per second at the start.
const CONNECTS_PER_SECOND: f64 = 200.0;

fn main() -> ExitCode {
    let Some((plan, time)) = parse_args() else {
        eprintln!("usage: simulated_nodes ADDRESS:PORT [nodes=2000] [seconds=600] [prefix=nid]");
        return ExitCode::FAILURE;
    };
    let maximum = getrlimit(Resource::Nofile).maximum;
    let current = maximum;
    // With the old limit there are fewer nodes.
    let _ = setrlimit(Resource::Nofile, Rlimit { current, maximum });
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let children = ChildSimulation::start(runtime.handle(), plan);
    let started = Instant::now();
    while started.elapsed() < time {
        thread::sleep(REPORT_EVERY.min(time.saturating_sub(started.elapsed())));
        let (up, down) = children.bytes();
        println!(
            "{:.0} s: {} connected, {} ticks, {} requests, {} bytes up, {} down{}",
            started.elapsed().as_secs_f64(),
            children.connected(),
            children.ticks(),
            children.requests(),
            up,
            down,
            children
                .check_connected()
                .err()
                .map_or(String::new(), |error| format!("; {error}")),
        );
    }
    ExitCode::SUCCESS
}

fn parse_args() -> Option<(SimulationPlan, Duration)> {
    let mut args = std::env::args().skip(1);
    let mut plan = SimulationPlan {
        address: args.next()?.parse().ok()?,
        token: std::env::var("PEGEL_TOKEN").ok(),
        prefix: "nid".to_owned(),
        children: 2000,
        ramp: Duration::ZERO,
    };
    let mut time = Duration::from_secs(600);
    for arg in args {
        let (key, value) = arg.split_once('=')?;
        match key {
            "nodes" => plan.children = value.parse().ok()?,
            "seconds" => time = Duration::from_secs(value.parse().ok()?),
            "prefix" => plan.prefix = value.to_owned(),
            _ => return None,
        }
    }
    plan.ramp = Duration::from_secs_f64(plan.children as f64 / CONNECTS_PER_SECOND);
    Some((plan, time))
}
