//! The launchers of a job: the processes that started agents on the other nodes.

use std::collections::{BTreeSet, HashSet};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use parking_lot::Mutex;
use pegel_job::{JobFile, LaunchCommand, Launcher, LauncherKind, MpiFlavour};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group};

use super::events::{JobEvent, JobEvents};
use super::plan::JobPlan;
use crate::agent_client::AgentClient;
use crate::command_error::CommandError;
use crate::node_access;

/// The last part of a launcher's messages that is kept.
const TAIL_BYTES: usize = 4 << 10;
/// How long launchers may take to end after a signal.
const SIGNAL_TIME: Duration = Duration::from_secs(5);
/// How long launchers may take to end whose nodes never came up.
const MISSING_TIME: Duration = Duration::from_secs(2);
/// What any pipe holds at once.
const PIPE_BYTES: usize = 4 << 10;
/// The threads that wait for launchers need little.
const STACK_BYTES: usize = 128 << 10;

/// The end of what a process printed.
#[derive(Debug, Default)]
pub(super) struct OutputTail(Vec<u8>);

impl OutputTail {
    fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
        let excess = self.0.len().saturating_sub(TAIL_BYTES);
        self.0.drain(..excess);
    }

    /// Returns the text in one line that cannot control a terminal.
    pub(super) fn text(&self) -> String {
        let text = String::from_utf8_lossy(&self.0).into_owned();
        let lines: Vec<&str> = text
            .lines()
            .map(str::trim)
            .filter(|l| !l.is_empty())
            .collect();
        pegel_metric::escape_unprintable(&lines.join("; ")).into_owned()
    }

    /// Reads until the end of the stream, on a thread of its own.
    pub(super) fn read_in_background(
        stream: impl Read + Send + 'static,
    ) -> anyhow::Result<Arc<Mutex<OutputTail>>> {
        let tail = Arc::new(Mutex::new(OutputTail::default()));
        let shared = tail.clone();
        let reader = std::thread::Builder::new().stack_size(STACK_BYTES);
        reader.spawn(move || read_tail(stream, &shared))?;
        Ok(tail)
    }
}

fn read_tail(mut stream: impl Read, tail: &Mutex<OutputTail>) {
    let mut buffer = [0; 1024];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        tail.lock().push(&buffer[..count]);
    }
}

/// A process that started agents.
#[derive(Debug)]
struct AgentLauncher {
    program: String,
    nodes: Vec<String>,
    pid: Pid,
    errors: Arc<Mutex<OutputTail>>,
    /// Held open while the job runs; its end is the end of the agent.
    stdin: Option<std::process::ChildStdin>,
    /// Whether none of its nodes came up in time.
    was_missing: bool,
    end: Option<ExitStatus>,
}

#[derive(Debug, Default)]
pub(super) struct LaunchedAgents {
    processes: Vec<AgentLauncher>,
}

impl LaunchedAgents {
    /// Starts an agent on each of the other nodes.
    pub(super) fn start(
        &mut self,
        launcher: &Launcher,
        plan: &JobPlan,
        events: &JobEvents,
    ) -> anyhow::Result<()> {
        let flavour = match launcher.kind {
            LauncherKind::Mpirun => mpi_flavour(launcher)?,
            _ => MpiFlavour::Hydra,
        };
        let commands = launcher.commands(&plan.file.nodes, &plan.agent, flavour);
        if commands.iter().any(|command| !command.is_fed) {
            plan.write_job_file()?;
        }
        self.start_commands(commands, &plan.file, events)
    }

    /// Starts these processes.
    pub(super) fn start_commands(
        &mut self,
        commands: Vec<LaunchCommand>,
        job: &JobFile,
        events: &JobEvents,
    ) -> anyhow::Result<()> {
        let line = job.to_line();
        for command in commands {
            let index = self.processes.len();
            self.processes
                .push(start_launcher(&command, &line, index, events)?);
        }
        Ok(())
    }

    pub(super) fn on_end(&mut self, index: usize, status: ExitStatus) {
        if let Some(process) = self.processes.get_mut(index) {
            process.end = Some(status);
        }
    }

    pub(super) fn have_ended(&self) -> bool {
        !self.processes.is_empty() && self.processes.iter().all(|one| one.end.is_some())
    }

    /// Returns whether all launchers of these nodes have ended: none of the nodes can come up.
    pub(super) fn have_given_up(&self, nodes: &[&str]) -> bool {
        self.of_nodes(nodes).all(|one| one.end.is_some())
    }

    /// Takes note of the nodes that did not come up: their launchers are not waited for.
    pub(super) fn set_missing(&mut self, nodes: &[&str]) {
        let missing: HashSet<&str> = nodes.iter().copied().collect();
        for process in &mut self.processes {
            process.was_missing = process
                .nodes
                .iter()
                .all(|node| missing.contains(node.as_str()));
        }
    }

