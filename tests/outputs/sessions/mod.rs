//! Records of tasks: agents that record one task after another, are killed, stopped and replaced.
//! The records are read with the reader of records.

mod background;
mod endings;
mod hand_over;
mod recording;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use pegel_record::{BlockContent, RecordBlockKind, RecordEvent, RecordReader, RecordSamples};
use pegel_testkit::{AgentProcess, ChildProcess, FinishedProcess, TempDir, TestResponse, post};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::PEGEL;

const BOUND: Duration = Duration::from_secs(60);

/// A user's task: its directories, and the place of its records.
struct TaskHome {
    home: TempDir,
    records: PathBuf,
}

impl TaskHome {
    fn new() -> TaskHome {
        let home = TempDir::new();
        let records = home.join("records");
        TaskHome { home, records }
    }

    fn place(&self) -> String {
        format!("file://{}", self.records.display())
    }

    fn command(&self, socket: Option<&Path>, args: &[&str]) -> Command {
        let mut command = PEGEL.command(&self.home);
        command.arg("session").args(args);
        if let Some(socket) = socket {
            command.arg("-u").arg(socket);
        }
        command
    }

    /// Runs `pegel session` with the agent on this socket.
    fn session(&self, socket: Option<&Path>, args: &[&str]) -> FinishedProcess {
        ChildProcess::start(&mut self.command(socket, args)).wait(BOUND)
    }

    /// Starts a session of a task of workflow `wf`.
    #[track_caller]
    fn start(&self, agent: &AgentProcess, task: &str, more: &[&str]) -> String {
        let place = self.place();
        let mut args = vec!["start", "--workflow", "wf", "--task", task, "--to", &place];
        args.extend(more);
        let started = self.session(Some(&agent.socket), &args);
        assert_eq!(started.code(), Some(0), "{started}");
        started.stdout
    }

    #[track_caller]
    fn stop(&self, agent: &AgentProcess, more: &[&str]) {
        let mut args = vec!["stop", "--wait"];
        args.extend(more);
        let stopped = self.session(Some(&agent.socket), &args);
        assert_eq!(stopped.code(), Some(0), "{stopped}");
    }

    #[track_caller]
    fn status(&self, socket: Option<&Path>) -> Value {
        let status = self.session(socket, &["status", "-f", "json"]);
        assert_eq!(status.code(), Some(0), "{status}");
        serde_json::from_str(&status.stdout).expect("JSON")
    }

    fn record(&self, task: &str) -> ReadRecord {
        ReadRecord::read(&self.records.join("wf").join(task).join("1"))
    }
}

/// Sends a request to the agent as the user that runs the tests.
fn request(agent: &AgentProcess, path: &str, body: &str) -> TestResponse {
    post(&agent.unix(), path, &[], body.as_bytes()).expect("an answer")
}

/// Returns a command as a line for a shell.
fn shell_line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<String> = words.map(|word| format!("{word:?}")).collect();
    words.join(" ")
}

/// Creates a cgroup for a task, of version 2, else below a controller of version 1.
fn task_cgroup(name: &str) -> Option<PathBuf> {
    let name = format!("pegel-test-{}-{name}", std::process::id());
    let roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/memory"];
    let mut groups = roots.iter().map(|root| PathBuf::from(root).join(&name));
    groups.find(|group| {
        let is_group = fs::create_dir(group).is_ok() && group.join("cgroup.procs").exists();
        if !is_group {
            let _ = fs::remove_dir(group);
        }
        is_group
    })
}

/// Kills all processes of a cgroup, as a batch system does.
fn kill_cgroup(group: &Path) {
    if fs::write(group.join("cgroup.kill"), "1").is_ok() {
        return;
    }
    let processes = fs::read_to_string(group.join("cgroup.procs")).expect("readable");
    for pid in processes.lines().filter_map(|line| line.parse().ok()) {
        let _ = Pid::from_raw(pid).map(|pid| kill_process(pid, Signal::KILL));
    }
}

/// The content of a record, which must be whole.
#[derive(Debug, Default)]
struct ReadRecord {
    documents: Vec<Value>,
    autopsies: Vec<Value>,
    end: Option<Value>,
    samples: Vec<RecordSamples>,
    sequences: Vec<u64>,
    problems: Vec<String>,
    summary: Option<Value>,
}

impl ReadRecord {
    fn read(folder: &Path) -> ReadRecord {
        let mut parts: Vec<PathBuf> = { fs::read_dir(folder).into_iter().flatten() }
            .map(|entry| entry.expect("an entry").path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "pgl"))
            .collect();
        parts.sort_unstable();
        let bytes: Vec<u8> = { parts.iter() }
            .flat_map(|part| fs::read(part).expect("readable"))
            .collect();
        let summary = fs::read(folder.join("summary.json")).ok();
        let mut record = ReadRecord {
            summary: summary.map(|text| serde_json::from_slice(&text).expect("JSON")),
            ..ReadRecord::default()
        };
        for event in RecordReader::new(&bytes) {
            record.add(event);
        }
        record
    }

    fn add(&mut self, event: RecordEvent) {
        let RecordEvent::Block {
            header, content, ..
        } = event
        else {
            self.problems.push(format!("{event:?}"));
            return;
        };
        self.sequences.push(header.sequence);
        match content {
            BlockContent::Samples(samples) => self.samples.extend(samples),
            BlockContent::Undecodable => self.problems.push("undecodable".to_owned()),
            BlockContent::Text(text) => {
                let json: Value = serde_json::from_str(&text).expect("JSON");
                match header.kind {
                    RecordBlockKind::Document => self.documents.push(json),
                    RecordBlockKind::Autopsy => self.autopsies.push(json),
                    _ => self.end = Some(json),
                }
            }
        }
    }

    /// Checks that the record is whole: every block once and in order, no sample twice, the end.
    #[track_caller]
    fn check_whole(&self) {
        assert_eq!(self.problems, Vec::<String>::new());
        let expected: Vec<u64> = (0..self.sequences.len() as u64).collect();
        assert_eq!(self.sequences, expected);
        assert!(self.end.is_some(), "the record has an end");
        assert_eq!(self.end, self.summary);
        self.check_no_sample_twice();
    }

    #[track_caller]
    fn check_no_sample_twice(&self) {
        let mut last = std::collections::HashMap::new();
        for one in &self.samples {
            for time in one.times.iter() {
                let before = last.insert(one.series.clone(), *time);
                assert!(
                    before.is_none_or(|before| before < *time),
                    "{} has a sample at {time} after {before:?}",
                    one.series
                );
            }
        }
    }

    /// Returns the times of a series.
    fn times_of(&self, name: &str) -> Vec<i64> {
        let samples = self.samples.iter().filter(|one| &*one.series == name);
        samples.flat_map(|one| one.times.iter().copied()).collect()
    }
}
