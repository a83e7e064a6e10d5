//! The project's chores: `cargo xtask COMMAND`.
#![allow(clippy::print_stdout, clippy::print_stderr)] // Printing is what a chore does.

mod bench;
mod deps;
mod fuzz;
mod golden_labels;
mod install;
mod metrics_page;
mod packages;
mod peers;
mod step;
mod test;
mod tidy;

use std::process::ExitCode;

use anyhow::{Result, bail};

const USAGE: &str = "\
cargo xtask test            install what the tests need, run every test, list what was skipped
cargo xtask tidy [--fix]    check the source tree; --fix rewrites the generated files
cargo xtask deps            check licences, sources and bans of all dependencies
cargo xtask bench [--once]  run the benches with their gates; --once: each one time, without gates
cargo xtask fuzz [--seconds N] [--seed N] [TARGET…]  replay the corpora, change their inputs for N seconds
cargo xtask fuzz --coverage TARGET --seconds N       the same under libFuzzer, with a nightly toolchain
cargo xtask install --prefix DIR [--debug]  the C library: header, shared and static library, pkg-config
cargo xtask loom            every order of events in the lock-free part of the lanes
cargo xtask soak --minutes N  run the agent under load for N minutes: memory, files, disk
cargo xtask ci              fmt, clippy, deps, tidy, test, loom, fuzz, bench --once, soak: what .ci/run calls";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = std::env::set_current_dir(step::root())
        .map_err(Into::into)
        .and_then(|()| run(&args));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[&str]) -> Result<()> {
    match args {
        ["test"] => step::run("test", test::run),
        ["tidy"] => step::run("tidy", || tidy::run(tidy::GeneratedFilesMode::Check)),
        ["tidy", "--fix"] => step::run("tidy", || tidy::run(tidy::GeneratedFilesMode::Rewrite)),
        ["deps"] => step::run("deps", deps::run),
        ["bench"] => step::run("bench", || bench::run(bench::BenchMode::Gated)),
        ["bench", "--once"] => step::run("bench --once", || bench::run(bench::BenchMode::Once)),
        ["fuzz", "--coverage", target, "--seconds", seconds] => {
            step::run("fuzz --coverage", || fuzz::coverage(target, seconds))
        }
        ["fuzz", args @ ..] => step::run("fuzz", || fuzz::run(args)),
        ["install", args @ ..] => step::run("install", || install::run(args)),
        ["loom"] => step::run("loom", loom),
        ["soak", "--minutes", minutes] => step::run("soak", || bench::soak(minutes)),
        ["ci"] => ci(),
        _ => bail!("expected one of:\n{USAGE}"),
    }
}

/// The lock-free part of the lanes under loom, which has other atomics: nothing else works then.
fn loom() -> Result<()> {
    step::cargo(&[
        "test",
        "--locked",
        "--package",
        "pegel-lane",
        "--features",
        "loom",
        "--test",
        "loom",
    ])
}

/// Stops at the first step that fails: the later ones would mostly repeat its complaint.
fn ci() -> Result<()> {
    step::run("fmt", || step::cargo(&["fmt", "--all", "--check"]))?;
    step::run("clippy", || {
        step::cargo(&[
            "clippy",
            "--locked",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ])
    })?;
    for step in [
        &["deps"][..],
        &["tidy"],
        &["test"],
        &["loom"],
        &["fuzz", "--seconds", "60", "--seed", "1"],
        &["bench", "--once"],
        &["soak", "--minutes", "1"],
    ] {
        run(step)?;
    }
    Ok(())
}
