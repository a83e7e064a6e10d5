//! The archive and the export, read by pyarrow and DuckDB from PyPI.

mod continuous;
mod documentation;
mod export;
mod kills;
mod object_stores;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use pegel_testkit::{AgentBuilder, AgentProcess, TempDir, need_peer, now_millis, post};
use serde_json::{Value, json};

use crate::PEGEL;

/// Blocks are written every second, and hours that are over are sealed then.
const BOUND: Duration = Duration::from_secs(120);
const HOUR: i64 = 3_600_000;

/// Reads all files with pyarrow and with DuckDB, checks that both agree to the bit, and prints the
/// rows as JSON: `[[series, time, bits of the value], …]`.
const READER: &str = r#"
import glob, json, struct, sys
import duckdb, pyarrow.dataset as ds
# Both read the same files, also if the agent adds more meanwhile.
files = sorted(glob.glob(glob.escape(sys.argv[1]) + "/*/*/*.parquet"))
if not files:
    print("[]")
    sys.exit()
def bits(value): return struct.unpack("<q", struct.pack("<d", value))[0]
table = ds.dataset(files, format="parquet", partitioning="hive").to_table()
assert str(table.schema.field("time").type) == "timestamp[ms, tz=UTC]", table.schema
arrow = []
for row in table.select(["name", "labels", "time", "value", "node", "date"]).to_pylist():
    time = row["time"]
    assert str(row["date"]) == time.strftime("%Y-%m-%d"), row
    millis = round(time.timestamp() * 1000)
    arrow.append([row["name"] + row["labels"], millis, bits(row["value"]), row["node"]])
rows = duckdb.sql(f"""
    SELECT name || labels, epoch_ms(time), value, node
    FROM read_parquet({files}, hive_partitioning = true)
""").fetchall()
duck = [[series, time, bits(value), node] for series, time, value, node in rows]
assert sorted(arrow) == sorted(duck)
print(json.dumps(sorted(arrow)))
"#;

/// A sample: its series, as name and JSON of labels, time and bits.
type Row = (String, i64, i64);

/// Returns the rows of an archive; `None` if the readers are not installed.
#[track_caller]
fn read_archive(dir: &Path) -> Option<Vec<Row>> {
    let python = need_peer("analysis/bin/python3")?;
    let output = Command::new(python)
        .args(["-c", READER])
        .arg(dir)
        .output()
        .expect("started");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let rows: Vec<(String, i64, i64, String)> =
        serde_json::from_slice(&output.stdout).expect("JSON");
    let rows = rows.into_iter().map(|(series, time, bits, node)| {
        assert_eq!(node, "n1");
        (series, time, bits)
    });
    Some(rows.collect())
}

/// Fails with the first row that differs.
#[track_caller]
fn assert_rows(found: &[Row], expected: &[Row]) {
    let differing = found
        .iter()
        .zip(expected)
        .find(|(found, expected)| found != expected);
    assert_eq!(differing, None);
    assert_eq!(found.len(), expected.len());
}

/// Turns the answer of `/api/v1/range` into rows. Python parses numbers exactly.
const ANSWER_READER: &str = r#"
import json, struct, sys
rows = []
for series in json.load(sys.stdin):
    name = series["name"] + json.dumps(series["labels"], separators=(",", ":"), ensure_ascii=False)
    for time, value in series["points"]:
        rows.append([name, time, struct.unpack("<q", struct.pack("<d", value))[0]])
print(json.dumps(sorted(rows)))
"#;

/// Returns the rows that the agent answers, from a time on.
fn answered_rows(agent: &AgentProcess, start: i64) -> Option<Vec<Row>> {
    let python = need_peer("analysis/bin/python3")?;
    let answer = agent.get(&format!("/api/v1/range?match=queue*&start={start}"));
    let mut process = Command::new(python)
        .args(["-c", ANSWER_READER])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let mut input = process.stdin.take().expect("piped");
    input.write_all(answer.text().as_bytes()).expect("read");
    drop(input);
    let output = process.wait_with_output().expect("ended");
    Some(serde_json::from_slice(&output.stdout).expect("JSON"))
}

/// The hour in which the tests began: a test that runs into the next one keeps its times.
static THIS_HOUR: LazyLock<i64> = LazyLock::new(|| now_millis() / HOUR * HOUR);

/// Returns the hour in which the tests began minus `hours`.
fn hours_ago(hours: i64) -> i64 {
    *THIS_HOUR - hours * HOUR
}

/// Returns an agent without collectors that archives to `archive` in `home`.
fn archiving_agent(home: &TempDir, more: &str) -> AgentBuilder {
    let to = home.join("archive");
    let config = format!(
        "node: n1\nkeep: {{memory: 1s, disk: 20d}}\n\
         archive: {{to: \"file://{}\"{more}}}\n",
        to.display()
    );
    PEGEL.agent().dir(home.join("store")).config(&config)
}

/// Points of several series and hosts, with values that text formats change easily.
fn points(times: impl Iterator<Item = i64>) -> Vec<Value> {
    let mut points = Vec::new();
    for (n, time) in (0i64..).zip(times) {
        for host in ["a", "b c", "ü\"quoted\""] {
            let value = 0.1 + n as f64 * 1e-9 + host.len() as f64;
            points.push(json!({
                "metric": "queue_depth", "timestamp": time, "value": value,
                "tags": {"host": host},
            }));
        }
        points.push(json!({"metric": "queue", "timestamp": time, "value": n, "tags": {"x": "y"}}));
    }
    points
}

/// Returns the rows that points become.
fn rows_of(points: &[Value]) -> Vec<Row> {
    let row = |point: &Value| {
        let name = point["metric"].as_str().expect("a name");
        let value = point["value"].as_f64().expect("a number");
        let time = point["timestamp"].as_i64().expect("a time");
        (
            format!("{name}{}", point["tags"]),
            time,
            value.to_bits().cast_signed(),
        )
    };
    let mut rows: Vec<Row> = points.iter().map(row).collect();
    rows.sort();
    rows
}

/// Sends points; returns whether the agent acknowledged them.
fn send(agent: &AgentProcess, points: &[Value]) -> bool {
    let body = Value::from(points.to_vec()).to_string();
    let answer = post(&agent.unix(), "/api/put?sync", &[], body.as_bytes());
    answer.is_ok_and(|answer| answer.status == 204)
}

/// Returns a count of the archive in `/status`.
fn count(agent: &AgentProcess, key: &str) -> u64 {
    agent.status()["archive"][key].as_u64().expect("a count")
}

fn files_below(dir: &Path) -> Vec<String> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        match entry.path().is_dir() {
            true => files.extend(files_below(&entry.path())),
            false => files.push(entry.file_name().to_string_lossy().into_owned()),
        }
    }
    files
}
