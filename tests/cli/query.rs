//! `pegel query` with a real agent.

use std::time::Duration;

use pegel_testkit::{AgentProcess, ChildProcess, FinishedProcess, TempDir, eventually};
use serde_json::Value;

use crate::PEGEL;

const BOUND: Duration = Duration::from_secs(30);

fn query(agent: &AgentProcess, args: &[&str]) -> FinishedProcess {
    agent.client(&[&["query"], args].concat())
}

/// Starts an agent that has two samples of a counter of its own.
fn agent_with_samples() -> AgentProcess {
    let agent = PEGEL.agent().start();
    eventually("two samples of each processor", || {
        let found = query(
            &agent,
            &["count(count_over_time(node_cpu_seconds_total[1m]) > 1)"],
        );
        match found.code() {
            Some(0) => Ok(()),
            _ => Err(found.to_string()),
        }
    });
    agent
}

#[test]
fn values_are_shown_in_every_format() {
    let agent = agent_with_samples();
    let table = query(&agent, &["count by (mode) (node_cpu_seconds_total)"]);
    assert_eq!(table.code(), Some(0), "{table}");
    let lines: Vec<&str> = table.stdout.lines().collect();
    assert!(
        lines[0].starts_with("NAME") && lines[0].ends_with("VALUE"),
        "{table}"
    );
    let idle = lines
        .iter()
        .find(|line| line.starts_with("{mode=\"idle\"}"));
    let count = idle.and_then(|line| line.split_whitespace().last()?.parse().ok());
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    assert!(
        count.is_some_and(|count: usize| count >= processors),
        "{table}"
    );
    let scalar = query(&agent, &["1 + 1"]);
    assert_eq!((&*scalar.stdout, scalar.code()), ("2\n", Some(0)));
    let string = query(&agent, &["\"some text\""]);
    assert_eq!((&*string.stdout, string.code()), ("some text\n", Some(0)));
    let json = query(&agent, &["-f", "json", "vector(7)"]);
    let json: Value = serde_json::from_str(&json.stdout).expect("JSON");
    assert_eq!(
        (&json[0]["name"], &json[0]["value"]),
        (&"{}".into(), &7.0.into())
    );
}

#[test]
fn a_range_is_a_chart_or_samples() {
    let agent = agent_with_samples();
    let chart = query(&agent, &["--range", "20s", "--step", "1s", "vector(3)"]);
    assert_eq!(chart.code(), Some(0), "{chart}");
    assert!(chart.stdout.lines().count() > 10, "{chart}");
    assert!(chart.stdout.ends_with(" 3  {}\n"), "{chart}");
    let csv = query(
        &agent,
        &[
            "--range",
            "20s",
            "--step",
            "5s",
            "--time",
            "1000",
            "-f",
            "csv",
            "vector(3)",
        ],
    );
    assert_eq!(
        csv.stdout,
        "name,ts,value\n{},980,3\n{},985,3\n{},990,3\n{},995,3\n{},1000,3\n"
    );
}

#[test]
fn errors_have_a_message_and_an_exit_code() {
    let agent = PEGEL.agent().start();
    for (args, code, message) in [
        (&["sum("][..], 2, "parse error"),
        (&["no_such_metric"], 4, "the result is empty"),
        (
            &["--range", "ten", "1"],
            2,
            "--range ten: expected a duration",
        ),
        (
            &["--range", "10s", "--step", "0", "1"],
            2,
            "--step 0: expected a duration",
        ),
        (&["--time", "noon", "1"], 2, "--time noon: expected seconds"),
        (&["--step", "5s", "1"], 2, "--range"),
    ] {
        let finished = query(&agent, args);
        assert_eq!(finished.code(), Some(code), "{args:?}: {finished}");
        assert!(finished.stderr.contains(message), "{args:?}: {finished}");
    }
}

#[test]
fn watching_repeats_until_the_agent_ends() {
    let agent = PEGEL.agent().start();
    let mut command = PEGEL.command(&TempDir::new());
    agent.connect(&mut command);
    command.args(["query", "--watch=50ms", "-f", "txt", "vector(5)"]);
    let watching = ChildProcess::start(&mut command);
    eventually("three results", || {
        let lines = watching
            .stdout()
            .lines()
            .filter(|line| line.contains("{}"))
            .count();
        (lines >= 3).then_some(()).ok_or(lines)
    });
    agent.stop();
    assert_eq!(watching.wait(BOUND).code(), Some(3));
}
