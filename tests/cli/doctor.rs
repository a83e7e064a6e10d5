//! `pegel doctor` with and without an agent, as several users, and as text at several widths.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use pegel_testkit::{
    ChildProcess, FinishedProcess, OtherUser, PLANTED_TOKEN, SmallDisk, TempDir, eventually,
    fixture, isolate, need, set_mode,
};
use serde_json::Value;

use crate::PEGEL;

/// Runs the doctor in an environment of its own, isolated from agents running on this machine.
fn doctor(home: &TempDir, args: &[&str], envs: &[(&str, &Path)]) -> FinishedProcess {
    let mut command = PEGEL.command(home);
    command
        .arg("doctor")
        .args(args)
        .env("PEGEL_SOCKET", home.join("nobody.sock"))
        .envs(envs.iter().map(|(key, value)| (key, value)));
    ChildProcess::start(&mut command).wait(Duration::from_secs(60))
}

/// Parses the findings and checks their fields.
fn findings(finished: &FinishedProcess) -> Vec<Value> {
    let json: Value = serde_json::from_str(&finished.stdout)
        .unwrap_or_else(|error| panic!("not JSON: {error}: {finished}"));
    let findings = json.as_array().expect("an array").clone();
    for finding in &findings {
        let keys: Vec<&str> = finding
            .as_object()
            .expect("an object")
            .keys()
            .map(String::as_str)
            .collect();
        let mut expected = ["group", "check", "state", "says", "fix", "details"];
        expected.sort_unstable();
        assert_eq!(keys, expected, "{finding}");
        let state = finding["state"].as_str().expect("a text");
        assert!(["ok", "better", "broken"].contains(&state), "{finding}");
        assert_eq!(finding["fix"].is_null(), state == "ok", "{finding}");
        assert!(
            !finding["says"].as_str().expect("a text").is_empty(),
            "{finding}"
        );
    }
    let broken = findings.iter().any(|finding| finding["state"] == "broken");
    assert_eq!(finished.code(), Some(i32::from(broken)), "{finished}");
    findings
}

#[track_caller]
fn find<'a>(findings: &'a [Value], group: &str, check: &str) -> &'a Value {
    let mut found = findings
        .iter()
        .filter(|f| f["group"] == group && f["check"] == check);
    found
        .next()
        .unwrap_or_else(|| panic!("no {group}/{check} in {findings:#?}"))
}

#[test]
fn a_healthy_agent_is_ok() {
    let agent = PEGEL.agent().start();
    let finished = agent.client(&["doctor", "-f", "json"]);
    let findings = findings(&finished);
    for (group, check) in [
        ("agent", "running"),
        ("agent", "health"),
        ("agent", "configuration"),
        ("collectors", "active"),
        ("drops", "dropped"),
        ("limits", "series"),
        ("limits", "memory"),
        ("clock", "steps"),
    ] {
        let finding = find(&findings, group, check);
        assert_eq!(finding["state"], "ok", "{finding}");
    }
    let says = find(&findings, "agent", "running")["says"]
        .as_str()
        .expect("a text");
    assert!(says.contains(&format!("pid {}", agent.pid())), "{says}");
    let place = find(&findings, "store", "place")["says"]
        .as_str()
        .expect("a text");
    assert!(
        place.starts_with(agent.dir.to_str().expect("a path")),
        "{place}"
    );
    assert!(!finished.stdout.contains(PLANTED_TOKEN), "{finished}");
}

#[test]
fn a_full_disk_is_broken_and_the_fix_names_the_directory() {
    let Some(disk) = SmallDisk::mount("16m") else {
        return;
    };
    let dir = disk.path.join("store");
    let agent = PEGEL.agent().dir(&dir).args(&["--rate", "50ms"]).start();
    disk.fill();
    eventually("it is degraded", || {
        match agent.status()["degraded"].as_bool() {
            Some(true) => Ok(()),
            state => Err(state),
        }
    });
    let finished = agent.client(&["doctor", "-f", "json"]);
    let findings = findings(&finished);
    assert_eq!(finished.code(), Some(1), "{finished}");
    for (group, check) in [("agent", "health"), ("store", "room")] {
        assert_eq!(
            find(&findings, group, check)["state"],
            "broken",
            "{finished}"
        );
    }
    assert_eq!(
        find(&findings, "store", "place")["state"],
        "better",
        "it is a tmpfs"
    );
    let fix = find(&findings, "agent", "health")["fix"]
        .as_str()
        .expect("a text");
    assert!(fix.contains(dir.to_str().expect("a path")), "{fix}");
    let text = agent.client(&["doctor"]);
    assert_eq!(text.code(), Some(1), "{text}");
    assert!(text.stdout.contains("BROKEN health"), "{text}");
    assert!(text.stderr.contains("broken"), "{text}");
}

