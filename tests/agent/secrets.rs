//! Tokens: they are reloaded from their file, and appear in no output.

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pegel_testkit::{
    ChildProcess, FinishedProcess, OtherUser, PLANTED_TOKEN, TempDir, assert_token_absent,
    eventually, get_with, need_hardware, send_raw, set_mode,
};
use rustix::process::Signal;

use crate::PEGEL;

const PATHS: [&str; 10] = [
    "/",
    "/metrics",
    "/status",
    "/healthz",
    "/api/v1/list",
    "/api/v1/values",
    "/api/v1/range?match=*{",
    "/api/v1/config",
    "/page/app.js",
    "/api/v1/nothing",
];

#[test]
fn valid_new_tokens_are_loaded_and_invalid_ones_refused() {
    let Some(other_user) = OtherUser::new() else {
        return;
    };
    let home = TempDir::new();
    let file = home.join("token");
    let write = |text: &str, mode: u32| {
        let new = home.join("token.new");
        fs::write(&new, text).expect("written");
        set_mode(&new, mode);
        fs::rename(&new, &file).expect("renamed");
    };
    write(&format!("{PLANTED_TOKEN}-1\n"), 0o600);
    let config = format!("token_file: {}\n", file.display());
    let agent = PEGEL
        .agent()
        .env("PEGEL_TOKEN", "")
        .config(&config)
        .args(&["--log", "info"])
        .start();
    let status = |suffix: &str| {
        let header = format!("Authorization: Bearer {PLANTED_TOKEN}{suffix}");
        other_user
            .curl(&["-H", &header, &format!("http://{}/status", agent.http())])
            .0
    };
    let takes = |suffix: &str| {
        eventually("the new token is taken", || match status(suffix) {
            200 => Ok(()),
            other => Err(other),
        });
    };
    assert_eq!((status("-1"), status("-2"), status("")), (200, 401, 401));

    write(&format!("{PLANTED_TOKEN}-2\n"), 0o600);
    agent.signal(Signal::HUP);
    takes("-2");
    assert_eq!(status("-1"), 401, "the old one is worth nothing");

    // Without a signal it takes up to ten seconds. An invalid file changes nothing.
    write(&format!("{PLANTED_TOKEN}-3\n"), 0o644);
    eventually(
        "the trouble is shown",
        || match agent.status()["http"]["guard"]["trouble"].as_str() {
            Some(text) if text.contains("has mode 0644") => Ok(()),
            other => Err(format!("{other:?}")),
        },
    );
    assert_eq!((status("-2"), status("-3")), (200, 401));
    assert!(
        agent
            .stderr()
            .contains("cannot reload the token; keeping the previous one")
    );
    set_mode(&file, 0o600);
    agent.signal(Signal::HUP);
    takes("-3");
    assert!(agent.status()["http"]["guard"]["trouble"].is_null());
    agent.assert_conserved();
}

#[test]
fn a_token_file_that_others_can_read_is_refused() {
    let home = TempDir::new();
    let file = home.join("token");
    let run = || {
        let config = format!("token_file: {}\n", file.display());
        let finished = PEGEL.agent().env("PEGEL_TOKEN", "").config(&config).run();
        assert_eq!(finished.code(), Some(1), "{finished}");
        assert!(
            finished.stderr.contains(file.to_str().expect("UTF-8")),
            "{finished}"
        );
        finished.stderr
    };
    assert!(run().contains("No such file"));
    fs::write(&file, PLANTED_TOKEN).expect("written");
    set_mode(&file, 0o644);
    assert!(run().contains("has mode 0644"));
    set_mode(&file, 0o600);
    for (text, problem) in [
        ("", "is empty"),
        ("planted-0b53e8f1c9d7 token", "has spaces"),
        ("planted-0b53e8f1c9d7\ntoken", "line breaks"),
    ] {
        fs::write(&file, text).expect("written");
        assert!(run().contains(problem));
    }
    let is_root = rustix::process::geteuid().is_root();
    if need_hardware(is_root, "root privilege to make another user's file").is_some() {
        chown(&file, Some(OtherUser::UID), None).expect("given away");
        assert!(run().contains("belongs to nobody (uid 65534)"));
    }
}

