//! The output of `pegel grafana provision` and `pegel prometheus-config`, and its effect: every panel finds data, and
//! Grafana's user has access.

mod panel_queries;
mod panels;
mod provisioning;
mod scraping;

use std::process::Command;
use std::time::Duration;

use pegel_testkit::{ChildProcess, FinishedProcess, TempDir};

use crate::PEGEL;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Runs `pegel` with the given environment only.
fn pegel(args: &[&str], envs: &[(&str, &str)]) -> FinishedProcess {
    let home = TempDir::new();
    let mut command = Command::new(PEGEL);
    command.env_clear().env("HOME", home.path()).args(args);
    command.envs(envs.iter().copied());
    ChildProcess::start(&mut command).wait(Duration::from_secs(30))
}

fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.expect("after 1970").as_secs()
}
