//! Tests that need a process of their own.

use std::process::Command;
use std::time::Duration;
use std::{any, env};

use crate::ChildProcess;

/// Set in a process that runs one test only.
const ALONE: &str = "PEGEL_TEST_ALONE";
const BOUND: Duration = Duration::from_secs(600);

/// Runs the body of a test in a process of its own: starts this test binary again for the calling
/// test only. Required by tests that change or measure the whole process: its limits, environment,
/// memory or descriptors.
///
/// `body` is a closure that the test function defines; its type tells the name of the test.
#[track_caller]
pub fn run_alone<F: FnOnce()>(body: F) {
    if env::var_os(ALONE).is_some() {
        return body();
    }
    let mut command = Command::new(env::current_exe().expect("the test binary"));
    command
        .args(["--exact", test_name::<F>(), "--nocapture"])
        .env(ALONE, "1");
    let finished = ChildProcess::start(&mut command).wait(BOUND);
    let is_passed = finished.status.success() && finished.stdout.contains(" 1 passed;");
    assert!(is_passed, "{finished}");
}

/// Returns `module::test` of a closure whose type is named `crate::module::test::{{closure}}`.
fn test_name<F>() -> &'static str {
    let name = any::type_name::<F>();
    let test = name.strip_suffix("::{{closure}}").unwrap_or(name);
    test.split_once("::").map_or(test, |(_, test)| test)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name_of<F: FnOnce()>(_: F) -> &'static str {
        test_name::<F>()
    }

    #[test]
    fn the_test_is_named_by_its_closure() {
        let name = name_of(|| {});
        assert_eq!(name, "alone::tests::the_test_is_named_by_its_closure");
    }

    #[test]
    fn the_body_runs_in_another_process() {
        let mut has_run_here = false;
        run_alone(|| has_run_here = true);
        assert_eq!(has_run_here, env::var_os(ALONE).is_some());
    }
}
