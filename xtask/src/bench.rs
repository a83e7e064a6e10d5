//! Runs the benchmarks and the soak test.

use std::path::PathBuf;

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
    command.args([
        "bench",
        "--locked",
        "--package",
        "pegel-bench",
        "--no-fail-fast",
    ]);
    match mode {
        BenchMode::Gated => command.env_remove("PEGEL_BENCH_ONCE"),
        BenchMode::Once => command
            .args(["--profile", "dev"])
            .env("PEGEL_BENCH_BINARY", dev_binary()?)
            .env("PEGEL_BENCH_ONCE", "1"),
    };
    let status = command.status().context("cannot start cargo")?;
    ensure!(status.success(), "a benchmark failed or missed its gate");
    Ok(())
}

/// Runs the agent under nominal and hostile load; fails if memory, descriptors or disk grow.
pub(crate) fn soak(minutes: &str, profile: SoakProfile) -> Result<()> {
    let mut command = step::cargo_command();
    command.args(["run", "--locked", "--package", "pegel-bench"]);
    match profile {
        SoakProfile::Release => command.arg("--release"),
        SoakProfile::Dev => command.env("PEGEL_BENCH_BINARY", dev_binary()?),
    };
    let status = command.args(["--bin", "soak", "--", minutes]).status();
    let status = status.context("cannot start cargo")?;
    ensure!(status.success(), "the soak test failed");
    Ok(())
}

/// Builds the agent as the tests do and returns its path.
fn dev_binary() -> Result<PathBuf> {
    step::cargo(&["build", "--locked", "--package", "pegel"])?;
    let target = std::env::var_os("CARGO_TARGET_DIR");
    let target = target.map_or_else(|| step::root().join("target"), PathBuf::from);
    Ok(target.join("debug/pegel"))
}
