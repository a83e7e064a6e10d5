//! Tasks one after another and at the same time, and agents that are killed.

use super::TaskHome;
use crate::PEGEL;
use pegel_testkit::{AgentProcess, Rng, eventually};

#[test]
fn the_same_task_continues_and_another_one_takes_over() {
    let task = TaskHome::new();
    let agent = PEGEL.agent().args(&["--rate", "100ms"]).start();
    let started = task.start(&agent, "first", &[]);
    assert!(started.starts_with("recording: "), "{started}");
    let again = task.start(&agent, "first", &[]);
    assert!(again.starts_with("continuing: "), "{again}");
    let beside = task.start(&agent, "beside", &["--slot", "gpu"]);
    assert!(beside.starts_with("recording: "), "{beside}");
    task.start(&agent, "second", &["--wait"]);
    // The first record has ended cleanly; the one in the other slot goes on.
    eventually("the first record is stored", || {
        let status = task.status(Some(&agent.socket));
        let state = status["sessions"][0]["state"].clone();
        (state == "stored")
            .then_some(())
            .ok_or_else(|| status.to_string())
    });
    let first = task.record("first");
    first.check_whole();
    assert_eq!(
        first.end.as_ref().expect("an end")["end_reason"],
        "hand-over"
    );
    let status = task.status(Some(&agent.socket));
    let states: Vec<(&str, &str)> = { status["sessions"].as_array().into_iter().flatten() }
        .map(|one| {
            let text = |key: &str| one[key].as_str().unwrap_or_default();
            (text("task"), text("state"))
        })
        .collect();
    let expected = [
        ("first", "stored"),
        ("beside", "recording"),
        ("second", "recording"),
    ];
    assert_eq!(states, expected);
    task.stop(&agent, &[]);
    task.stop(&agent, &["--slot", "gpu"]);
    task.record("second").check_whole();
    task.record("beside").check_whole();
}

#[test]
fn sessions_continue_after_an_orderly_stop_and_end_where_the_agent_cannot_survive() {
    let task = TaskHome::new();
    let dir = task.home.join("store");
    let start = |args: &[&str]| PEGEL.agent().dir(&dir).args(args).start();
    let agent = start(&["--rate", "100ms"]);
    task.start(&agent, "long", &[]);
    agent.stop();
    let record = task.record("long");
    assert_eq!((record.end, record.problems.len()), (None, 0));
    // An agent in the cgroup of its task: SIGTERM is the end of the record.
    let agent = start(&["--rate", "100ms", "--supervised", "--end-records"]);
    eventually("the session continues", || {
        let status = task.status(Some(&agent.socket));
        let state = status["sessions"][0]["state"].clone();
        (state == "recording")
            .then_some(())
            .ok_or_else(|| status.to_string())
    });
    agent.stop();
    let record = task.record("long");
    record.check_whole();
    assert_eq!(
        record.end.as_ref().expect("an end")["end_reason"],
        "agent-stopped"
    );
}

#[test]
fn an_agent_that_is_killed_100_times_continues_the_record() {
    let task = TaskHome::new();
    let dir = task.home.join("store");
    let config = "session: {flush: 1s, names: [node_context_switches_total]}\nrate: 20ms\n";
    let start = || -> AgentProcess { PEGEL.agent().dir(&dir).config(config).start() };
    let mut rng = Rng::from_env();
    let mut agent = start();
    task.start(&agent, "killed", &[]);
    for _ in 0..100 {
        std::thread::sleep(std::time::Duration::from_millis(rng.below(120)));
        agent.kill();
        agent = start();
    }
    let stored: Vec<i64> = agent
        .samples("node_context_switches_total")
        .times()
        .collect();
    task.stop(&agent, &[]);
    let record = task.record("killed");
    record.check_whole();
    // Everything that the store has from the session is in the record.
    let recorded = record.times_of("node_context_switches_total");
    let begin = record.documents[0]["begin"].as_i64().expect("a time");
    let missing: Vec<i64> = { stored.into_iter() }
        .filter(|time| *time > begin && !recorded.contains(time))
        .collect();
    assert_eq!(missing, Vec::<i64>::new());
    assert!(recorded.len() > 100, "{}", recorded.len());
}
