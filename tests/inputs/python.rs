//! The Python package: its suite (`clients/python/tests`) runs against the built agent, with the
//! wheel that users install.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use pegel_testkit::{
    ChildProcess, PythonPackage, REPOSITORY, TempDir, eventually, isolate, need_peer,
};

use crate::PEGEL;

/// The time limit of one file of tests. Each test has its own, shorter one.
const BOUND: Duration = Duration::from_secs(900);

/// Returns the built package, shared by all tests here.
#[track_caller]
fn package() -> Option<&'static PythonPackage> {
    static PACKAGE: OnceLock<PythonPackage> = OnceLock::new();
    let marker = need_peer("python-client/bin/pegel-tests")?;
    let tools = marker.ancestors().nth(2).expect("a virtual environment");
    Some(PACKAGE.get_or_init(|| PythonPackage::build(tools, "dev")))
}

/// Runs one file of the suite.
#[track_caller]
fn pytest(file: &str) {
    let Some(package) = package() else { return };
    let home = TempDir::new();
    let folder = Path::new(REPOSITORY).join("clients/python");
    let mut command = Command::new(&package.python);
    isolate(&mut command, &home);
    command
        .args(["-m", "pytest", "-p", "no:cacheprovider"])
        .arg("--basetemp")
        .arg(home.join("t"))
        .arg(folder.join("tests").join(file))
        .arg("--rootdir")
        .arg(&folder)
        .env("PYTHONPATH", &package.site)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("PEGEL_BINARY", PEGEL.path())
        .env("PEGEL_SOCKET", home.join("none.sock"));
    let finished = ChildProcess::start(&mut command).wait(BOUND);
    assert!(finished.status.success(), "{finished}");
    // A file without tests, or with skipped ones, would show nothing.
    let summary = finished.stdout.lines().last().unwrap_or_default();
    let is_complete = summary.contains(" passed") && !summary.contains("skipped");
    assert!(is_complete, "{finished}");
}

#[test]
fn python_programs_count_with_every_kind_of_series() {
    pytest("test_series.py");
}

#[test]
fn python_processes_threads_and_kills_are_counted_exactly() {
    pytest("test_processes.py");
}

#[test]
fn python_values_that_cannot_be_stored_are_errors_or_counted() {
    pytest("test_bad_input.py");
}

#[test]
fn dragons_telemetry_and_analysis_client() {
    pytest("test_telemetry.py");
}

#[test]
fn marks_and_phases_of_python_programs_are_annotations() {
    pytest("test_marks.py");
}

#[test]
fn python_programs_send_changed_values_to_other_statsd_servers() {
    pytest("test_statsd_output.py");
}

#[test]
fn python_programs_read_back_what_is_stored() {
    pytest("test_read.py");
}

#[test]
fn python_filters_act_at_collection_when_reading_and_in_the_agent() {
    pytest("test_filter.py");
}

#[test]
fn the_python_package_is_typed_and_needs_nothing_else() {
    pytest("test_package.py");
}

#[test]
fn the_examples_of_the_python_package_run() {
    pytest("test_examples.py");
}

/// A file of tests that is not named here would never run.
#[test]
fn every_file_of_the_suite_runs() {
    let folder = Path::new(REPOSITORY).join("clients/python/tests");
    let this_file = include_str!("python.rs");
    for entry in fs::read_dir(folder).expect("the suite") {
        let name = entry.expect("an entry").file_name();
        let name = name.to_str().expect("UTF-8");
        if name.starts_with("test_") {
            let call = format!("pytest(\"{name}\")");
            assert!(this_file.contains(&call), "{name} is not run");
        }
    }
}

#[test]
fn the_wheel_works_in_a_fresh_virtual_environment() {
    let Some(package) = package() else { return };
    let agent = PEGEL.agent().start();
    let home = TempDir::new();
    let venv = home.join("venv");
    let run = |command: &mut Command| {
        let finished = ChildProcess::start(command).wait(BOUND);
        assert!(finished.status.success(), "{command:?}: {finished}");
        finished.stdout
    };
    run(Command::new(&package.python)
        .args(["-m", "venv"])
        .arg(&venv));
    run(Command::new(venv.join("bin/pip"))
        .args(["install", "--quiet", "--no-index"])
        .arg(&package.wheel));
    let mut program = Command::new(venv.join("bin/python"));
    agent.connect(&mut program);
    let text = "import pegel; pegel.counter('fresh_total').add(3); print(pegel.__version__)";
    let printed = run(program.args(["-c", text]));
    assert_eq!(printed.trim(), env!("CARGO_PKG_VERSION"));
    eventually("the counter", || {
        let got = agent.client(&["get", "fresh_total", "-f", "json"]);
        got.stdout
            .contains("\"value\": 3.0")
            .then_some(())
            .ok_or(got.stdout)
    });
}
