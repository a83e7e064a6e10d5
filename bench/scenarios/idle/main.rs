//! An agent at its default rate without clients: CPU usage of one core, and resident memory.

use std::process::ExitCode;

use pegel_bench::{BenchReport, FigureGate, agent_usage, release_binary};
use pegel_testkit::AgentBuilder;

fn main() -> ExitCode {
    let mut report = BenchReport::new("idle");
    let agent = AgentBuilder::new(release_binary()).start();
    let (shares, resident) = agent_usage(agent.pid());
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
