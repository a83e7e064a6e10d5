//! Runs the steps of a task, and cargo.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

/// Returns the root of the repository.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask is in the repository")
}

/// Runs one step under a heading and prints its result and duration.
pub(crate) fn run(name: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    println!("== {name}");
    let started = Instant::now();
    let result = work();
    let word = if result.is_ok() { "ok" } else { "FAILED" };
    println!(
        "== {name}: {word} in {:.1} s",
        started.elapsed().as_secs_f64()
    );
    result.with_context(|| format!("step {name:?} failed"))
}

/// Returns the cargo that runs this process, which preserves a toolchain selected on the command
/// line.
pub(crate) fn cargo_command() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")))
}

pub(crate) fn cargo(args: &[&str]) -> Result<()> {
    let status = cargo_command()
        .args(args)
        .status()
        .context("cannot start cargo")?;
    ensure!(status.success(), "`cargo {}` failed", args.join(" "));
    Ok(())
}

/// Runs cargo and returns its standard output.
pub(crate) fn cargo_output(args: &[&str]) -> Result<String> {
    let output = cargo_command()
        .args(args)
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("cannot start cargo")?;
    ensure!(output.status.success(), "`cargo {}` failed", args.join(" "));
    String::from_utf8(output.stdout).context("output of cargo is not UTF-8")
}
