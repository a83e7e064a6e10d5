//! Development tasks of the project: `cargo xtask COMMAND`.
#![allow(clippy::print_stdout, clippy::print_stderr)] // A command-line tool.

mod bench;
mod deps;
mod dist;
mod docs;
mod fuzz;
mod install;
mod packages;
mod peers;
mod skips;
mod static_binary;
mod step;
mod test;
mod tidy;

use std::process::ExitCode;

use anyhow::{Result, bail};

const USAGE: &str = "\
cargo xtask test            install the programs that tests require, run all tests, list skipped tests
cargo xtask tidy [--fix]    check the source tree; --fix rewrites the generated files
cargo xtask deps            check licences, sources and bans of all dependencies
cargo xtask bench [--once]  run all benchmarks and check their gates; --once: one repetition, no gates
cargo xtask fuzz [--seconds N] [--seed N] [TARGET…]  replay the corpora, then mutate their inputs for N seconds
cargo xtask fuzz --coverage TARGET --seconds N       fuzz one target with libFuzzer (requires a nightly toolchain)
cargo xtask install --prefix DIR [--debug]  install the C library: header, shared and static library, pkg-config
cargo xtask static-binary   build target/TARGET/release/pegel without dynamic libraries, with musl where possible
cargo xtask dist [--profile release|dev] [--only deb,rpm,wheel,archive,spack] [--out DIR]  build packages in target/dist
cargo xtask docs            build the documentation as a site in target/site; installs mdBook in target/tools if needed
cargo xtask loom            model-check the lock-free part of the lanes
cargo xtask soak --minutes N  run the agent under load for N minutes; check memory, open files and disk
cargo xtask ci              run fmt, clippy, deps, tidy, test, loom, fuzz, bench --once and soak; used by .ci/run";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = std::env::set_current_dir(step::root())
        .map_err(Into::into)
        .and_then(|()| run(&args));
    match result {
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
        ["static-binary"] => step::run("static-binary", static_binary::run),
        ["dist", args @ ..] => step::run("dist", || dist::run(args)),
        ["docs"] => step::run("docs", docs::run),
        ["loom"] => step::run("loom", loom),
        ["soak", "--minutes", minutes] => {
            step::run("soak", || bench::soak(minutes, bench::SoakProfile::Release))
        }
        ["ci"] => ci(),
        _ => bail!("unknown command; expected one of:\n{USAGE}"),
    }
}

/// Runs the lane tests with loom. Loom replaces the atomics, so only this one test target works
/// with the feature. Of the whole workspace: libraries then have the features of the other tests,
/// and only the lanes and what is above them is built again.
fn loom() -> Result<()> {
    step::cargo(&[
        "test",
        "--locked",
        "--workspace",
        "--features",
        "pegel-lane/loom",
        "--test",
        "loom",
    ])
}

/// Runs all steps. Stops at the first failure: later steps would mostly repeat it.
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
    ] {
        run(step)?;
    }
    step::run("soak", || bench::soak("1", bench::SoakProfile::Dev))
}