    /// Returns the launchers of any of these nodes.
    fn of_nodes(&self, nodes: &[&str]) -> impl Iterator<Item = &AgentLauncher> {
        let nodes: HashSet<&str> = nodes.iter().copied().collect();
        let is_of = move |one: &&AgentLauncher| {
            let mut own = one.nodes.iter();
            own.any(|node| nodes.contains(node.as_str()))
        };
        self.processes.iter().filter(is_of)
    }

    pub(super) fn have_failed(&self) -> bool {
        let mut processes = self.processes.iter();
        self.have_ended() && processes.any(|one| one.end.is_some_and(|end| !end.success()))
    }

    /// Describes why no node could be reached, in the words of the launcher.
    pub(super) fn failure_text(&self) -> String {
        let mut texts = BTreeSet::new();
        for process in &self.processes {
            texts.insert(process.describe());
        }
        let mut texts = texts.into_iter();
        let first = texts.next().unwrap_or_default();
        match texts.count() {
            0 => first,
            more => format!("{first}; and {more} more"),
        }
    }

    /// Describes the launchers of these nodes that ended.
    pub(super) fn failures_of(&self, nodes: &[&str]) -> Vec<String> {
        let failed = self.of_nodes(nodes).filter(|one| one.end.is_some());
        failed.map(AgentLauncher::describe).take(10).collect()
    }

    /// Describes a launcher that ended while the job runs.
    pub(super) fn loss_text(&self, index: usize, is_expected: bool) -> Option<String> {
        let process = self.processes.get(index).filter(|_| !is_expected)?;
        let nodes: Vec<&str> = process.nodes.iter().map(String::as_str).collect();
        let nodes = named(&nodes, 10);
        Some(format!(
            "the agents of {nodes} ended: {}",
            process.describe()
        ))
    }

    /// Waits for the agents, which end because the head is gone; then ends what is left.
    pub(super) fn stop(&mut self, bound: Duration, events: &JobEvents) {
        for process in &mut self.processes {
            drop(process.stdin.take());
        }
        let is_missing = |one: &AgentLauncher| one.was_missing;
        if self.processes.iter().any(is_missing) {
            self.wait(MISSING_TIME.min(bound), events, is_missing);
            self.signal(Signal::TERM, is_missing);
        }
        let any = |_: &AgentLauncher| true;
        self.wait(bound, events, any);
        for signal in [Signal::TERM, Signal::KILL] {
            self.signal(signal, any);
            self.wait(SIGNAL_TIME, events, any);
        }
    }

    fn signal(&self, signal: Signal, is_chosen: fn(&AgentLauncher) -> bool) {
        let running = self.processes.iter().filter(|one| one.end.is_none());
        for process in running.filter(|one| is_chosen(one)) {
            let _ = kill_process_group(process.pid, signal);
        }
    }

    /// Waits until the chosen launchers ended, or for `bound`. A signal ends the wait.
    fn wait(&mut self, bound: Duration, events: &JobEvents, is_chosen: fn(&AgentLauncher) -> bool) {
        let deadline = Instant::now() + bound;
        let is_running = |one: &AgentLauncher| is_chosen(one) && one.end.is_none();
        while self.processes.iter().any(is_running) {
            let left = deadline.saturating_duration_since(Instant::now());
            match events.next_new(left) {
                Some(JobEvent::LauncherEnded(index, status)) => self.on_end(index, status),
                Some(event) => {
                    // The command may still run: its end and its signals are for the caller.
                    let is_signal = matches!(event, JobEvent::Signal(_));
                    events.defer(event);
                    if is_signal {
                        return;
                    }
                }
                None => return,
            }
        }
    }
}

impl AgentLauncher {
    /// Returns the launcher's own message, or how it ended.
    fn describe(&self) -> String {
        let text = self.errors.lock().text();
        let program = &self.program;
        match (text.is_empty(), self.end) {
            (false, _) => format!("{program}: {text}"),
            (true, Some(end)) => format!("{program} ended with {end}"),
            (true, None) => format!("{program} is still running"),
        }
    }
}

