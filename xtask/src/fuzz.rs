//! Runs the fuzz targets: with our own driver, or with libFuzzer and a nightly toolchain.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::step;

/// Replays the corpora, then mutates their inputs at random. `args` are passed to
/// `fuzz/src/bin/fuzz.rs`.
pub(crate) fn run(args: &[&str]) -> Result<()> {
    let mut command = Command::new(step::program("pegel-fuzz", "fuzz")?);
    in_memory(command.args(args));
    let status = command.status().context("cannot start the fuzz targets")?;
    ensure!(
        status.success(),
        "fuzzing found a failure: add the input to fuzz/corpus, fix the bug, and add a test"
    );
    Ok(())
}

/// The compiler flags of `cargo fuzz`: coverage counters for libFuzzer, and the address sanitizer.
const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares --cfg=fuzzing -Zsanitizer=address \
    -Ccodegen-units=1 -Cdebug-assertions";

/// Fuzzes one target with coverage feedback for this many seconds. New inputs are collected in
/// `target/fuzz-coverage`; those that reach code the corpus does not reach are added to the corpus.
pub(crate) fn coverage(target: &str, seconds: &str) -> Result<()> {
    let seconds: u32 = seconds
        .parse()
        .context("--seconds requires a whole number")?;
    let work = step::root().join("target/fuzz-coverage");
    let found = work.join(target);
    let crashes = step::root().join("target/fuzz-crashes");
    let corpus = step::root().join("fuzz/corpus").join(target);
    ensure!(
        corpus.is_dir(),
        "unknown fuzz target {target:?}; `cargo xtask fuzz --list` shows all targets"
    );
    for dir in [&found, &crashes] {
        fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    }
    let host = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let build = Command::new("cargo")
        .args([
            "+nightly",
            "build",
            "--locked",
            "--release",
            "--package",
            "pegel-fuzz",
        ])
        .args([
            "--features",
            "libfuzzer",
            "--bin",
            "libfuzzer",
            "--target",
            &host,
        ])
        .arg("--target-dir")
        .arg(work.join("build"))
        .env("RUSTFLAGS", COVERAGE)
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        // Set by the calling cargo; would override `+nightly`.
        .env_remove("RUSTUP_TOOLCHAIN")
        .env_remove("CARGO")
        .status()
        .context("cannot start cargo +nightly")?;
    ensure!(
        build.success(),
        "cannot build the fuzzer with the nightly toolchain"
    );
    let binary = work.join("build").join(&host).join("release/libfuzzer");
    let libfuzzer = |args: &[String], dirs: &[&Path]| -> Result<()> {
        let mut command = Command::new(&binary);
        command
            .env("PEGEL_FUZZ_TARGET", target)
            .args(args)
            .args(dirs);
        in_memory(&mut command);
        if !command
            .status()
            .context("cannot start the fuzzer")?
            .success()
        {
            bail!(
                "fuzz target {target} failed; the input is in {}",
                crashes.display()
            );
        }
        Ok(())
    };
    let prefix = format!("-artifact_prefix={}/{target}-", crashes.display());
    let limits = ["-timeout=10", "-rss_limit_mb=4096"].map(str::to_owned);
    let mut args = limits.to_vec();
    args.extend([
        prefix.clone(),
        "-max_len=8192".into(),
        format!("-max_total_time={seconds}"),
        "-print_final_stats=1".into(),
    ]);
    libfuzzer(&args, &[&found, &corpus])?;
    let mut args = limits.to_vec();
    // Keep only inputs that reach new code, and only small ones: the corpus is reviewed.
    args.extend([prefix, "-max_len=1500".into()]);
    args.extend(["-set_cover_merge=1".into(), "-use_counters=0".into()]);
    libfuzzer(&args, &[&corpus, &found])
}

/// Puts temporary files in memory: targets write many small files.
fn in_memory(command: &mut Command) {
    if std::env::var_os("TMPDIR").is_none() && Path::new("/dev/shm").is_dir() {
        command.env("TMPDIR", "/dev/shm");
    }
}
