//! Runs all tests and prints a summary: passed, failed, and skipped with reasons.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};

use crate::{packages, peers, step};

#[derive(Debug, Default, PartialEq, Eq)]
struct TestCount {
    passed: u64,
    failed: u64,
}

pub fn run() -> Result<()> {
    packages::install_missing();
    peers::install_missing();
    let target = step::root().join("target");
    fs::create_dir_all(&target).context("cannot create target/")?;
    // Tests that lack a program record it in this file; see the `need` module of crates/testkit.
    let skips_path = target.join("skipped-tests.txt");
    fs::write(&skips_path, "").with_context(|| format!("cannot write {}", skips_path.display()))?;

    let mut child = step::cargo_command()
        .args(["test", "--locked", "--workspace", "--no-fail-fast"])
        .env("PEGEL_SKIPS", &skips_path)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start cargo")?;
    let stdout = child.stdout.take().context("cargo has no output")?;
    let mut count = TestCount::default();
    let mut skips = Vec::new();
    for line in BufReader::new(stdout).lines() {
        let line = line.context("cannot read cargo's output")?;
        println!("{line}");
        count.add(&line);
        if let Some((test, reason)) = ignored(&line) {
            skips.push((test.to_owned(), reason.to_owned()));
        }
    }
    let status = child.wait().context("cannot wait for cargo")?;
    let ignored_count = skips.len();

    // The test runner reports a test that skipped itself as passed.
    let recorded = fs::read_to_string(&skips_path)
        .with_context(|| format!("cannot read {}", skips_path.display()))?;
    let recorded = parse_skips(&recorded);
    count.passed = count.passed.saturating_sub(recorded.len() as u64);
    skips.extend(recorded);
    for (test, reason) in &skips {
        println!("skipped: {test}: {reason}");
    }
    if !status.success() && count.failed == 0 {
        // Compilation failed, or a test binary was killed before it printed a result.
        count.failed = 1;
    }
    println!(
        "{} passed, {} failed, {} skipped",
        count.passed,
        count.failed,
        skips.len()
    );
    ensure!(status.success(), "tests failed");
    // With CI=true, tests that lack a program fail by themselves; ignored tests must be rejected here.
    let is_ci = std::env::var_os("CI").is_some_and(|value| value == "true");
    ensure!(
        !is_ci || ignored_count == 0,
        "tests marked #[ignore] are not permitted with CI=true"
    );
    Ok(())
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

/// Parses `test NAME ... ignored, REASON`. Functions that another test runs as a child process are marked as "not a
/// test" and are not skips.
fn ignored(line: &str) -> Option<(&str, &str)> {
    let (test, state) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let reason = state.strip_prefix("ignored")?;
    let reason = reason.strip_prefix(", ").unwrap_or("marked #[ignore]");
    (!reason.starts_with("not a test")).then_some((test, reason))
}

/// Parses one skip per line: test, tab, reason. Several reasons of one test are joined.
fn parse_skips(text: &str) -> BTreeMap<String, String> {
    let mut skips: BTreeMap<String, String> = BTreeMap::new();
    for (test, reason) in text.lines().filter_map(|line| line.split_once('\t')) {
        skips
            .entry(test.to_owned())
            .and_modify(|reasons| {
                if !reasons.contains(reason) {
                    reasons.push_str("; ");
                    reasons.push_str(reason);
                }
            })
            .or_insert_with(|| reason.to_owned());
    }
    skips
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn ignored_tests_are_listed_with_their_reason() {
        assert_eq!(
            ignored("test a::b ... ignored, too slow"),
            Some(("a::b", "too slow"))
        );
        assert_eq!(
            ignored("test a::b ... ignored"),
            Some(("a::b", "marked #[ignore]"))
        );
        assert_eq!(
            ignored("test child ... ignored, not a test of its own"),
            None
        );
        assert_eq!(ignored("test a::b ... ok"), None);
    }

    #[test]
    fn a_test_with_two_reasons_counts_once() {
        let skips = parse_skips("a\tno x\na\tno y\na\tno x\nb\tno x\n");
        assert_eq!(skips.len(), 2);
        assert_eq!(skips["a"], "no x; no y");
    }
}
