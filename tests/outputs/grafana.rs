//! The output of `pegel grafana provision` and `pegel prometheus-config`, and its effect: every
//! panel finds data, and Grafana's user has access.

mod panel_queries;
mod panels;
mod promql_panels;
mod provisioning;
mod scraping;

use std::time::Duration;

use pegel_testkit::{ChildProcess, FinishedProcess, TempDir};

use crate::PEGEL;

/// Runs `pegel` with the given environment only.
fn pegel(args: &[&str], envs: &[(&str, &str)]) -> FinishedProcess {
    let home = TempDir::new();
    let mut command = PEGEL.command(&home);
    command.args(args).envs(envs.iter().copied());
    ChildProcess::start(&mut command).wait(Duration::from_secs(30))
}

/// Percent-encodes every byte.
fn encode(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}
