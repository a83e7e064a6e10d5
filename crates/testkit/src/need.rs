//! Requirements of tests outside the repository. If one is missing, the test is skipped, and `cargo
//! xtask test` lists it by name; with `CI=true` the test fails.

use std::env;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::panic::Location;
use std::path::PathBuf;
use std::thread;

/// Returns the path of a program. On None the test must return at once.
#[track_caller]
pub fn need(program: &str) -> Option<PathBuf> {
    if let Some(path) = find(program) {
        return Some(path);
    }
    let reason = format!("program {program} is not installed");
    let is_ci = env::var_os("CI").is_some_and(|value| value == "true");
    assert!(!is_ci, "{reason}; a failure because CI=true");
    record_skip(&reason);
    None
}

/// Returns the path of third-party software that `cargo xtask test` installs below `target/peers`;
/// None as for [`need`].
#[track_caller]
pub fn need_peer(path: &str) -> Option<PathBuf> {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/peers"));
    let found = root.join(path);
    if found.exists() {
        return Some(found);
    }
    let reason = format!("target/peers/{path} is not installed; run cargo xtask test");
    let is_ci = env::var_os("CI").is_some_and(|value| value == "true");
    assert!(!is_ci, "{reason}; a failure because CI=true");
    record_skip(&reason);
    None
}

/// Requires something that no package can install (a device, a privilege). Without it the test is
/// skipped, even with `CI=true`.
#[track_caller]
pub fn need_hardware(is_there: bool, what: &str) -> Option<()> {
    if is_there {
        return Some(());
    }
    record_skip(&format!("this machine has no {what}"));
    None
}

fn find(program: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?)
        .map(|dir| dir.join(program))
        .find(|path| {
            path.metadata()
                .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
        })
}

/// Appends a line to the file that `cargo xtask test` sets in `PEGEL_SKIPS`: test, tab, reason.
#[track_caller]
#[allow(clippy::print_stderr)] // Without xtask, `cargo test -- --nocapture` should still show it.
fn record_skip(reason: &str) {
    let place = Location::caller();
    // The test runner names its threads after the tests, unless it runs them on the main thread.
    let test = match thread::current().name() {
        Some(name) if name != "main" => name.to_owned(),
        _ => format!("{}:{}", place.file(), place.line()),
    };
    let test = format!("{}::{test}", binary_name());
    eprintln!("skipped: {test}: {reason}");
    let Some(path) = env::var_os("PEGEL_SKIPS") else {
        return;
    };
    let line = format!("{test}\t{reason}\n");
    // A single append of a short line is atomic, so that lines of parallel tests do not mix.
    let written = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .and_then(|mut file| file.write_all(line.as_bytes()));
    written.unwrap_or_else(|e| panic!("cannot record a skip in {path:?}: {e}"));
}

/// Returns the name of the test binary without the hash that cargo adds.
fn binary_name() -> String {
    let binary = env::current_exe().unwrap_or_default();
    let stem = binary
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    stem.rsplit_once('-')
        .map_or(stem.clone(), |(name, _)| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_is_on_the_path() {
        let shell = find("sh").expect("every system has a shell");
        assert!(shell.is_absolute() && shell.ends_with("sh"));
        assert_eq!(find("no-such-program-as-this"), None);
    }

    #[test]
    fn the_binary_is_named_without_its_hash() {
        assert_eq!(binary_name(), "pegel_testkit");
    }
}
