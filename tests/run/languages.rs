//! Programs in languages with a large runtime run to their end, and are counted as they count
//! themselves.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use pegel_testkit::{ChildProcess, FinishedProcess, REPOSITORY, TempDir, need};

use crate::run_mode::{BOUND, RunMode, isolate, pegel, read_report};

fn source(name: &str) -> PathBuf {
    Path::new(REPOSITORY).join("tests/run/programs").join(name)
}

/// Runs in a directory of its own. Returns hits, bytes and errors by call, or nothing if nothing is
/// counted.
fn run(way: RunMode, argv: &[String]) -> (FinishedProcess, BTreeMap<String, [u64; 3]>) {
    let home = TempDir::new();
    let report = home.join("report.json");
    let mut command = match way {
        RunMode::Plain => {
            let mut command = Command::new(&argv[0]);
            command.args(&argv[1..]);
            isolate(&mut command, &home);
            command
        }
        RunMode::Wrapped => pegel(&home, &[&["--".to_owned()][..], argv].concat()),
        _ => {
            let named = ["--report".to_owned(), report.display().to_string()];
            pegel(&home, &[&named[..], &way.prefix()[2..], argv].concat())
        }
    };
    let finished = ChildProcess::start(&mut command).wait(BOUND);
    let calls = match way {
        RunMode::Plain | RunMode::Wrapped => BTreeMap::new(),
        _ => read_report(&report),
    };
    (finished, calls)
}

/// Runs the program in all ways and compares the counts with its output: number of calls and bytes.
fn assert_counted(argv: &[String], least: usize) {
    let (plain, _) = run(RunMode::Plain, argv);
    assert_eq!(plain.code(), Some(42), "{plain}");
    let lines: Vec<&str> = plain.stdout.lines().collect();
    assert!(lines.len() >= least, "{plain}");
    for way in RunMode::wrapped() {
        let (finished, calls) = run(way, argv);
        assert_eq!(finished.code(), Some(42), "{way:?}: {finished}");
        assert_eq!(finished.stdout, plain.stdout, "{way:?}");
        assert_eq!(finished.stderr, plain.stderr, "{way:?}");
        for line in lines.iter().filter(|_| way != RunMode::Wrapped) {
            let words: Vec<&str> = line.split(' ').collect();
            let number = |at: usize| words[at].parse::<u64>().expect("a number");
            let expected = [number(1), number(2), 0];
            assert_eq!(calls[words[0]], expected, "{way:?} {line}: {calls:?}");
        }
    }
}

#[test]
fn a_python_program_is_counted_as_it_counts_itself() {
    let Some(python) = need("python3") else {
        return;
    };
    // Resolves the interpreter itself, which may be behind a wrapper script.
    let asked = Command::new(python)
        .args(["-c", "import sys; print(sys.executable)"])
        .output()
        .expect("python starts");
    let python = String::from_utf8(asked.stdout).expect("a path");
    let script = source("counts.py").display().to_string();
    assert_counted(&[python.trim().to_owned(), "-B".to_owned(), script], 4);
}

#[test]
fn a_java_program_is_counted_as_it_counts_itself() {
    let (Some(java), Some(javac)) = (need("java"), need("javac")) else {
        return;
    };
    let classes = TempDir::new();
    let mut command = Command::new(javac);
    command
        .arg("-d")
        .arg(classes.path())
        .arg(source("Counts.java"));
    let compiled = ChildProcess::start(&mut command).wait(BOUND);
    assert!(compiled.status.success(), "{compiled}");
    let words = [
        "-Xmx64m",
        "-cp",
        &classes.path().display().to_string(),
        "Counts",
    ]
    .map(str::to_owned);
    assert_counted(&[&[java.display().to_string()][..], &words].concat(), 2);
}
