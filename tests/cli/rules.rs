//! `pegel rules check` and `pegel rules test`, compared with promtool over the files in
//! `tests/cases/rules`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use pegel_testkit::{ChildProcess, FinishedProcess, REPOSITORY, TempDir, need};

use crate::PEGEL;

fn cases(kind: &str) -> PathBuf {
    Path::new(REPOSITORY).join("tests/cases/rules").join(kind)
}

/// Returns the names of files with an extension, sorted.
fn files(dir: &Path, extension: &str) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<String> = names
        .map(|name| name.into_string().expect("UTF-8"))
        .filter(|name| name.ends_with(extension))
        .collect();
    names.sort();
    assert!(!names.is_empty(), "{} has cases", dir.display());
    names
}

fn pegel(dir: &Path, args: &[&str]) -> FinishedProcess {
    let home = TempDir::new();
    let mut command = PEGEL.command(&home);
    ChildProcess::start(command.args(args).current_dir(dir)).wait(Duration::from_secs(30))
}

fn promtool(program: &Path, dir: &Path, args: &[&str]) -> bool {
    let output = Command::new(program).args(args).current_dir(dir).output();
    output.expect("promtool").status.success()
}

#[test]
fn unit_tests_end_as_with_promtool() {
    let Some(program) = need("promtool") else {
        return;
    };
    for (kind, expected) in [("good", true), ("bad", false)] {
        let dir = cases(kind);
        for file in files(&dir, ".yml") {
            if file == "rules.yml" {
                continue;
            }
            let theirs = promtool(&program, &dir, &["test", "rules", &file]);
            assert_eq!(theirs, expected, "promtool: {file}");
            let finished = pegel(&dir, &["rules", "test", &file]);
            let code = if expected { 0 } else { 1 };
            assert_eq!(finished.code(), Some(code), "{file}: {finished}");
            let verdict = if expected { "SUCCESS" } else { "FAILED" };
            assert!(finished.stdout.contains(verdict), "{file}: {finished}");
        }
    }
}

#[test]
fn rule_files_are_checked_as_by_promtool() {
    let Some(program) = need("promtool") else {
        return;
    };
    let dir = TempDir::new();
    let group = |rule: &str| format!("groups:\n- name: g\n  rules:\n  - {rule}\n");
    let good = fs::read_to_string(cases("good").join("rules.yml")).expect("a rule file");
    for (text, is_valid) in [
        (good, true),
        (String::new(), true),
        (group("{record: a, expr: x}"), true),
        (group("{record: a, expr: 'x >'}"), false),
        (group("{record: a b, expr: x}"), false),
        (group("{record: a, expr: x, for: 1m}"), false),
        (group("{alert: A, expr: x, for: x}"), false),
        (group("{alert: A, expr: x, labels: {'1': a}}"), false),
        (group("{alert: A}"), false),
        (group("{expr: x}"), false),
        (group("{record: a, alert: A, expr: x}"), false),
        (
            group("{alert: A, expr: x, annotations: {a: '{{ if }}'}}"),
            false,
        ),
        (
            group("{alert: A, expr: x, annotations: {a: '{{ $x }}'}}"),
            false,
        ),
        (
            group("{alert: A, expr: x, annotations: {a: '{{ end }}'}}"),
            false,
        ),
        (group("{alert: A, expr: x, unknown: y}"), false),
        ("groups:\n- name: a\n- name: a\n".to_owned(), false),
        ("groups: [".to_owned(), false),
    ] {
        fs::write(dir.join("r.yml"), &text).expect("written");
        let theirs = promtool(&program, dir.path(), &["check", "rules", "r.yml"]);
        assert_eq!(theirs, is_valid, "promtool:\n{text}");
        let finished = pegel(dir.path(), &["rules", "check", "r.yml"]);
        let code = if is_valid { 0 } else { 2 };
        assert_eq!(finished.code(), Some(code), "{text}\n{finished}");
        if !is_valid {
            assert!(finished.stderr.contains("r.yml:"), "{text}\n{finished}");
        }
    }
}

#[test]
fn errors_of_rules_have_file_and_line() {
    let finished = pegel(
        &cases("bad"),
        &["rules", "check", "failing.rules", "broken.rules"],
    );
    assert_eq!(finished.code(), Some(2), "{finished}");
    assert_eq!(finished.stdout, "failing.rules: 1 rule, no errors\n");
    assert_eq!(
        finished.stderr,
        "pegel: broken.rules:6:32: groups[0].rules[0].annotations.summary: annotation \"summary\": \
         function \"nosuch\" not defined\n"
    );
    let missing = pegel(&cases("bad"), &["rules", "check", "missing.rules"]);
    assert_eq!(missing.code(), Some(2), "{missing}");
}
