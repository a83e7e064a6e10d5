//! Runs the benchmarks and the soak test.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::{packages, peers, step};

pub(crate) enum BenchMode {
    /// All repetitions; a missed gate is a failure.
    Gated,
    /// One repetition without gates, to check that the benchmarks build and run. Nothing is
    /// measured, so they are built as the tests are.
    Once,
}

/// How the agent and the soak test are built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SoakProfile {
    Release,
    /// As the tests: saves a second build of everything.
    Dev,
}

/// Runs all benchmarks.
pub(crate) fn run(mode: BenchMode) -> Result<()> {
    packages::install_missing();
    peers::install_missing();
    let mut command = step::cargo_command();
    command.args(["bench", "--locked", "--no-fail-fast"]);
    match mode {
        BenchMode::Gated => command
            .args(["--package", "pegel-bench"])
            .env_remove("PEGEL_BENCH_ONCE"),
        // Of the whole workspace, for the features of the tests' build, see `step::program`.
        BenchMode::Once => command
            .args(["--workspace", "--bench", "*", "--profile", "dev"])
            .env("PEGEL_BENCH_BINARY", step::program("pegel", "pegel")?)
            .env("PEGEL_BENCH_ONCE", "1"),
    };
    let status = command.status().context("cannot start cargo")?;
    ensure!(status.success(), "a benchmark failed or missed its gate");
    Ok(())
}

/// Runs the agent under nominal and hostile load; fails if memory, descriptors or disk grow.
pub(crate) fn soak(minutes: &str, profile: SoakProfile) -> Result<()> {
    let mut command = match profile {
        SoakProfile::Release => {
            let mut cargo = step::cargo_command();
            cargo.args(["run", "--locked", "--release", "--package", "pegel-bench"]);
            cargo.args(["--bin", "soak", "--"]);
            cargo
        }
        SoakProfile::Dev => {
            let mut soak = Command::new(step::program("pegel-bench", "soak")?);
            soak.env("PEGEL_BENCH_BINARY", step::program("pegel", "pegel")?);
            soak
        }
    };
    let status = command.arg(minutes).status();
    let status = status.context("cannot start the soak test")?;
    ensure!(status.success(), "the soak test failed");
    Ok(())
}
