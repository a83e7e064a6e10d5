//! Runs the steps of a task, and cargo.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
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

/// Builds a program of the workspace as the tests are built, and returns its path.
///
/// With `CI=true` all tests are built with it. What tests depend on adds features to other crates,
/// so that cargo would build most of them once for the program and once more for the tests.
pub(crate) fn program(package: &str, name: &str) -> Result<PathBuf> {
    match is_ci() {
        true => cargo(&["build", "--locked", "--workspace", "--bins", "--tests"])?,
        false => cargo(&["build", "--locked", "--package", package, "--bin", name])?,
    }
    let target = std::env::var_os("CARGO_TARGET_DIR");
    let target = target.map_or_else(|| root().join("target"), PathBuf::from);
    Ok(target.join("debug").join(name))
}

pub(crate) fn is_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| value == "true")
}

/// Runs a program and returns its standard output.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command
        .stderr(std::process::Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start {command:?}"))?;
    ensure!(output.status.success(), "{command:?} failed");
    String::from_utf8(output.stdout).with_context(|| format!("output of {command:?} is not UTF-8"))
}

/// Runs cargo and returns its standard output.
pub(crate) fn cargo_output(args: &[&str]) -> Result<String> {
    output(cargo_command().args(args))
}
