use anyhow::{Context, Result, ensure};

use crate::{packages, peers, step};

pub enum BenchMode {
    /// As often as the figures need, and a missed gate fails.
    Gated,
    /// Each bench one time, to see that it builds and runs.
    Once,
}

pub fn run(mode: BenchMode) -> Result<()> {
    packages::install_missing();
    peers::install_missing();
    let mut command = step::cargo_command();
    command.args(["bench", "--locked", "--package", "pegel-bench"]);
    match mode {
        BenchMode::Gated => command.env_remove("PEGEL_BENCH_ONCE"),
        BenchMode::Once => command.env("PEGEL_BENCH_ONCE", "1"),
    };
    let status = command.status().context("cannot start cargo")?;
    ensure!(status.success(), "a bench failed or missed its gate");
    Ok(())
}

/// The agent under nominal load; fails when memory, descriptors or disk grow.
pub fn soak(minutes: &str) -> Result<()> {
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
