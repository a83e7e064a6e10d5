//! The content of a record, and requests that are refused.

use std::process::Command;

use pegel_testkit::{AgentProcess, OtherUser, eventually, now_millis};
use serde_json::{Value, json};

use super::{TaskHome, request, shell_line};
use crate::PEGEL;

#[test]
fn a_record_has_the_machine_the_samples_and_the_end() {
    let task = TaskHome::new();
    let agent = PEGEL.agent().args(&["--rate", "100ms"]).start();
    let begin = now_millis();
    let started = task.start(&agent, "align", &["--wait"]);
    assert_eq!(started, format!("recording: {}/wf/align/1\n", task.place()));
    // The first blocks are stored: the session with the snapshot, and the current values.
    let record = task.record("align");
    assert_eq!(record.problems, Vec::<String>::new());
    assert_eq!(record.documents[0]["task"], "align");
    let first = record.times_of("node_load1");
    // On a busy machine the sample at the start may be late, and the one before it counts.
    assert!(first.len() == 1 && first[0] >= begin - 5_000, "{first:?}");

    let status = task.status(Some(&agent.socket));
    let session = &status["sessions"][0];
    assert_eq!(session["state"], "recording");
    assert_eq!(session["slot"], "default");
    assert_eq!(session["upload"]["state"], "active");
    eventually("more samples are in the record", || {
        let flushed = request(&agent, "/api/v1/agent/flush", "{}");
        assert_eq!(flushed.status, 200, "{}", flushed.text());
        let count = task.record("align").times_of("node_load1").len();
        (count > 3).then_some(()).ok_or_else(|| format!("{count}"))
    });
    task.stop(&agent, &["--exit-status", "0"]);
    let record = task.record("align");
    record.check_whole();
    let snapshots = record
        .documents
        .iter()
        .filter(|document| document["snapshot"].is_object());
    assert!(snapshots.count() > 0, "{:?}", record.documents);
    let end = record.end.as_ref().expect("an end");
    assert_eq!(end["exit_status"], 0);
    assert_eq!(end["end_reason"], "stop");
    assert!(record.autopsies.is_empty());
    // No own metrics, but those of the task.
    let has = |prefix: &str| {
        record
            .samples
            .iter()
            .any(|one| one.series.starts_with(prefix))
    };
    assert!(!has("pegel_samples") && has("pegel_task_"));

    let again = task.session(
        Some(&agent.socket),
        &[
            "start",
            "--workflow",
            "wf",
            "--task",
            "align",
            "--to",
            &task.place(),
        ],
    );
    assert_eq!(again.code(), Some(1));
    assert!(
        again
            .stderr
            .contains("start the session with another --attempt"),
        "{again}"
    );
}

#[test]
fn ticks_while_a_session_starts_do_not_hide_the_first_values() {
    let task = TaskHome::new();
    let agent = PEGEL.agent().args(&["--rate", "5ms"]).start();
    task.start(&agent, "fast", &["--wait"]);
    let record = task.record("fast");
    let first = record.times_of("node_load1");
    assert_eq!(first.len(), 1, "{first:?}");
}

#[test]
fn a_task_of_50_ms_has_a_first_and_a_last_sample() {
    let task = TaskHome::new();
    let agent = PEGEL.agent().args(&["--rate", "5s"]).start();
    task.start(&agent, "short", &[]);
    std::thread::sleep(std::time::Duration::from_millis(50));
    task.stop(&agent, &[]);
    let record = task.record("short");
    record.check_whole();
    let times = record.times_of("node_load1");
    let (begin, end) = (
        &record.documents[0]["begin"],
        &record.end.as_ref().expect("an end")["end"],
    );
    let (begin, end) = (
        begin.as_i64().expect("a time"),
        end.as_i64().expect("a time"),
    );
    assert!(times.len() >= 2, "{times:?}");
    assert!(
        times[0] <= begin + 200 && *times.last().expect("a time") + 200 >= end,
        "{times:?}"
    );
    assert!(times.last() > times.first());
}