#[test]
fn without_an_agent_the_fix_is_to_start_one() {
    let home = TempDir::new();
    let findings = findings(&doctor(&home, &["-f", "json"], &[]));
    let running = find(&findings, "agent", "running");
    assert_eq!(
        (&running["state"], &running["fix"]),
        (&"better".into(), &"pegel agent".into())
    );
    assert!(
        find(&findings, "collectors", "active")["says"]
            .as_str()
            .expect("a text")
            .contains("for this user")
    );
    assert!(!findings.iter().any(|finding| finding["group"] == "drops"));
}

#[test]
fn a_fixture_tree_is_examined_by_its_files_only() {
    let home = TempDir::new();
    let root = fixture("basic");
    let release = fs::read_to_string(root.join("proc/sys/kernel/osrelease")).expect("there");
    let findings = findings(&doctor(&home, &["-f", "json"], &[("PEGEL_ROOT", &root)]));
    let says = find(&findings, "kernel", "version")["says"]
        .as_str()
        .expect("a text");
    assert!(says.contains(release.trim()), "{says}");
    // Ports and sock_diag would be those of this machine.
    assert!(
        !findings
            .iter()
            .any(|f| f["group"] == "network" || f["check"] == "sock_diag")
    );
}

#[test]
fn an_invalid_configuration_is_broken_and_located() {
    let home = TempDir::new();
    let file = home.join("pegel.yaml");
    fs::write(&file, "rate: 500ms\nlevl: 3\n").expect("written");
    let finished = doctor(&home, &["-f", "json"], &[("PEGEL_CONFIG", &file)]);
    let findings = findings(&finished);
    let finding = find(&findings, "agent", "configuration");
    assert_eq!(finding["state"], "broken");
    let says = finding["says"].as_str().expect("a text");
    assert!(
        says.contains("pegel.yaml:2:1") && says.contains("did you mean `level`"),
        "{says}"
    );
}

/// Copies the binary to a directory that other users can read.
fn shared_binary(home: &TempDir) -> PathBuf {
    set_mode(home, 0o755);
    let binary = home.join("pegel");
    PEGEL.copy_to(&binary);
    binary
}

#[test]
fn another_user_has_no_access_to_the_agent() {
    let Some(other_user) = OtherUser::new() else {
        return;
    };
    let agent = PEGEL.agent().start();
    let home = TempDir::new();
    let binary = shared_binary(&home);
    let socket = agent.socket.to_str().expect("a path");
    let finished = other_user.run(&binary, &["doctor", "-f", "json", "-u", socket]);
    let findings = findings(&finished);
    let running = find(&findings, "agent", "running");
    assert_eq!(running["state"], "better", "{running}");
    assert!(
        running["says"]
            .as_str()
            .expect("a text")
            .contains("ermission denied"),
        "{running}"
    );
    let bpf = find(&findings, "rights", "bpf");
    assert_eq!(bpf["state"], "better", "{bpf}");
}

/// Returns the output on a terminal of this width.
fn on_terminal(home: &TempDir, columns: usize, envs: &[(&str, &str)]) -> Option<String> {
    need("script")?;
    let line = format!("stty cols {columns} rows 24; exec {PEGEL} doctor");
    let mut command = Command::new("script");
    isolate(&mut command, home);
    command
        .args(["-qec", &line, "/dev/null"])
        .env("TERM", "xterm")
        .env("PEGEL_SOCKET", home.join("nobody.sock"))
        .envs(envs.iter().copied());
    let finished = ChildProcess::start(&mut command).wait(Duration::from_secs(60));
    assert!(finished.stdout.contains("could be better"), "{finished}");
    Some(finished.stdout.replace('\r', ""))
}

/// Removes colour sequences.
fn plain(text: &str) -> String {
    let mut pieces = text.split("\u{1b}[");
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(first, |out, piece| {
        out + piece.split_once('m').map_or("", |(_, rest)| rest)
    })
}

#[test]
fn lines_fit_the_terminal_and_only_terminals_get_colours() {
    let home = TempDir::new();
    for columns in [80, 120] {
        let Some(shown) = on_terminal(&home, columns, &[]) else {
            return;
        };
        assert!(shown.contains("\u{1b}[32mok    \u{1b}[0m"), "{shown}");
        for line in plain(&shown).lines() {
            // A longer word is alone on its line.
            let is_one_word = line.split_whitespace().count() == 1;
            assert!(
                line.chars().count() <= columns || is_one_word,
                "{columns}: {line}"
            );
        }
        let without = on_terminal(&home, columns, &[("NO_COLOR", "1")]).expect("as before");
        assert!(!without.contains('\u{1b}'), "{without}");
        let shape = |text: &str| {
            text.lines()
                .map(|line| line.trim_start().len() == line.len())
                .collect::<Vec<_>>()
        };
        assert_eq!(shape(&plain(&shown)), shape(&without), "{shown}\n{without}");
    }
    let piped = doctor(&home, &[], &[]);
    assert!(!piped.stdout.contains('\u{1b}'), "{piped}");
}
