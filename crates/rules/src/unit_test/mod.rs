//! Unit tests of rules in promtool's format.
//!
//! A test file names rule files, the series that they see and the alerts and values that they
//! should produce. Time starts at 0; all groups are evaluated at every evaluation interval.

pub(crate) mod memory_storage;
mod runner;
pub(crate) mod series_notation;
mod test_file;

use std::path::Path;

use pegel_config::ConfigError;

/// Runs the tests of a file. Returns the failures; an empty list means success.
pub fn run_test_file(path: &Path) -> Result<Vec<String>, ConfigError> {
    let file = test_file::TestFile::load(path)?;
    let rules = file.load_rules()?;
    let mut failures = Vec::new();
    for test in &file.tests {
        failures.extend(runner::run(&file, &rules, test));
    }
    Ok(failures)
}
