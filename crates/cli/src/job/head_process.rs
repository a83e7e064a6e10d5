//! The head of a job: an agent on this machine, as a child process. Its standard input is held
//! open; when it ends, also because this process was killed, the head ends.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use parking_lot::Mutex;
use pegel_job::JobFile;
use serde_json::Value;

use super::events::{JobEvent, JobEvents};
use super::launched_agents::OutputTail;

/// How long the head may take to start.
const START_TIME: Duration = Duration::from_secs(30);
/// The longest line that the head prints.
const LINE_BYTES_MAX: u64 = 64 << 10;

#[derive(Debug)]
pub(super) struct HeadProcess {
    child: Child,
    stdin: Option<ChildStdin>,
    errors: Arc<Mutex<OutputTail>>,
    addresses: Value,
    status: Option<ExitStatus>,
}

impl HeadProcess {
    /// Starts the head and waits for its addresses.
    pub(super) fn start(job: &JobFile, events: &JobEvents) -> anyhow::Result<HeadProcess> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["job-agent", "--stdin", "--head"]);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // The keys of the terminal are for the command.
            .process_group(0);
        let mut child = command.spawn().context("cannot start the head")?;
        let mut stdin = child.stdin.take().context("no pipe to the head")?;
        let stdout = child.stdout.take().context("no pipe from the head")?;
        let stderr = child.stderr.take().context("no pipe from the head")?;
        let errors = OutputTail::read_in_background(stderr)?;
        let lines = read_lines(stdout, events)?;
        // If the head has ended already, its own message follows below.
        let _ = stdin.write_all(job.to_line().as_bytes());
        let mut head = HeadProcess {
            child,
            stdin: Some(stdin),
            errors,
            addresses: Value::Null,
            status: None,
        };
        match lines.recv_timeout(START_TIME) {
            Ok(line) => head.addresses = serde_json::from_str(&line).unwrap_or_default(),
            Err(_) => {
                head.stop(START_TIME);
                bail!("{}", head.failure());
            }
        }
        Ok(head)
    }

    /// Returns the address for children; empty if there are none.
    pub(super) fn children_address(&self) -> String {
        self.addresses["accept"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    pub(super) fn socket(&self) -> &Path {
        Path::new(self.addresses["socket"].as_str().unwrap_or_default())
    }

    /// Returns the address of the page on this machine.
    pub(super) fn page(&self) -> Option<&str> {
        self.addresses["http"][0].as_str()
    }

    /// Returns the ports for the ends of tunnels: the page, and Grafana's data source.
    pub(super) fn forwarded_ports(&self) -> Vec<u16> {
        let all = self.addresses["forwarded"].as_array().into_iter().flatten();
        let port = |address: &Value| address.as_str()?.rsplit(':').next()?.parse().ok();
        all.filter_map(port).collect()
    }

    /// Describes how the head failed, with its own message.
    pub(super) fn failure(&mut self) -> String {
        let deadline = Instant::now() + Duration::from_secs(1);
        // Its output ends a moment before the process does.
        let status = loop {
            let status = self.status.or_else(|| self.child.try_wait().ok().flatten());
            if status.is_some() || Instant::now() >= deadline {
                break status;
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        self.status = status;
        let text = self.errors.lock().text();
        match (text.is_empty(), status) {
            (false, _) => format!("the head failed: {text}"),
            (true, Some(status)) => format!("the head ended with {status}"),
            (true, None) => "the head does not respond".to_owned(),
        }
    }

    /// Ends the head in order: closes its input and waits. Kills it after `bound`.
    pub(super) fn stop(&mut self, bound: Duration) {
        if self.status.is_some() {
            return;
        }
        drop(self.stdin.take());
        let deadline = Instant::now() + bound;
        while Instant::now() < deadline {
            if let Ok(Some(status)) = self.child.try_wait() {
                self.status = Some(status);
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        self.status = self.child.wait().ok();
    }

    /// Returns whether a signal ended the head, which then left its files.
    pub(super) fn was_killed(&self) -> bool {
        self.status.is_some_and(|status| status.signal().is_some())
    }
}

/// Reads the lines of the head: its addresses, then `ending`. The first line goes to the returned
/// queue, the rest are events.
fn read_lines(
    stdout: impl Read + Send + 'static,
    events: &JobEvents,
) -> anyhow::Result<Receiver<String>> {
    let (first, receiver) = sync_channel(1);
    let events = events.sender();
    let reader = std::thread::Builder::new().name("head-output".to_owned());
    reader.spawn(move || {
        let mut stdout = BufReader::new(stdout.take(LINE_BYTES_MAX));
        let mut line = String::new();
        if stdout.read_line(&mut line).is_ok_and(|count| count > 0) {
            let _ = first.send(line);
        }
        drop(first);
        let mut line = String::new();
        while stdout.read_line(&mut line).is_ok_and(|count| count > 0) {
            if line.trim() == "ending" {
                let _ = events.send(JobEvent::HeadEnding);
            }
            line.clear();
        }
        let _ = events.send(JobEvent::HeadEnded);
    })?;
    Ok(receiver)
}

/// The path that tells where the token of the head is.
pub(super) fn token_path(job: &JobFile) -> PathBuf {
    job.dir.join("head/token")
}
