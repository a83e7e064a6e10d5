//! Agents that `pegel session start` starts in the background, and those that it replaces.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use pegel_testkit::{ChildProcess, eventually, isolate, need_hardware};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{BOUND, TaskHome, kill_cgroup, shell_line, task_cgroup};

/// A task whose agent runs in the background; its processes end with the value.
struct BackgroundTask {
    task: TaskHome,
    socket: PathBuf,
    config: PathBuf,
}

impl BackgroundTask {
    fn new(config: &str) -> BackgroundTask {
        let task = TaskHome::new();
        let path = task.home.join("pegel.yaml");
        let listen = "listen: [\"127.0.0.1:0\"]\nstatsd: {udp: [], tcp: []}\n";
        std::fs::write(&path, format!("{listen}{config}")).expect("written");
        BackgroundTask {
            socket: task.home.join("push.sock"),
            config: path,
            task,
        }
    }

    fn args<'a>(&'a self, task: &'a str, place: &'a str, dir: &'a str) -> Vec<&'a str> {
        let config = self.config.to_str().expect("UTF-8");
        vec![
            "start",
            "--workflow",
            "wf",
            "--task",
            task,
            "--to",
            place,
            "--config",
            config,
            "--dir",
            dir,
        ]
    }

    /// Runs `pegel session start`; returns what it printed to standard error.
    #[track_caller]
    fn start(&self, task: &str) -> String {
        let (place, dir) = (self.task.place(), self.task.home.join("state"));
        let args = self.args(task, &place, dir.to_str().expect("UTF-8"));
        let started = self.task.session(Some(&self.socket), &args);
        let log = std::fs::read_to_string(self.socket.with_extension("agent.log"));
        assert_eq!(started.code(), Some(0), "{started} {log:?}");
        started.stderr
    }

    fn supervisor(&self) -> Option<Value> {
        let text = std::fs::read(self.socket.with_extension("supervisor.json")).ok()?;
        serde_json::from_slice(&text).ok()
    }

    fn pid(&self, key: &str) -> Option<Pid> {
        let pid = self.supervisor()?[key].as_i64()?;
        Pid::from_raw(i32::try_from(pid).ok()?)
    }

    /// Kills the agent and waits until its supervisor has seen it.
    fn kill_agent(&self) {
        let pid = self.pid("agent_pid").expect("an agent");
        kill_process(pid, Signal::KILL).expect("killed");
        eventually("the supervisor notices", || {
            let state = self.supervisor();
            let is_other = self.pid("agent_pid") != Some(pid);
            is_other.then_some(()).ok_or_else(|| format!("{state:?}"))
        });
    }
}

