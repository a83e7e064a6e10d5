//! Skipped tests, and the list of those that are expected on the machines that run the checks.

use std::collections::BTreeSet;
use std::fmt;

/// The expected skips, one line for each test and reason: `BINARY::TEST: REASON`. Lines with `#`
/// are comments.
pub(crate) const EXPECTED_SKIPS: &str = "tests/expected-skips.txt";

/// A skipped test with one of its reasons.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SkippedTest {
    test: String,
    reason: String,
}

impl fmt::Display for SkippedTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.test, self.reason)
    }
}

impl SkippedTest {
    /// Parses a line of the file that tests append to: test, tab, reason. See the `need` module of
    /// crates/testkit.
    pub(crate) fn from_record(line: &str) -> Option<SkippedTest> {
        let (test, reason) = line.split_once('\t')?;
        Some(SkippedTest {
            test: test.to_owned(),
            reason: reason.to_owned(),
        })
    }

    /// Parses `test NAME ... ignored, REASON`. Functions that another test runs as a child process
    /// are marked as "not a test" and are not skips.
    pub(crate) fn from_ignored(line: &str) -> Option<SkippedTest> {
        let (test, state) = line.strip_prefix("test ")?.split_once(" ... ")?;
        let reason = state.strip_prefix("ignored")?;
        let reason = reason.strip_prefix(", ").unwrap_or("marked #[ignore]");
        (!reason.starts_with("not a test")).then(|| SkippedTest {
            test: test.to_owned(),
            reason: reason.to_owned(),
        })
    }
}

/// Returns the number of tests, each of which may have several reasons.
pub(crate) fn count_tests(skips: &BTreeSet<SkippedTest>) -> usize {
    let tests: BTreeSet<&str> = skips.iter().map(|skip| skip.test.as_str()).collect();
    tests.len()
}

/// Compares the skips of a run with the text of the list; returns a message for each difference.
pub(crate) fn differences(expected: &str, skips: &BTreeSet<SkippedTest>) -> Vec<String> {
    let expected: BTreeSet<&str> = expected
        .lines()
        .map(str::trim_end)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect();
    let skipped: BTreeSet<String> = skips.iter().map(SkippedTest::to_string).collect();
    let unexpected = skipped
        .iter()
        .filter(|line| !expected.contains(line.as_str()))
        .map(|line| format!("skipped, but not in {EXPECTED_SKIPS}: {line}"));
    let missing = expected
        .iter()
        .filter(|line| !skipped.contains(**line))
        .map(|line| format!("in {EXPECTED_SKIPS}, but not skipped: {line}"));
    unexpected.chain(missing).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skip(test: &str, reason: &str) -> SkippedTest {
        SkippedTest {
            test: test.to_owned(),
            reason: reason.to_owned(),
        }
    }

    #[test]
    fn ignored_tests_are_skips_with_their_reason() {
        let ignored = SkippedTest::from_ignored;
        assert_eq!(
            ignored("test a::b ... ignored, too slow"),
            Some(skip("a::b", "too slow"))
        );
        assert_eq!(
            ignored("test a::b ... ignored"),
            Some(skip("a::b", "marked #[ignore]"))
        );
        assert_eq!(
            ignored("test child ... ignored, not a test of its own"),
            None
        );
        assert_eq!(ignored("test a::b ... ok"), None);
    }

    #[test]
    fn a_test_with_two_reasons_has_two_entries_and_counts_once() {
        let records = ["a\tno x", "a\tno y", "a\tno x", "b\tno x"];
        let skips = records
            .into_iter()
            .filter_map(SkippedTest::from_record)
            .collect();
        assert_eq!(count_tests(&skips), 2);
        assert_eq!(skips.len(), 3);
    }

    #[test]
    fn differences_in_both_directions_are_found() {
        let skips = BTreeSet::from([skip("a", "no x"), skip("b", "no x")]);
        assert_eq!(
            differences("# A comment.\n\na: no x\nb: no x\n", &skips),
            [""; 0]
        );
        assert_eq!(
            differences("a: no y\nb: no x\n", &skips),
            [
                "skipped, but not in tests/expected-skips.txt: a: no x",
                "in tests/expected-skips.txt, but not skipped: a: no y"
            ]
        );
    }
}