#[test]
fn the_processes_of_a_task_are_attributed_to_it_and_a_failure_is_described() {
    let task = TaskHome::new();
    let agent = PEGEL.agent().args(&["--rate", "100ms"]).start();
    // The shell is the task: it starts the session, works, and fails.
    let pegel = task.command(
        Some(&agent.socket),
        &[
            "start",
            "--task",
            "worker",
            "--workflow",
            "wf",
            "--to",
            &task.place(),
        ],
    );
    let line = shell_line(&pegel);
    let work = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; sleep 1.5; exit 3";
    let mut shell = Command::new("sh");
    pegel_testkit::isolate(&mut shell, &task.home);
    let finished = shell
        .arg("-c")
        .arg(format!("{line} && {work}"))
        .output()
        .expect("sh");
    assert_eq!(finished.status.code(), Some(3), "{finished:?}");
    eventually("the end of the task is noticed", || {
        let status = task.status(Some(&agent.socket));
        let end = &status["sessions"][0]["task_end"];
        end.is_i64().then_some(()).ok_or_else(|| status.to_string())
    });
    task.stop(&agent, &["--exit-status", "3"]);
    let record = task.record("worker");
    record.check_whole();
    let end = record.end.as_ref().expect("an end");
    assert!(end["peaks"]["cpu_seconds"].as_f64() > Some(0.05), "{end:#}");
    assert!(
        end["peaks"]["memory_bytes"].as_u64() > Some(100_000),
        "{end:#}"
    );
    assert!(end["task_end"].is_i64());
    let events = record
        .documents
        .iter()
        .filter(|one| one["event"] == "task-end");
    assert_eq!(events.count(), 1);
    let causes: Vec<_> = record.autopsies.iter().map(|one| &one["cause"]).collect();
    assert!(!causes.is_empty(), "{record:?}");
    assert!(
        causes.iter().any(|cause| cause.to_string().contains('3')),
        "{causes:?}"
    );
}

#[test]
fn aggregated_records_have_statistics_instead_of_samples() {
    let task = TaskHome::new();
    let config = "session: {aggregate: 1s, flush: 1s, names: [node_load1]}\nrate: 100ms\n";
    let agent = PEGEL.agent().config(config).start();
    task.start(&agent, "stats", &[]);
    eventually("two intervals are recorded", || {
        let count = task.record("stats").times_of("node_load1:count").len();
        (count >= 3).then_some(()).ok_or_else(|| format!("{count}"))
    });
    task.stop(&agent, &[]);
    let record = task.record("stats");
    record.check_whole();
    let names: std::collections::BTreeSet<&str> = { record.samples.iter() }
        .map(|one| &*one.series)
        .filter(|name| !name.starts_with("pegel_task"))
        .collect();
    let suffixes = ["avg", "count", "last", "max", "min", "stddev"];
    let expected: Vec<String> = suffixes
        .iter()
        .map(|one| format!("node_load1:{one}"))
        .collect();
    assert_eq!(names.into_iter().collect::<Vec<_>>(), expected);
    let counts = record
        .samples
        .iter()
        .filter(|one| &*one.series == "node_load1:count");
    let counts: Vec<f64> = counts.flat_map(|one| one.values.clone()).collect();
    assert!(counts.iter().any(|count| *count >= 8.0), "{counts:?}");
}

#[test]
fn bad_requests_get_clear_errors() {
    let task = TaskHome::new();
    let agent = PEGEL.agent().start();
    let place = task.place();
    let cases: [(&[&str], i32, &str); 6] = [
        (
            &["start", "--task", "a"],
            2,
            "pass it with --to, or set $PEGEL_SESSION_TO",
        ),
        (
            &["start", "--task", "a", "--to", "ftp://x"],
            2,
            "a place begins with azblob://",
        ),
        (&["start", "--to", &place], 2, "nothing names this task"),
        (
            &["start", "--task", "a", "--to", &place, "--slot", "../x"],
            2,
            "is not a slot",
        ),
        (&["stop"], 1, "there is no session in slot \"default\""),
        (
            &["credentials", "--slot", "x"],
            1,
            "there is no session in slot \"x\"",
        ),
    ];
    for (args, code, message) in cases {
        let finished = task.session(Some(&agent.socket), args);
        assert_eq!(finished.code(), Some(code), "{args:?}: {finished}");
        assert!(finished.stderr.contains(message), "{args:?}: {finished}");
    }
    let malformed = request(&agent, "/api/v1/sessions/start", "{\"task\": 1}");
    assert_eq!(malformed.status, 400, "{}", malformed.text());
    // Names become path components, whatever they contain.
    task.start(&agent, "../../etc/passwd", &[]);
    let status = task.status(Some(&agent.socket));
    let to = status["sessions"][0]["to"].as_str().expect("a place");
    assert_eq!(to, format!("{place}/wf/.._.._etc_passwd/1"));
    assert_eq!(status["sessions"].as_array().map(Vec::len), Some(1));
}

