//! Runs the benchmarks and the soak test.

use anyhow::{Context, Result, ensure};

use crate::{packages, peers, step};

pub(crate) enum BenchMode {
    /// All repetitions; a missed gate is a failure.
    Gated,
    /// One repetition without gates, to check that the benchmarks build and run.
    Once,
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
        // With the profile of the agent's binary, everything below the benchmarks is built once.
        BenchMode::Once => command
            .args(["--profile", "release"])
            .env("PEGEL_BENCH_ONCE", "1"),
    };
    let status = command.status().context("cannot start cargo")?;
    ensure!(status.success(), "a benchmark failed or missed its gate");
    Ok(())
}

/// Runs the agent under nominal and hostile load; fails if memory, descriptors or disk grow.
pub(crate) fn soak(minutes: &str) -> Result<()> {
    step::cargo(&[
        "run",
        "--release",
        "--locked",
        "--package",
        "pegel-bench",
        "--bin",
        "soak",
        "--",
        minutes,
    ])
}
