//! `pegel export` and `/api/v1/export`.

use std::fs;
use std::process::Command;

use pegel_testkit::{ChildProcess, FinishedProcess, TempDir, get, need_peer};
use serde_json::{Value, json};

use super::{assert_rows, hours_ago, points, read_archive, rows_of, send};
use crate::PEGEL;

/// Reads CSV files with pandas and DuckDB, which must agree, and prints the rows as JSON.
const CSV_READER: &str = r#"
import glob, json, sys
import duckdb, pandas as pd
[file] = glob.glob(glob.escape(sys.argv[1]) + "/*/*/*.csv")
columns = ["time", "name", "labels", "value"]
frame = pd.read_csv(file)[columns]
rows = [[t, n, json.loads(l), v] for t, n, l, v in frame.values.tolist()]
options = "header = true, delim = ',', quote = '\"', escape = '\"'"
duck = duckdb.sql(f"SELECT {', '.join(columns)} FROM read_csv('{file}', {options})").fetchall()
duck = [[t, n, json.loads(l), v] for t, n, l, v in duck]
assert rows == duck, (rows, duck)
print(json.dumps(rows))
"#;

fn export(home: &TempDir, args: &[&str]) -> FinishedProcess {
    let mut command = PEGEL.command(home);
    ChildProcess::start(command.arg("export").args(args)).wait(super::BOUND)
}

#[test]
fn an_export_has_every_sample_with_an_agent_and_without() {
    let home = TempDir::new();
    let config = "node: n1\nkeep: {memory: 1s, disk: 20d}\n";
    let agent = PEGEL.agent().dir(home.join("n1")).config(config).start();
    let sent = points((0..200).map(|n| hours_ago(40) + n * 600_011));
    assert!(send(&agent, &sent));
    let dir = |name: &str| home.join(name).display().to_string();
    let done = agent.client(&["export", "--to", &dir("all"), "--match", "queue*"]);
    assert_eq!(done.code(), Some(0), "{done}");
    let expected = format!("{} samples", sent.len());
    assert!(done.stdout.contains(&expected), "{done}");
    let rows = read_archive(&home.join("all"));
    if let Some(rows) = &rows {
        assert_rows(rows, &rows_of(&sent));
    }
    // A repetition finds the files.
    let again = agent.client(&["export", "--to", &dir("all"), "--match", "queue*"]);
    assert!(again.stdout.contains(": 0 files ("), "{again}");
    // A part of the time.
    let (start, end) = (hours_ago(30), hours_ago(20));
    let (start_text, end_text) = (start.to_string(), end.to_string());
    let times = [
        "--start",
        &start_text,
        "--end",
        &end_text,
        "--match",
        "queue*",
    ];
    let part = agent.client(&[&["export", "--to", &dir("part")], &times[..]].concat());
    assert_eq!(part.code(), Some(0), "{part}");
    let is_inside = |time: i64| start <= time && time < end;
    if let Some(rows) = read_archive(&home.join("part")) {
        let mut expected = rows_of(&sent);
        expected.retain(|(_, time, _)| is_inside(*time));
        assert_rows(&rows, &expected);
    }
    let csv = agent.client(&[
        "export",
        "--to",
        &dir("csv"),
        "--format",
        "csv",
        "--match",
        "queue_depth",
    ]);
    assert_eq!(csv.code(), Some(0), "{csv}");
    let none = agent.client(&[
        "export",
        "--to",
        &dir("none"),
        "--match",
        "no_such_metric_*",
    ]);
    assert_eq!(none.code(), Some(4), "{none}");
    let busy = agent.client(&["export", "--to", &dir("busy"), "--store", &dir("n1")]);
    assert_eq!(busy.code(), Some(2), "{busy}");
    assert!(busy.stderr.contains("in use by an agent"), "{busy}");
    let one = agent.get("/api/v1/export?start=-5m&format=parquet");
    assert_eq!(
        one.header("content-type"),
        Some("application/vnd.apache.parquet")
    );
    let unknown = get(&agent.unix(), "/api/v1/export?format=xml").expect("an answer");
    assert_eq!(unknown.status, 400);
    agent.stop();
    let before = super::files_below(&home.join("n1"));
    let stored = export(
        &home,
        &[
            "--to",
            &dir("stored"),
            "--store",
            &dir("n1"),
            "--match",
            "queue*",
        ],
    );
    assert_eq!(stored.code(), Some(0), "{stored}");
    assert_eq!(
        super::files_below(&home.join("n1")),
        before,
        "the store is unchanged"
    );
    if rows.is_some() {
        assert_eq!(read_archive(&home.join("stored")), rows);
    }
}

#[test]
fn places_that_cannot_be_used_are_explained() {
    let home = TempDir::new();
    let agent = PEGEL.agent().start();
    fs::write(home.join("file"), "").expect("written");
    let file = home.join("file/below").display().to_string();
    for (place, code, expected) in [
        ("ftp://x", 2, "a place begins with azblob://"),
        (file.as_str(), 1, "Not a directory"),
    ] {
        let done = agent.client(&["export", "--to", place]);
        assert_eq!(done.code(), Some(code), "{done}");
        assert!(done.stderr.contains(expected), "{done}");
    }
}

#[test]
fn times_that_select_nothing_and_mistakes_are_told_apart() {
    let home = TempDir::new();
    let agent = PEGEL.agent().start();
    let to = home.join("none").display().to_string();
    for (times, code, expected) in [
        (
            ["--start", "yesterday"],
            2,
            "RFC 3339 (2026-11-18T12:00:00Z)",
        ),
        (["--start", "-0"], 2, "--start"),
        (["--end", "1000"], 4, "no sample is selected"),
        (
            ["--start", "2100-01-01T00:00:00Z"],
            4,
            "no sample is selected",
        ),
    ] {
        let done = agent.client(&[&["export", "--to", &to], &times[..]].concat());
        assert_eq!(done.code(), Some(code), "{done}");
        assert!(done.stderr.contains(expected), "{done}");
    }
    let swapped = ["export", "--to", &to, "--start", "-1h", "--end", "-2h"];
    let done = agent.client(&swapped);
    assert_eq!(done.code(), Some(2), "{done}");
    assert!(
        done.stderr.contains("--start is not before --end"),
        "{done}"
    );
    assert!(!home.join("none").exists(), "nothing is made");
}

#[test]
fn labels_that_look_like_other_cells_stay_in_theirs() {
    let home = TempDir::new();
    let config = "node: n1\nkeep: {memory: 1s, disk: 20d}\n";
    let agent = PEGEL.agent().dir(home.join("n1")).config(config).start();
    let time = hours_ago(2);
    let hostile = "=1+1\",\"x,9,y,{},1.0,gauge,http";
    let point = json!({
        "metric": "queue", "timestamp": time, "value": 0.5, "tags": {"k": hostile},
    });
    assert!(send(&agent, &[point]));
    let to = home.join("csv").display().to_string();
    let done = agent.client(&["export", "--to", &to, "-f", "csv", "--match", "queue"]);
    assert_eq!(done.code(), Some(0), "{done}");
    let Some(python) = need_peer("analysis/bin/python3") else {
        return;
    };
    let output = Command::new(python)
        .args(["-c", CSV_READER])
        .arg(home.join("csv"))
        .output()
        .expect("started");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let rows: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(rows, json!([[time, "queue", {"k": hostile}, 0.5]]));
}