#[test]
fn storage_that_cannot_be_written_is_shown_and_loses_nothing() {
    let task = TaskHome::new();
    let agent = PEGEL
        .agent()
        .config("session: {flush: 1s}\nrate: 100ms\n")
        .start();
    // A file is where the folder of records is to be.
    std::fs::write(&task.records, "in the way").expect("written");
    task.start(&agent, "late", &[]);
    eventually("the problem is shown", || {
        let status = task.session(Some(&agent.socket), &["status"]);
        let is_shown = status.stdout.contains("wf/late/1: ") && status.stdout.contains("recording");
        is_shown.then_some(()).ok_or_else(|| status.to_string())
    });
    std::fs::remove_file(&task.records).expect("removed");
    // New credentials make the upload try again at once.
    let renewed = task.session(Some(&agent.socket), &["credentials"]);
    assert_eq!(renewed.code(), Some(0), "{renewed}");
    task.stop(&agent, &[]);
    task.record("late").check_whole();
}

#[test]
fn users_see_and_stop_only_their_own_sessions() {
    let Some(user) = OtherUser::new() else {
        return;
    };
    let task = TaskHome::new();
    let directory = task.records.join("other");
    let config = format!(
        "allow_users: [{}]\nsession: {{directories: [\"{}\"]}}\n",
        OtherUser::UID,
        directory.display()
    );
    let agent = PEGEL.agent().config(&config).start();
    let body = json!({"workflow": "wf", "task": "root", "attempt": "1", "to": task.place()});
    let started = request(&agent, "/api/v1/sessions/start", &body.to_string());
    assert_eq!(started.status, 200, "{}", started.text());
    let url = |path: &str| format!("http://{}{path}", agent.http());
    let (status, seen) = user.curl(&[&url("/api/v1/sessions")]);
    assert_eq!(status, 200, "{seen}");
    assert!(seen.contains("{\"sessions\":[]}"), "{seen}");
    let (status, stop) = user.curl(&["-d", "{}", &url("/api/v1/sessions/stop")]);
    assert_eq!(status, 404, "{stop}");
    let (status, flush) = user.curl(&["-d", "{}", &url("/api/v1/agent/flush")]);
    assert_eq!(status, 403, "{flush}");
    // Files are written with the rights of the agent: only where the configuration permits it.
    let start = user.curl(&["-d", &body.to_string(), &url("/api/v1/sessions/start")]);
    assert_eq!(start.0, 403, "{}", start.1);
    // Nor does the agent use its own identity or watch processes of others for another user.
    for (key, value, message) in [
        ("to", json!("azblob://acct/cont"), "identity of the machine"),
        ("pid", json!(std::process::id()), "belongs to another user"),
    ] {
        let mut body = body.clone();
        body["to"] = json!(format!("file://{}", directory.display()));
        body[key] = value;
        let start = user.curl(&["-d", &body.to_string(), &url("/api/v1/sessions/start")]);
        assert_eq!(start.0, 400, "{}", start.1);
        assert!(start.1.contains(message), "{}", start.1);
    }
    // Its own session is its own, in the same slot.
    let records = format!("file://{}", directory.display());
    let body = json!({"workflow": "wf", "task": "own", "attempt": "1", "to": records});
    let start = user.curl(&["-d", &body.to_string(), &url("/api/v1/sessions/start")]);
    assert_eq!(start.0, 200, "{}", start.1);
    let all = request_get(&agent, "/api/v1/sessions");
    assert_eq!(all["sessions"].as_array().map(Vec::len), Some(2), "{all}");
    let (status, stop) = user.curl(&["-d", "{}", &url("/api/v1/sessions/stop")]);
    assert_eq!(status, 200, "{stop}");
    let all = request_get(&agent, "/api/v1/sessions");
    assert_eq!(all["sessions"][0]["state"], "recording", "{all}");
}

fn request_get(agent: &AgentProcess, path: &str) -> Value {
    agent.get(path).json()
}
