//! Destinations of log messages: the agent runs even if they are not available.

use std::fs;

use pegel_testkit::{AgentProcess, TempDir, assert_token_absent, eventually};
use rustix::process::Signal;

use crate::PEGEL;

/// The agent's message at level info after a SIGHUP.
const HANGUP: &str = "SIGHUP received; reloading files";

fn lost(agent: &AgentProcess) -> u64 {
    let status = agent.status();
    status["log"]["lost"]
        .as_u64()
        .unwrap_or_else(|| panic!("no log in {status}"))
}

/// Makes the agent log messages until `is_done` returns true.
fn log_until(agent: &AgentProcess, is_done: impl Fn() -> bool) {
    eventually("a message", || {
        agent.signal(Signal::HUP);
        if is_done() {
            Ok(())
        } else {
            Err(agent.output())
        }
    });
}

#[test]
fn a_level_alone_logs_to_standard_error() {
    for (log, is_said) in [("info", true), ("stderr:info", true), ("warn", false)] {
        let agent = PEGEL.agent().args(&["--log", log]).start();
        assert_eq!(agent.status()["log"]["place"], "stderr");
        if is_said {
            log_until(&agent, || agent.stderr().contains(HANGUP));
        } else {
            agent.signal(Signal::HUP);
            let finished = agent.stop();
            assert!(!finished.stderr.contains(HANGUP), "{finished}");
        }
    }
}

#[test]
fn a_rotated_file_is_reopened() {
    let home = TempDir::new();
    let (path, old) = (home.join("pegel.log"), home.join("pegel.log.1"));
    let log = format!("{}:info", path.display());
    let agent = PEGEL.agent().args(&["--log", &log]).start();
    assert_eq!(
        agent.status()["log"]["place"],
        path.to_str().expect("a path")
    );
    let has = |path: &std::path::Path| {
        fs::read_to_string(path)
            .unwrap_or_default()
            .contains(HANGUP)
    };
    log_until(&agent, || has(&path));
    fs::rename(&path, &old).expect("rotated");
    log_until(&agent, || has(&path));
    assert_eq!(lost(&agent), 0);
    let finished = agent.stop();
    let all = fs::read_to_string(&path).expect("there");
    assert!(all.contains("stopped"), "{all}");
    assert!(!finished.stderr.contains(HANGUP), "{finished}");
    assert_token_absent("the log", all.as_bytes());
}

#[test]
fn a_missing_directory_is_reported_counted_and_used_once_it_exists() {
    let home = TempDir::new();
    let dir = home.join("later");
    let path = dir.join("pegel.log");
    let log = format!("{}:info", path.display());
    let agent = PEGEL.agent().args(&["--log", &log]).start();
    assert!(
        agent.stderr().contains("cannot log to"),
        "{}",
        agent.output()
    );
    log_until(&agent, || lost(&agent) >= 2);
    let metrics = agent.get("/metrics");
    let text = metrics.text();
    assert!(text.contains("pegel_log_lost_total "), "{text}");
    let doctor = agent.client(&["doctor"]);
    assert!(
        doctor.stdout.contains("could not be written to"),
        "{doctor}"
    );
    fs::create_dir(&dir).expect("made");
    log_until(&agent, || path.exists());
    assert_eq!(agent.stop().code(), Some(0));
    assert!(
        fs::read_to_string(&path)
            .expect("there")
            .contains("stopped")
    );
}

/// Works on machines with and without a journal or a syslog.
#[test]
fn an_agent_runs_with_and_without_the_daemons() {
    for place in ["journal", "syslog"] {
        let agent = PEGEL
            .agent()
            .args(&["--log", &format!("{place}:error")])
            .start();
        assert_eq!(agent.status()["log"]["place"], place);
        assert_eq!(agent.stop().code(), Some(0));
    }
}

#[test]
fn a_stream_that_is_not_standard_error_is_not_the_journal() {
    let agent = PEGEL.agent().env("JOURNAL_STREAM", "1:1").start();
    assert_eq!(agent.status()["log"]["place"], "stderr");
}
