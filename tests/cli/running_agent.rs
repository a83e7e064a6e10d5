//! Commands that describe the agent that runs, whatever the caller's configuration is.

use std::fs;
use std::time::Duration;

use pegel_testkit::{AgentProcess, ChildProcess, TempDir, eventually};
use serde_json::Value;

use crate::PEGEL;

const BOUND: Duration = Duration::from_secs(30);

/// Returns a path as text.
fn text(path: &std::path::Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn start() -> AgentProcess {
    PEGEL
        .agent()
        .config("level: 2\nallow_users: [root]\nkeep: {disk: 1d}\n")
        .args(&["--rate", "1s"])
        .start()
}

#[test]
fn without_a_command_the_state_of_the_agent_is_shown() {
    let agent = start();
    let finished = agent.client(&[]);
    assert_eq!(finished.code(), Some(0), "{finished}");
    let url = format!("  page       http://{}\n", agent.http());
    assert!(finished.stdout.contains(&url), "{finished}");
    for shown in [
        "  state      healthy\n",
        "  store      ~/store, ",
        "every 1 s, ",
        "level 2 of 4",
        "pegel.yaml\n",
        "pegel top",
    ] {
        assert!(finished.stdout.contains(shown), "{shown}: {finished}");
    }
}

#[test]
fn a_port_alone_is_an_address_and_the_start_message_is_short_lines() {
    let agent = PEGEL.agent().listen(&["0", ":0"]).start();
    let addresses: Vec<String> = agent
        .endpoint
        .http
        .iter()
        .map(ToString::to_string)
        .collect();
    assert!(addresses.len() == 2 && addresses.iter().all(|a| a.starts_with("127.0.0.1:")));
    let said = eventually("the start message", || {
        let said = agent.stderr();
        if said.contains(" collectors ") {
            Ok(said)
        } else {
            Err(said)
        }
    });
    let first = format!("pegel: page and API: http://{}\n", addresses[0]);
    assert!(said.starts_with(&first), "{said}");
    for start in [
        "OpenTSDB for Grafana: ",
        "statsd: ",
        "socket: /",
        "store: ~/store (",
        "collectors at level 3",
    ] {
        assert!(said.contains(start), "{start}: {said}");
    }
    // A second agent needs more than other ports.
    let second = PEGEL.agent().dir(&agent.dir).args(&["--port-search"]);
    let second = second.try_start().expect_err("the store is in use");
    assert_eq!(second.code(), Some(1), "{second}");
    let advice = "start a second agent with its own --dir and --socket\n";
    assert!(second.stderr.ends_with(advice), "{second}");
    let second = PEGEL.agent().socket(&agent.socket).args(&["--port-search"]);
    let second = second.try_start().expect_err("the socket is in use");
    assert!(second.stderr.ends_with(advice), "{second}");
}

#[test]
fn without_an_agent_the_next_step_is_shown() {
    let home = TempDir::new();
    let socket = home.join("none.sock");
    let mut command = PEGEL.command(&home);
    command.env("PEGEL_SOCKET", &socket);
    let finished = ChildProcess::start(&mut command).wait(BOUND);
    assert_eq!(finished.code(), Some(3), "{finished}");
    assert!(
        finished.stdout.starts_with("No agent is running.\n"),
        "{finished}"
    );
    assert!(finished.stdout.contains("  pegel agent  "), "{finished}");
    let expected = format!("pegel: no agent is listening on {}\n", socket.display());
    assert_eq!(finished.stderr, expected);
}

#[test]
fn config_show_prints_the_configuration_of_the_running_agent() {
    let agent = start();
    let shown = agent.client(&["config", "show"]);
    assert_eq!(shown.code(), Some(0), "{shown}");
    let heading = format!("# the running agent, pid {}, file /", agent.pid());
    assert!(shown.stdout.starts_with(&heading), "{shown}");
    let line = |key: &str| {
        let mut lines = shown.stdout.lines();
        let line = lines.find(|line| line.trim_start().starts_with(key));
        let line = line.unwrap_or_else(|| panic!("no {key}: {shown}"));
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(line("rate:"), "rate: 1s # --rate");
    assert!(line("level:").starts_with("level: 2 # /"), "{shown}");
    assert!(line("disk:").starts_with("disk: 1d # /"), "{shown}");
    let dir = format!("dir: {} # --dir", agent.dir.display());
    assert_eq!(line("dir:").replace('"', ""), dir);
    // The caller's own configuration is another one.
    let new = agent.client(&["config", "show", "--new"]);
    assert!(new.stdout.contains("level: 3 "), "{new}");
    let with_flag = agent.client(&["config", "show", "--level", "1"]);
    assert!(with_flag.stdout.contains("# --level"), "{with_flag}");
}

fn finding(agent: &AgentProcess, group: &str, check: &str) -> Value {
    let finished = agent.client(&["doctor", "-f", "json"]);
    let findings: Value = serde_json::from_str(&finished.stdout).expect("JSON");
    let findings = findings.as_array().expect("an array");
    let found = findings
        .iter()
        .find(|finding| finding["group"] == group && finding["check"] == check);
    found.unwrap_or_else(|| panic!("{finished}")).clone()
}

#[test]
fn doctor_describes_the_file_and_the_ports_of_the_running_agent() {
    let agent = start();
    let configuration = finding(&agent, "agent", "configuration");
    assert_eq!(configuration["state"], "ok", "{configuration}");
    let says = configuration["says"].as_str().expect("a text");
    assert!(says.starts_with("the agent reads /"), "{says}");
    assert!(
        says.contains("pegel.yaml; set at its start: --dir, --listen, --rate"),
        "{says}"
    );
    let ports = finding(&agent, "network", "ports");
    let says = ports["says"].as_str().expect("a text");
    let port = agent.http().to_string();
    let port = port.rsplit(':').next().expect("a port");
    assert!(says.starts_with("in use by the agent: "), "{says}");
    assert!(says.contains(port), "{says}");
    // A change of the file is noticed, because the agent did not read it.
    let status = agent.status();
    let file = status["config_file"].as_str().expect("a path").to_owned();
    fs::write(&file, "level: 3\nallow_users: [root]\nkeep: {disk: 1d}\n").expect("written");
    let configuration = finding(&agent, "agent", "configuration");
    assert_eq!(configuration["state"], "better", "{configuration}");
    let says = configuration["says"].as_str().expect("a text");
    assert!(says.ends_with("; changed since: level"), "{says}");
}

#[test]
fn grafana_is_provisioned_for_the_running_agent() {
    let agent = start();
    let home = TempDir::new();
    let dir = home.join("new/provisioning");
    let args = [
        "grafana",
        "provision",
        "--dir",
        text(&dir),
        "--user",
        "root",
    ];
    let finished = agent.client(&args);
    assert_eq!(finished.code(), Some(0), "{finished}");
    let address = agent.http().to_string();
    let port = address.rsplit(':').next().expect("a port");
    let source = fs::read_to_string(dir.join("datasources/pegel.yaml")).expect("written");
    assert!(
        source.contains(&format!("http://localhost:{port}")),
        "{source}"
    );
    let reads = format!(
        "The data source reads the running agent (pid {}) at http://localhost:{port}.\n",
        agent.pid()
    );
    assert!(finished.stdout.contains(&reads), "{finished}");
    let allowed = "allow_users already permits root.\n";
    assert!(finished.stdout.contains(allowed), "{finished}");
}