fn start_launcher(
    launch: &LaunchCommand,
    job: &str,
    index: usize,
    events: &JobEvents,
) -> anyhow::Result<AgentLauncher> {
    let program = launch.argv.first().cloned().unwrap_or_default();
    let mut command = Command::new(&program);
    command.args(&launch.argv[1..]);
    command
        .stdin(if launch.is_fed {
            Stdio::piped()
        } else {
            Stdio::null()
        })
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0);
    let mut child = command.spawn().map_err(|error| {
        CommandError::usage(format!(
            "cannot start {program}: {error}; choose another launcher with --launcher"
        ))
    })?;
    let pid = Pid::from_child(&child);
    let stdin = child.stdin.take();
    if let Some(stdin) = &stdin {
        feed(stdin, job)?;
    }
    let stderr = child.stderr.take().context("no pipe from the launcher")?;
    let errors = Arc::new(Mutex::new(OutputTail::default()));
    let (tail, sender) = (errors.clone(), events.sender());
    let waiter = std::thread::Builder::new().stack_size(STACK_BYTES);
    waiter.spawn(move || {
        read_until_end(stderr, pid, &tail);
        if let Ok(status) = child.wait() {
            let _ = sender.send(JobEvent::LauncherEnded(index, status));
        }
    })?;
    Ok(AgentLauncher {
        program,
        nodes: launch.nodes.clone(),
        pid,
        errors,
        stdin,
        was_missing: false,
        end: None,
    })
}

/// Writes the job file to a launcher. A thread of its own writes what a pipe cannot hold: ssh reads
/// when it is connected, and other launchers do not wait for that.
fn feed(stdin: &std::process::ChildStdin, job: &str) -> anyhow::Result<()> {
    let mut pipe = File::from(stdin.as_fd().try_clone_to_owned()?);
    let is_short = job.len() <= PIPE_BYTES;
    let job = job.to_owned();
    // A launcher that has ended already reports why by itself.
    let mut write = move || drop(pipe.write_all(job.as_bytes()));
    if is_short {
        write();
        return Ok(());
    }
    // Detached: it ends when the launcher read everything or is gone.
    let writer = std::thread::Builder::new().stack_size(STACK_BYTES);
    writer.spawn(write)?;
    Ok(())
}

/// Reads the messages of a process until it ends. Others may hold its standard error open for
/// longer: ssh leaves a process for connections that are shared (`ControlPersist`).
fn read_until_end(mut stream: std::process::ChildStderr, pid: Pid, tail: &Mutex<OutputTail>) {
    let Ok(process) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) else {
        return read_tail(stream, tail);
    };
    let mut buffer = [0; 1024];
    loop {
        let mut ready = [
            PollFd::new(&stream, PollFlags::IN),
            PollFd::new(&process, PollFlags::IN),
        ];
        if !matches!(poll(&mut ready, None), Ok(_) | Err(Errno::INTR)) {
            return;
        }
        let [has_text, has_ended] = ready.map(|one| !one.revents().is_empty());
        if has_text {
            match stream.read(&mut buffer) {
                Ok(count @ 1..) => tail.lock().push(&buffer[..count]),
                _ => return,
            }
        } else if has_ended {
            return;
        }
    }
}

/// Recognises the implementation of `mpirun`.
fn mpi_flavour(launcher: &Launcher) -> anyhow::Result<MpiFlavour> {
    let program = launcher.program();
    let output = Command::new(program)
        .arg("--version")
        .output()
        .map_err(|error| {
            CommandError::usage(format!(
                "cannot start {program}: {error}; choose another launcher with --launcher"
            ))
        })?;
    let text = [output.stdout, output.stderr].concat();
    Ok(MpiFlavour::of_version(&String::from_utf8_lossy(&text)))
}

/// Returns which of these nodes are up.
pub(super) fn nodes_up(
    client: &AgentClient,
    all: &HashSet<String>,
) -> anyhow::Result<BTreeSet<String>> {
    let listing = node_access::list_nodes(client)?;
    let up = listing.nodes.into_iter().filter(|node| node.is_up());
    let known = up.filter(|node| all.contains(&node.node));
    Ok(known.map(|node| node.node).collect())
}

/// Returns how long to wait before the nodes are listed again: a long list takes the head time that
/// the nodes need to come up.
pub(super) fn listing_pause(last: Duration) -> Duration {
    (last * 4).max(Duration::from_millis(25))
}

/// Lists names, and how many more there are.
pub(super) fn named(names: &[&str], most: usize) -> String {
    let shown = names
        .iter()
        .take(most)
        .copied()
        .collect::<Vec<_>>()
        .join(", ");
    match names.len().saturating_sub(most) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_of_the_output_is_kept() {
        let mut tail = OutputTail::default();
        tail.push(&vec![b'x'; 3 * TAIL_BYTES]);
        tail.push(b"\nssh: no route\n\x1b[31mto host\n");
        assert!(tail.0.len() <= TAIL_BYTES);
        assert!(
            tail.text().ends_with("; ssh: no route; \\u{1b}[31mto host"),
            "{}",
            tail.text()
        );
        assert_eq!(named(&["a", "b", "c"], 2), "a, b and 1 more");
    }
}
