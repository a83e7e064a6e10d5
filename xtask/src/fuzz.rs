//! Fuzzing: the same targets by our own driver, or under libFuzzer with a nightly toolchain.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::step;

/// Replays the corpora, then changes their inputs at random. `args` are those of `fuzz/src/bin/fuzz.rs`.
pub fn run(args: &[&str]) -> Result<()> {
    let mut command = step::cargo_command();
    command.args([
        "run",
        "--locked",
        "--package",
        "pegel-fuzz",
        "--bin",
        "fuzz",
        "--",
    ]);
    in_memory(command.args(args));
    let status = command.status().context("cannot start cargo")?;
    ensure!(
        status.success(),
        "fuzzing found something: add its input to fuzz/corpus, mend it, and write a test"
    );
    Ok(())
}

/// What `cargo fuzz` would set: counters in the code for libFuzzer, and its entry point.
const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares --cfg=fuzzing -Zsanitizer=address \
    -Ccodegen-units=1 -Cdebug-assertions";

/// Looks for new paths through the code, for so many seconds. What is found is gathered in
/// `target/fuzz-coverage`; the inputs that reach more than the corpus does are added to it.
pub fn coverage(target: &str, seconds: &str) -> Result<()> {
    let seconds: u32 = seconds.parse().context("--seconds needs a number")?;
    let work = step::root().join("target/fuzz-coverage");
    let found = work.join(target);
    let crashes = step::root().join("target/fuzz-crashes");
    let corpus = step::root().join("fuzz/corpus").join(target);
    ensure!(
        corpus.is_dir(),
        "no target is called {target:?}: see `cargo xtask fuzz --list`"
    );
    for dir in [&found, &crashes] {
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
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
        // Set by the cargo that runs us, for the toolchain that we leave here.
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
            bail!("{target}: the input is in {}", crashes.display());
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
    // Only what reaches new code, and only small inputs: a corpus is read by people, too.
    args.extend([prefix, "-max_len=1500".into()]);
    args.extend(["-set_cover_merge=1".into(), "-use_counters=0".into()]);
    libfuzzer(&args, &[&corpus, &found])
}

/// Targets write small files again and again: no disk need see them.
fn in_memory(command: &mut Command) {
    if std::env::var_os("TMPDIR").is_none() && Path::new("/dev/shm").is_dir() {
        command.env("TMPDIR", "/dev/shm");
    }
}