impl Drop for BackgroundTask {
    fn drop(&mut self) {
        let (supervisor, agent) = (self.pid("pid"), self.pid("agent_pid"));
        for pid in [supervisor, agent].into_iter().flatten() {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

#[test]
fn an_agent_is_started_restarted_and_paused() {
    let background = BackgroundTask::new("session: {restart_pause: 60s}\nrate: 100ms\n");
    background.start("first");
    let status = background.task.status(Some(&background.socket));
    assert_eq!(status["sessions"][0]["state"], "recording", "{status}");
    // The second start finds the agent.
    let agent = background.pid("agent_pid").expect("an agent");
    background.start("second");
    assert_eq!(background.pid("agent_pid"), Some(agent));

    background.kill_agent();
    eventually("the agent is started again and records", || {
        let socket = Some(background.socket.as_path());
        let status = background.task.session(socket, &["status"]);
        let is_recording =
            status.stdout.contains("wf/second/1") && status.stdout.contains("recording");
        is_recording.then_some(()).ok_or_else(|| status.to_string())
    });
    background.kill_agent();
    let state = background.supervisor().expect("a state");
    assert_eq!(state["phase"], "paused", "{state}");
    assert_eq!(state["last_end"], "signal 9");
    let mut command = background.task.command(None, &["status"]);
    command.env("PEGEL_SOCKET", &background.socket);
    let status = ChildProcess::start(&mut command).wait(BOUND);
    assert_eq!(status.code(), Some(3), "{status}");
    assert!(
        status
            .stderr
            .contains("supervisor: paused; the agent is started again in"),
        "{status}"
    );
    let supervisor = background.pid("pid").expect("a supervisor");
    kill_process(supervisor, Signal::TERM).expect("ended");
    eventually("the supervisor ends", || {
        background
            .supervisor()
            .is_none()
            .then_some(())
            .ok_or("it runs")
    });
}

#[test]
fn a_stopped_agent_is_replaced_within_the_configured_time_and_both_records_are_valid() {
    let times = "same_task_timeout: 1s, other_task_timeout: 2s, quit_timeout: 2s";
    let background = BackgroundTask::new(&format!("session: {{{times}}}\nrate: 100ms\n"));
    background.start("first");
    let agent = background.pid("agent_pid").expect("an agent");
    kill_process(agent, Signal::STOP).expect("stopped");
    let began = Instant::now();
    let stderr = background.start("second");
    // Five seconds without a response, two for an orderly end, then signals, then a new agent.
    assert!(
        began.elapsed() < Duration::from_secs(40),
        "{:?}",
        began.elapsed()
    );
    assert!(
        stderr.contains("waiting up to 2 s for the agent, process "),
        "{stderr}"
    );
    assert!(stderr.contains("does not end; sending SIGINT"), "{stderr}");
    let stopped = background
        .task
        .session(Some(&background.socket), &["stop", "--wait"]);
    assert_eq!(stopped.code(), Some(0), "{stopped}");
    background.task.record("second").check_whole();
    eventually("the first record ended", || {
        let status = background.task.status(Some(&background.socket));
        let state = status["sessions"][0]["state"].clone();
        (state == "stored")
            .then_some(())
            .ok_or_else(|| status.to_string())
    });
    background.task.record("first").check_whole();
}

#[test]
fn an_agent_of_another_version_is_stopped_by_requests() {
    let background = BackgroundTask::new("rate: 100ms\n");
    let script = background.task.home.join("old_agent.py");
    std::fs::write(&script, OLD_AGENT).expect("written");
    let mut python = Command::new("python3");
    isolate(&mut python, &background.task.home);
    let mut old = ChildProcess::start(python.arg(&script).arg(&background.socket));
    eventually("the old agent listens", || {
        background.socket.exists().then_some(()).ok_or("no socket")
    });
    let stderr = background.start("task");
    assert!(
        stderr.contains("replacing the agent of version 0.0.9"),
        "{stderr}"
    );
    assert!(old.has_ended(), "it was asked to stop");
    let log = std::fs::read_to_string(background.task.home.join("asked")).expect("written");
    assert_eq!(log, "/api/v1/agent/flush /api/v1/agent/stop ");
}

/// An agent of an earlier version: the verbs `version`, `flush` and `stop`, which never change.
const OLD_AGENT: &str = r#"
import json, os, socketserver, sys
from http.server import BaseHTTPRequestHandler

class Handler(BaseHTTPRequestHandler):
    def reply(self, body):
        text = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
        self.wfile.flush()

    def address_string(self):
        return "local"

    def do_GET(self):
        self.reply({"version": "0.0.9", "supervised": True})

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        with open("asked", "a") as asked:
            asked.write(self.path + " ")
        self.reply({})
        if self.path.endswith("/stop"):
            os.unlink(sys.argv[1])
            os._exit(0)

socketserver.UnixStreamServer(sys.argv[1], Handler).serve_forever()
"#;

#[test]
fn an_agent_leaves_the_cgroup_of_the_task_and_survives_its_end() {
    let group = task_cgroup("escape");
    if need_hardware(group.is_some(), "permission to create a cgroup").is_none() {
        return;
    }
    let group = group.expect("a cgroup");
    let background = BackgroundTask::new("rate: 100ms\n");
    let (place, dir) = (background.task.place(), background.task.home.join("state"));
    let dir = dir.to_str().expect("UTF-8").to_owned();
    let args = background.args("task", &place, &dir);
    let pegel = background.task.command(Some(&background.socket), &args);
    let line = format!(
        "echo 0 > {}/cgroup.procs; {}",
        group.display(),
        shell_line(&pegel)
    );
    let mut shell = Command::new("sh");
    isolate(&mut shell, &background.task.home);
    let mut task = ChildProcess::start(shell.arg("-c").arg(format!("{line}; sleep 600")));
    eventually("the session is started", || {
        let state = background.supervisor();
        let is_running = background.socket.exists() && state.is_some();
        is_running.then_some(()).ok_or("no agent")
    });
    eventually("it records", || {
        let status = background
            .task
            .session(Some(&background.socket), &["status"]);
        status
            .stdout
            .contains("recording")
            .then_some(())
            .ok_or_else(|| status.to_string())
    });
    // The batch system ends the task.
    let in_group = std::fs::read_to_string(group.join("cgroup.procs")).expect("readable");
    assert!(
        in_group.lines().any(|line| line == task.pid().to_string()),
        "{in_group}"
    );
    kill_cgroup(&group);
    eventually("the task is gone", || {
        task.has_ended().then_some(()).ok_or("it runs")
    });
    eventually("the agent notices the end of the task", || {
        let status = background.task.status(Some(&background.socket));
        let end = &status["sessions"][0]["task_end"];
        end.is_i64().then_some(()).ok_or_else(|| status.to_string())
    });
    assert!(background.supervisor().expect("a state")["task_cgroup"].is_null());
    drop(background);
    eventually("the cgroup can be removed", || {
        std::fs::remove_dir(&group).map_err(|error| error.to_string())
    });
}

#[test]
fn nothing_of_the_task_is_kept_by_the_background_agent() {
    let background = BackgroundTask::new("rate: 100ms\n");
    let (place, dir) = (background.task.place(), background.task.home.join("state"));
    let dir = dir.to_str().expect("UTF-8").to_owned();
    let args = background.args("task", &place, &dir);
    let mut command = background.task.command(Some(&background.socket), &args);
    command.env("AZURE_STORAGE_SAS_TOKEN", "sv=1&sig=PLANTED-SECRET");
    command.env("MY_PASSWORD", "PLANTED-SECRET");
    let started = ChildProcess::start(&mut command).wait(BOUND);
    assert_eq!(started.code(), Some(0), "{started}");
    let agent = background
        .pid("agent_pid")
        .expect("an agent")
        .as_raw_nonzero();
    let read = |file: &str| std::fs::read(format!("/proc/{agent}/{file}")).expect("readable");
    let environment = String::from_utf8_lossy(&read("environ")).into_owned();
    assert!(!environment.contains("PLANTED"), "{environment}");
    let directory = std::fs::read_link(format!("/proc/{agent}/cwd")).expect("a directory");
    assert_eq!(directory, PathBuf::from("/"));
    // The secret is in no file: a place in a directory needs none.
    let mut grep = Command::new("grep");
    grep.args(["-rl", "PLANTED-SECRET"])
        .arg(background.task.home.path());
    let found = grep.output().expect("grep");
    assert_eq!(String::from_utf8_lossy(&found.stdout), "");
}
