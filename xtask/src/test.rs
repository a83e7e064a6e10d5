//! Runs all tests and prints a summary: passed, failed, and skipped with reasons.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};

use crate::skips::{self, SkippedTest};
use crate::{packages, peers, step};

#[derive(Debug, Default, PartialEq, Eq)]
struct TestCount {
    passed: u64,
    failed: u64,
}

/// The results of one run of the test runner.
struct TestRun {
    count: TestCount,
    /// The tests marked `#[ignore]`.
    ignored: Vec<SkippedTest>,
    failed: Vec<String>,
    is_success: bool,
}

/// How many failed tests are repeated: more of them have a common cause.
const REPEATED_MAX: usize = 5;

pub(crate) fn run() -> Result<()> {
    packages::install_missing();
    peers::install_missing();
    let target = step::root().join("target");
    fs::create_dir_all(&target).context("cannot create target/")?;
    // Tests that lack a program record it in this file; see the `need` module of crates/testkit.
    let records = target.join("skipped-tests.txt");
    fs::write(&records, "").with_context(|| format!("cannot write {}", records.display()))?;

    let TestRun {
        mut count,
        ignored,
        failed,
        mut is_success,
    } = run_cargo(&records, &[])?;
    if !is_success && step::is_ci() && (1..=REPEATED_MAX).contains(&failed.len()) {
        is_success = repeat(&failed, &records, &mut count)?;
    }
    // The test runner reports a test that skipped itself as passed.
    let recorded = fs::read_to_string(&records)
        .with_context(|| format!("cannot read {}", records.display()))?;
    let recorded: BTreeSet<SkippedTest> = recorded
        .lines()
        .filter_map(SkippedTest::from_record)
        .collect();
    count.passed -= count.passed.min(skips::count_tests(&recorded) as u64);
    let skipped: BTreeSet<SkippedTest> = ignored.into_iter().chain(recorded).collect();
    for skip in &skipped {
        println!("skipped: {skip}");
    }
    if !is_success && count.failed == 0 {
        // Compilation failed, or a test binary was killed before it printed a result.
        count.failed = 1;
    }
    println!(
        "{} passed, {} failed, {} skipped",
        count.passed,
        count.failed,
        skips::count_tests(&skipped)
    );
    ensure!(is_success, "tests failed");
    check_skips(&skipped)
}

/// Runs tests that failed once more, one at a time. A test that passes now is counted as passed
/// and reported as flaky: it depends on what else runs on the machine, and must be repaired.
fn repeat(failed: &[String], records: &Path, count: &mut TestCount) -> Result<bool> {
    println!("repeating the tests that failed, one at a time: {failed:?}");
    let mut args = vec!["--exact", "--test-threads=1"];
    args.extend(failed.iter().map(String::as_str));
    let again = run_cargo(records, &args)?;
    let flaky: Vec<&String> = failed
        .iter()
        .filter(|test| !again.failed.contains(test))
        .collect();
    for test in &flaky {
        println!("flaky: {test} failed, and passed when repeated alone");
    }
    // A test that was not found again, such as an example in the documentation, stays failed.
    let is_success = again.is_success && again.count.passed >= failed.len() as u64;
    if is_success {
        count.failed -= failed.len() as u64;
        count.passed += failed.len() as u64;
    }
    Ok(is_success)
}

/// Runs all tests, or those that `test_args` select.
fn run_cargo(records: &Path, test_args: &[&str]) -> Result<TestRun> {
    let mut command = step::cargo_command();
    // The same tests at every run of a change; elsewhere each run tries other random numbers.
    if step::is_ci() && std::env::var_os("PEGEL_SEED").is_none() {
        command.env("PEGEL_SEED", "1");
    }
    let mut child = command
        .args(["test", "--locked", "--workspace", "--no-fail-fast", "--"])
        .args(test_args)
        .env("PEGEL_SKIPS", records)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start cargo")?;
    let stdout = child.stdout.take().context("cargo has no output")?;
    let mut count = TestCount::default();
    let (mut ignored, mut failed) = (Vec::new(), Vec::new());
    for line in BufReader::new(stdout).lines() {
        let line = line.context("cannot read cargo's output")?;
        println!("{line}");
        count.add(&line);
        ignored.extend(SkippedTest::from_ignored(&line));
        failed.extend(failed_test(&line));
    }
    let status = child.wait().context("cannot wait for cargo")?;
    Ok(TestRun {
        count,
        ignored,
        failed,
        is_success: status.success(),
    })
}

/// Compares skipped tests with the expected ones. With CI=true a difference is a failure: a test
/// that is skipped unnoticed tests nothing.
fn check_skips(skipped: &BTreeSet<SkippedTest>) -> Result<()> {
    let path = step::root().join(skips::EXPECTED_SKIPS);
    let expected =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let differences = skips::differences(&expected, skipped);
    for difference in &differences {
        println!("{difference}");
    }
    ensure!(
        !step::is_ci() || differences.is_empty(),
        "skipped tests differ from {}; provide what they need, or edit the list",
        skips::EXPECTED_SKIPS
    );
    Ok(())
}

/// Returns the name in `test NAME ... FAILED`.
fn failed_test(line: &str) -> Option<String> {
    let (name, state) = line.strip_prefix("test ")?.split_once(" ... ")?;
    (state == "FAILED").then(|| name.to_owned())
}

impl TestCount {
    /// Adds the result line of a test binary; other lines are ignored.
    fn add(&mut self, line: &str) {
        let Some(result) = line.strip_prefix("test result: ") else {
            return;
        };
        let result = result.split_once(". ").map_or("", |(_, numbers)| numbers);
        for part in result.split("; ") {
            let Some((number, word)) = part.split_once(' ') else {
                continue;
            };
            let Ok(number) = number.parse::<u64>() else {
                continue;
            };
            match word {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_tests_are_named() {
        let failed = failed_test("test store::tests::a_name ... FAILED");
        assert_eq!(failed.as_deref(), Some("store::tests::a_name"));
        assert_eq!(failed_test("test store::tests::a_name ... ok"), None);
        assert_eq!(failed_test("test result: FAILED. 1 passed; 3 failed"), None);
    }

    #[test]
    fn results_of_several_binaries_are_summed() {
        let mut count = TestCount::default();
        count.add("running 15 tests");
        count.add("test result: ok. 15 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.08s");
        count.add("test result: FAILED. 1 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.08s");
        assert_eq!(
            count,
            TestCount {
                passed: 16,
                failed: 3
            }
        );
    }
}