/// Every agent of a test has the planted token, and its output is searched for it. This test
/// searches responses, files and the output of commands.
#[test]
fn the_token_appears_in_no_output() {
    let home = TempDir::new();
    let file = home.join("token");
    fs::write(&file, format!("{PLANTED_TOKEN}\n")).expect("written");
    set_mode(&file, 0o600);
    let config = format!("token_file: {}\nnode: n1\n", file.display());
    for variable in ["", PLANTED_TOKEN] {
        let agent = PEGEL
            .agent()
            .env("PEGEL_TOKEN", variable)
            .config(&config)
            .args(&["--log", "trace"])
            .start();
        let header = format!("Bearer {PLANTED_TOKEN}");
        for headers in [&[][..], &[("Authorization", header.as_str())]] {
            for path in PATHS {
                for address in [agent.http(), &agent.unix()] {
                    // The caller searches the response.
                    get_with(address, path, headers).expect("an answer");
                }
            }
        }
        // A token in an unexpected place is not repeated in the message.
        for raw in [
            format!(
                "GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: {PLANTED_TOKEN}\r\nConnection: close\r\n\r\n"
            ),
            format!(
                "GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {PLANTED_TOKEN}x\r\nConnection: close\r\n\r\n"
            ),
            format!(
                "POST /status HTTP/1.1\r\nHost: localhost\r\nOrigin: null\r\nAuthorization: Bearer {PLANTED_TOKEN}\r\nConnection: close\r\n\r\n"
            ),
        ] {
            assert_token_absent("an answer", send_raw(agent.http(), &raw).as_bytes());
        }
        agent.signal(Signal::HUP);
        eventually("it has read its files again", || {
            if agent.stderr().contains("SIGHUP received") {
                Ok(())
            } else {
                Err(agent.stderr())
            }
        });
        agent.assert_conserved();
        let dir = agent.dir.clone();
        assert_token_absent("the agent's log", agent.output().as_bytes());
        search_files(&dir);
        assert_eq!(agent.stop().code(), Some(0));
    }
    // The output of the commands that show the configuration.
    let yaml = home.join("pegel.yaml");
    fs::write(&yaml, &config).expect("written");
    let yaml = yaml.to_str().expect("UTF-8");
    for args in [
        &["config", "show", "--config", yaml][..],
        &["config", "check", yaml],
        &["agent", "--config", yaml, "--listen", "nowhere"],
        &[
            "agent",
            "--config",
            yaml,
            "--dir",
            "/proc/nothing",
            "--log",
            "trace",
        ],
    ] {
        let finished = pegel(args);
        assert_token_absent("a command", finished.to_string().as_bytes());
    }
    let shown = pegel(&["config", "show", "--config", yaml]);
    assert!(shown.stdout.contains("token_file: "), "{shown}");
}

fn pegel(args: &[&str]) -> FinishedProcess {
    let home = TempDir::new();
    let mut command = PEGEL.command(&home);
    command.args(args).env("PEGEL_TOKEN", PLANTED_TOKEN);
    ChildProcess::start(&mut command).wait(Duration::from_secs(30))
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).expect("a directory");
    entries
        .flat_map(|entry| {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                files_below(&path)
            } else {
                vec![path]
            }
        })
        .collect()
}

/// Searches all files in the agent's directory.
fn search_files(dir: &Path) {
    let files = files_below(dir);
    assert!(
        files.len() > 2,
        "a log, a lock and where it listens: {files:?}"
    );
    for path in &files {
        // A file that was removed meanwhile is ignored.
        let text = fs::read(path).unwrap_or_default();
        assert_token_absent(&path.display().to_string(), &text);
    }
}
