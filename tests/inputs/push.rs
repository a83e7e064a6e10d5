//! `pegel push` and the text protocol of the agent's socket, with a real agent.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};

use pegel_testkit::{
    AgentProcess, FinishedProcess, OtherUser, TempDir, eventually, now_millis, set_mode,
};
use serde_json::Value;

use crate::PEGEL;

fn push(agent: &AgentProcess, args: &[&str]) -> FinishedProcess {
    agent.client(&[&["push"], args].concat())
}

#[track_caller]
fn pushed(agent: &AgentProcess, args: &[&str]) {
    let finished = push(agent, args);
    assert_eq!(finished.code(), Some(0), "{finished}");
    assert_eq!((&*finished.stdout, &*finished.stderr), ("", ""));
}

fn value(agent: &AgentProcess, series: &str) -> Option<f64> {
    let values = agent.get("/api/v1/values?match=*").json();
    let mut values = values.as_array().expect("a list").iter();
    let found = values.find(|value| value["name"] == series)?;
    found["value"].as_f64()
}

#[test]
fn pushed_values_are_readable_when_the_command_returns() {
    let agent = PEGEL.agent().start();
    pushed(&agent, &["queue.depth=42", "--tag", "q=main"]);
    assert_eq!(value(&agent, "queue.depth{q=\"main\"}"), Some(42.0));
    pushed(&agent, &["queue.depth=-7.5", "--tag", "q=main"]);
    assert_eq!(
        value(&agent, "queue.depth{q=\"main\"}"),
        Some(-7.5),
        "set, not moved"
    );
    for _ in 0..3 {
        pushed(&agent, &["-t", "counter", "jobs=2", "bytes=1.5"]);
    }
    assert_eq!(value(&agent, "jobs"), Some(6.0));
    assert_eq!(value(&agent, "bytes"), Some(4.5));
    pushed(&agent, &["-t", "timer", "took=12"]);
    assert_eq!(value(&agent, "took.count"), Some(1.0));
    assert_eq!(value(&agent, "took.sum"), Some(12.0));
    let time = now_millis() - 60_000;
    pushed(
        &agent,
        &[
            "loss=0.25",
            "--ts",
            &time.to_string(),
            "--tag",
            "a=b",
            "--tag",
            "c=d",
        ],
    );
    let range = agent.get("/api/v1/range?start=-1h&match=loss").json();
    assert_eq!(range[0]["points"], serde_json::json!([[time as u64, 0.25]]));
    assert_eq!(range[0]["labels"], serde_json::json!({"a": "b", "c": "d"}));
    pushed(&agent, &["--level", "3", "detail=1"]);
    assert_eq!(value(&agent, "detail"), Some(1.0));
    let senders = agent.status()["senders"].clone();
    let uid = rustix::process::geteuid().as_raw();
    let ours = senders.as_array().expect("senders").iter();
    let ours: Vec<&Value> = ours.filter(|sender| sender["input"] == "push").collect();
    assert_eq!(ours[0]["sender"], format!("uid {uid}"), "{senders}");
    agent.assert_conserved();
}

#[test]
fn pushes_in_quick_succession_do_not_run_ahead_of_the_clock() {
    let agent = PEGEL.agent().start();
    let mut stream = UnixStream::connect(&agent.socket).expect("connected");
    let mut replies = BufReader::new(stream.try_clone().expect("cloned"));
    let started = now_millis();
    for _ in 0..2_000 {
        stream.write_all(b"quick:1|c\n").expect("sent");
        let mut reply = String::new();
        replies.read_line(&mut reply).expect("a reply");
        assert_eq!(reply, "ok\n");
    }
    let ended = now_millis();
    let path = format!(
        "/api/v1/range?match=quick&start={started}&end={}",
        ended + 60_000
    );
    let range = agent.get(&path).json();
    let points = range[0]["points"].as_array().expect("points");
    let times: Vec<i64> = points
        .iter()
        .filter_map(|point| point[0].as_i64())
        .collect();
    let values: Vec<f64> = points
        .iter()
        .filter_map(|point| point[1].as_f64())
        .collect();
    assert!(values.is_sorted(), "{points:?}");
    // The waits for the next millisecond are bounded, for a clock that is set back.
    let ahead = times
        .last()
        .copied()
        .unwrap_or(i64::MAX)
        .saturating_sub(ended);
    assert!(ahead <= 10, "{ahead} ms ahead");
}

