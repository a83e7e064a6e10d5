//! Ends an agent that does not respond or has another version: waits, then sends SIGINT, SIGTERM
//! and SIGKILL. Each step is printed.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use pegel_session::SessionSettings;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::output;

/// The process that serves a socket, identified so that no other process can be mistaken for it.
#[derive(Debug)]
pub(crate) struct AgentProcessHandle {
    pid: Pid,
    pidfd: OwnedFd,
    executable: Option<PathBuf>,
}

impl AgentProcessHandle {
    /// Opens a process. The descriptor refers to it even if its PID is used again.
    pub(crate) fn open(pid: Pid) -> anyhow::Result<AgentProcessHandle> {
        let pidfd = pidfd_open(pid, PidfdFlags::empty());
        let pidfd = pidfd.with_context(|| format!("cannot watch the agent's process {pid}"))?;
        let executable = fs::read_link(format!("/proc/{}/exe", pid.as_raw_nonzero())).ok();
        Ok(AgentProcessHandle {
            pid,
            pidfd,
            executable,
        })
    }

    /// Waits for the end of the process. Returns whether it ended.
    fn wait(&self, time: Duration) -> bool {
        let deadline = Instant::now() + time;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(left.subsec_nanos()),
            };
            let mut descriptors = [PollFd::new(&self.pidfd, PollFlags::IN)];
            match poll(&mut descriptors, Some(&timeout)) {
                Ok(0) => return false,
                Ok(_) => return true,
                // EINTR: wait for the rest of the time.
                Err(_) if left.is_zero() => return false,
                Err(_) => {}
            }
        }
    }

    /// Whether the name of the process's program begins with `pegel`: other programs get no signal.
    fn is_agent(&self) -> bool {
        let name = self.executable.as_ref().and_then(|path| path.file_name());
        let name = name.map(|name| name.to_string_lossy().into_owned());
        // A program that was replaced by a new version is shown as deleted.
        name.is_some_and(|name| name.trim_end_matches(" (deleted)").starts_with("pegel"))
    }

    fn send(&self, signal: Signal) -> anyhow::Result<()> {
        match pidfd_send_signal(&self.pidfd, signal) {
            // ESRCH: the process has just ended.
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(error).with_context(|| {
                format!("cannot send a signal to the agent's process {}", self.pid)
            }),
        }
    }
}

/// Ends an agent: waits up to `timeout` for its end, then sends SIGINT, SIGTERM and SIGKILL.
pub(super) fn replace_agent(
    process: &AgentProcessHandle,
    timeout: Duration,
    settings: &SessionSettings,
) -> anyhow::Result<()> {
    let pid = process.pid.as_raw_nonzero();
    let report = |text: String| output::print_message(&format!("pegel: {text}"));
    report(format!(
        "waiting up to {} s for the agent, process {pid}, to end",
        timeout.as_secs()
    ));
    if process.wait(timeout) {
        return Ok(());
    }
    if !process.is_agent() {
        bail!(
            "process {pid} serves the agent's socket and does not respond, and its program is not \
             pegel; end it, or pass another socket with -u"
        );
    }
    let quit = settings.quit_timeout.duration();
    // A stopped process handles no signal but SIGKILL before SIGCONT.
    process.send(Signal::CONT)?;
    let steps = [
        ("SIGINT", Signal::INT),
        ("SIGTERM", Signal::TERM),
        ("SIGKILL", Signal::KILL),
    ];
    for (name, signal) in steps {
        report(format!("process {pid} does not end; sending {name}"));
        process.send(signal)?;
        if process.wait(quit) {
            return Ok(());
        }
    }
    bail!(
        "process {pid} does not end after SIGKILL: it is blocked in the kernel, for example by a \
         disk; restart the node, or pass another socket with -u"
    )
}