#[test]
fn errors_have_a_message_and_an_exit_code() {
    let agent = PEGEL.agent().start();
    for (args, code, message) in [
        (&["x"][..], 2, "\"x\": expected NAME=VALUE"),
        (&["x=one"], 2, "x=one: malformed value; expected a number"),
        (&["x=1e400"], 2, "value is not finite"),
        (&["=1"], 2, "empty name; expected NAME=VALUE"),
        (&["a b=1"], 2, "is not permitted in a name"),
        (&["x=1", "--tag", "q"], 2, "expected KEY=VALUE"),
        (&["-t", "counter", "x=-1"], 2, "a counter cannot decrease"),
        (&[], 2, "<NAME=VALUE>"),
        (
            &["x=1", "--level", "4"],
            1,
            "x=1: metric level 4 exceeds the agent's level 3",
        ),
        (
            &["x=1", "--ts", "1"],
            1,
            "x=1: the timestamp is older than the store's retention",
        ),
        (
            &["x=1", "--ts", "9999999999"],
            1,
            "more than ten minutes in the future",
        ),
        (
            &["x=1", "-u", "/nonexistent/push.sock"],
            3,
            "no agent is listening on /nonexistent/push.sock",
        ),
    ] {
        let finished = push(&agent, args);
        assert_eq!(finished.code(), Some(code), "{args:?}: {finished}");
        assert!(finished.stderr.contains(message), "{args:?}: {finished}");
    }
    let finished = push(&agent, &["good=1", "node_load1=2", "also=3"]);
    assert_eq!(finished.code(), Some(1), "{finished}");
    assert!(
        finished.stderr.contains("the agent rejected 1 of 3 values"),
        "{finished}"
    );
    assert_eq!(value(&agent, "good"), Some(1.0), "the others are stored");
    agent.assert_conserved();
}

#[test]
fn acknowledged_values_survive_sigkill() {
    let dir = TempDir::new();
    let start = || PEGEL.agent().dir(dir.join("store")).start();
    let mut total = 0.0;
    let mut points = Vec::new();
    for round in 0..5 {
        let agent = start();
        let acknowledged = AtomicU64::new(0);
        let stream = UnixStream::connect(&agent.socket).expect("connected");
        let mut writer = stream.try_clone().expect("cloned");
        let begun = now_millis() - 600_000;
        // One thread sends until the connection breaks, one counts acknowledgements, and the agent
        // is killed.
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for at in 0.. {
                    let line = format!("acked:1|c\nput acked.points{round} {} {at}\n", begun + at);
                    if writer.write_all(line.as_bytes()).is_err() {
                        return;
                    }
                }
            });
            scope.spawn(|| {
                for line in BufReader::new(&stream).lines() {
                    match line.as_deref() {
                        Ok("ok") => acknowledged.fetch_add(1, Ordering::Relaxed),
                        Ok(other) => panic!("{other}"),
                        Err(_) => return,
                    };
                }
            });
            eventually("some are acknowledged", || {
                match acknowledged.load(Ordering::Relaxed) {
                    count if count >= 50 => Ok(()),
                    count => Err(count),
                }
            });
            agent.kill();
        });
        let acknowledged = acknowledged.load(Ordering::Relaxed);
        let agent = start();
        // Counters continue from their last value with the next increment.
        pushed(&agent, &["-t", "counter", "acked=0"]);
        let counted = value(&agent, "acked").expect("a counter");
        assert!(
            counted >= total + acknowledged.div_ceil(2) as f64,
            "round {round}: {counted} of {total} + {acknowledged} / 2"
        );
        total = counted;
        let stored = agent.samples(&format!("acked.points{round}"));
        points.push((round, acknowledged / 2));
        assert!(
            stored.len() as u64 >= acknowledged / 2,
            "round {round}: {}",
            stored.len()
        );
        agent.assert_conserved();
        agent.kill();
    }
    let agent = start();
    for (round, acknowledged) in points {
        let stored = agent.samples(&format!("acked.points{round}"));
        assert!(stored.len() as u64 >= acknowledged, "round {round}");
    }
}

#[test]
fn other_users_are_not_permitted_to_push() {
    let Some(other_user) = OtherUser::new() else {
        return;
    };
    let agent = PEGEL.agent().start();
    // Denied by the socket's mode, and by the agent if that mode is widened.
    let finished = other_user.run(
        PEGEL.path(),
        &["push", "x=1", "-u", agent.socket.to_str().expect("UTF-8")],
    );
    assert_eq!(finished.code(), Some(1), "{finished}");
    set_mode(&agent.socket, 0o666);
    let mut parent = agent.socket.parent();
    while let Some(dir) =
        parent.filter(|dir| dir.starts_with(std::env::temp_dir()) && *dir != std::env::temp_dir())
    {
        set_mode(dir, 0o755);
        parent = dir.parent();
    }
    let said = other_user.run_as(|| {
        let mut stream = UnixStream::connect(&agent.socket).expect("connected");
        stream.write_all(b"x:1|c\n").expect("sent");
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text);
        text
    });
    assert_eq!(
        said,
        "error user nobody (uid 65534) is not permitted without a token\n"
    );
    assert_eq!(value(&agent, "x"), None);
    agent.assert_conserved();
}
