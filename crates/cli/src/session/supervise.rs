//! `pegel session supervise`: runs an agent and restarts it after a failure. `pegel session start`
//! starts the supervisor in the background; it outlives the task, its terminal and, where
//! permitted, its cgroup. Its state is in a file next to the agent's socket, which `pegel session
//! status` reads.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use parking_lot::{Condvar, Mutex};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use super::cgroup_escape::{CgroupPlace, leave_task_cgroup};
use crate::agent_client::candidate_sockets;

/// Two failures within this time cause a pause.
const FAILURE_WINDOW: Duration = Duration::from_secs(30);
/// The delay before an agent that failed once is started again.
const RESTART_DELAY: Duration = Duration::from_secs(1);
/// The log of an agent starts again when it exceeds this size.
const LOG_BYTES_MAX: u64 = 1 << 20;
/// The most bytes of a state file.
const STATE_BYTES_MAX: u64 = 64 << 10;

/// Run an agent and restart it after a failure
#[derive(Debug, clap::Args)]
pub(crate) struct SuperviseArgs {
    /// The agent's socket; the state is written to the same directory
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,
    /// How long to wait after two failures within 30 s, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 300.0)]
    pause: f64,
    /// Arguments of `pegel agent`
    #[arg(last = true)]
    agent_args: Vec<OsString>,
}

/// The activity of the supervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum SupervisorPhase {
    Running,
    Restarting,
    /// The agent failed twice within a short time.
    Paused,
}

/// The state file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SupervisorFile {
    pub(super) pid: u32,
    pub(super) agent_pid: Option<u32>,
    pub(super) phase: SupervisorPhase,
    pub(super) restarts: u64,
    /// How the agent ended last.
    pub(super) last_end: Option<String>,
    /// When the agent is started again, in milliseconds since 1970.
    pub(super) next_start: Option<i64>,
    /// The cgroup of the task that the agent could not leave.
    pub(super) task_cgroup: Option<String>,
    pub(super) log: PathBuf,
}

impl SupervisorFile {
    /// Returns the path of the state file for an agent with this socket.
    pub(super) fn path(socket: &Path) -> PathBuf {
        socket.with_extension("supervisor.json")
    }

    /// Reads the state of the supervisor of an agent with this socket; `None` if it does not run.
    pub(super) fn read(socket: &Path) -> Option<SupervisorFile> {
        let path = SupervisorFile::path(socket);
        if fs::metadata(&path).ok()?.len() > STATE_BYTES_MAX {
            return None;
        }
        let state: SupervisorFile = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
        state.is_alive().then_some(state)
    }

    /// Whether the supervisor runs. Its lock is not tried: a supervisor that starts at this moment
    /// would not get it.
    fn is_alive(&self) -> bool {
        let program = fs::read_link(format!("/proc/{}/exe", self.pid));
        let own = std::env::current_exe();
        let name = |path: &PathBuf| path.file_name().map(std::ffi::OsStr::to_owned);
        match (program, own) {
            (Ok(program), Ok(own)) => {
                let is_pegel =
                    name(&program).is_some_and(|name| name.to_string_lossy().starts_with("pegel"));
                is_pegel || name(&program) == name(&own)
            }
            _ => false,
        }
    }

    /// Reads the state of the supervisor for the sockets that clients try.
    pub(super) fn find(socket: Option<&Path>) -> Option<SupervisorFile> {
        let sockets = candidate_sockets(socket, &[]);
        sockets
            .iter()
            .find_map(|socket| SupervisorFile::read(socket))
    }

    pub(super) fn describe(&self) -> String {
        let mut text = match self.phase {
            SupervisorPhase::Running => "supervisor: the agent runs".to_owned(),
            SupervisorPhase::Restarting => "supervisor: the agent is being started".to_owned(),
            SupervisorPhase::Paused => {
                let next = self.next_start.unwrap_or_default();
                let left = (next - jiff::Timestamp::now().as_millisecond()).max(0) / 1000;
                format!("supervisor: paused; the agent is started again in {left} s")
            }
        };
        if let Some(end) = self.last_end.as_ref().filter(|_| self.restarts > 0) {
            let log = self.log.display();
            let times = match self.restarts {
                1 => "once".to_owned(),
                count => format!("{count} times"),
            };
            text.push_str(&format!(
                "; restarted {times}, the last agent ended with {end} (log: {log})"
            ));
        }
        if let Some(cgroup) = &self.task_cgroup {
            text.push_str(&format!("; it ends with the cgroup {cgroup}"));
        }
        text
    }
}

/// Locks the right to supervise the agent of a socket; `None` if another supervisor has it.
fn lock(socket: &Path) -> Option<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    let file = options
        .open(socket.with_extension("supervisor.lock"))
        .ok()?;
    file.try_lock().ok()?;
    Some(file)
}

/// The agent's process and whether to stop, shared by the supervisor and its signal thread.
#[derive(Debug, Default)]
struct SupervisedAgent {
    state: Mutex<(Option<Pid>, bool)>,
    stopped: Condvar,
}

impl SupervisedAgent {
    /// Ends the supervision and sends SIGTERM to the agent.
    fn stop(&self) {
        let mut state = self.state.lock();
        state.1 = true;
        if let Some(pid) = state.0 {
            // An error means that it has just ended.
            let _ = kill_process(pid, Signal::TERM);
        }
        self.stopped.notify_all();
    }

    fn is_stopping(&self) -> bool {
        self.state.lock().1
    }

    /// Waits; returns early when the supervision ends.
    fn pause(&self, time: Duration) {
        let deadline = Instant::now() + time;
        let mut state = self.state.lock();
        while !state.1 && !self.stopped.wait_until(&mut state, deadline).timed_out() {}
    }
}

pub(super) fn run(args: &SuperviseArgs) -> anyhow::Result<()> {
    std::env::set_current_dir("/").context("cannot leave the directory of the task")?;
    let dir = args
        .socket
        .parent()
        .context("the socket has no directory")?;
    if !dir.exists() {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    }
    // Other users must not be able to plant files or links beside the socket.
    let uid = rustix::process::geteuid().as_raw();
    if let Some(reason) = pegel_lane::private_directory::unusable_reason(dir, uid) {
        anyhow::bail!("{reason}");
    }
    let Some(_lock) = lock(&args.socket) else {
        // Another `pegel session start` was faster.
        return Ok(());
    };
    let agent = Arc::new(SupervisedAgent::default());
    let for_signal = agent.clone();
    pegel_agent::on_stop_signal(move || for_signal.stop())?;
    let task_cgroup = match leave_task_cgroup(Path::new("/sys/fs/cgroup")) {
        CgroupPlace::Outside => None,
        CgroupPlace::Inside(cgroup) => Some(cgroup),
    };
    let mut supervision = Supervision {
        args,
        agent,
        state: SupervisorFile {
            pid: std::process::id(),
            agent_pid: None,
            phase: SupervisorPhase::Restarting,
            restarts: 0,
            last_end: None,
            next_start: None,
            task_cgroup,
            log: args.socket.with_extension("agent.log"),
        },
    };
    supervision.run();
    let _ = fs::remove_file(SupervisorFile::path(&args.socket));
    Ok(())
}

struct Supervision<'a> {
    args: &'a SuperviseArgs,
    agent: Arc<SupervisedAgent>,
    state: SupervisorFile,
}

impl Supervision<'_> {
    /// Runs agents until one ends in order or the supervision ends.
    fn run(&mut self) {
        let mut last_failure: Option<Instant> = None;
        loop {
            let end = self.run_agent();
            if self.agent.is_stopping() || end.is_none() {
                return;
            }
            let is_repeated = last_failure.is_some_and(|at| at.elapsed() < FAILURE_WINDOW);
            last_failure = (!is_repeated).then(Instant::now);
            let pause = match is_repeated {
                true => Duration::try_from_secs_f64(self.args.pause).unwrap_or(FAILURE_WINDOW),
                false => RESTART_DELAY,
            };
            self.state.phase = match is_repeated {
                true => SupervisorPhase::Paused,
                false => SupervisorPhase::Restarting,
            };
            let pause_millis = i64::try_from(pause.as_millis()).unwrap_or(i64::MAX);
            let now = jiff::Timestamp::now().as_millisecond();
            self.state.next_start = Some(now.saturating_add(pause_millis));
            self.state.agent_pid = None;
            self.state.restarts += 1;
            self.state.last_end = end;
            self.write_state();
            self.agent.pause(pause);
            if self.agent.is_stopping() {
                return;
            }
        }
    }

    /// Runs one agent. Returns how it failed; `None` after an orderly stop.
    fn run_agent(&mut self) -> Option<String> {
        let mut child = match self.start_agent() {
            Ok(child) => child,
            Err(error) => return Some(format!("{error:#}")),
        };
        self.state.phase = SupervisorPhase::Running;
        self.state.agent_pid = Some(child.id());
        self.state.next_start = None;
        self.write_state();
        let status = child.wait();
        self.agent.state.lock().0 = None;
        match status {
            Ok(status) if status.success() => None,
            Ok(status) => Some(describe_end(status)),
            Err(error) => Some(error.to_string()),
        }
    }

    fn start_agent(&self) -> anyhow::Result<Child> {
        let log = open_log(&self.state.log)?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["agent", "--supervised"]);
        if self.state.task_cgroup.is_some() {
            command.arg("--end-records");
        }
        command.args(&self.args.agent_args);
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let mut state = self.agent.state.lock();
        if state.1 {
            anyhow::bail!("the supervisor is stopping");
        }
        let child = command.spawn().context("cannot start the agent")?;
        state.0 = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        Ok(child)
    }

    /// Writes the state. Best effort: it is informational, and the agent runs without it.
    fn write_state(&self) {
        let path = SupervisorFile::path(&self.args.socket);
        let temporary = path.with_extension("tmp");
        let written = serde_json::to_vec_pretty(&self.state)
            .map_err(std::io::Error::from)
            .and_then(|text| {
                let mut options = OpenOptions::new();
                options.write(true).create(true).truncate(true).mode(0o600);
                options.open(&temporary)?.write_all(&text)?;
                fs::rename(&temporary, &path)
            });
        drop(written);
    }
}

fn open_log(path: &Path) -> anyhow::Result<File> {
    let is_large = fs::metadata(path).is_ok_and(|found| found.len() > LOG_BYTES_MAX);
    let mut options = OpenOptions::new();
    options.create(true).mode(0o600);
    match is_large {
        true => options.write(true).truncate(true),
        false => options.append(true),
    };
    options
        .open(path)
        .with_context(|| format!("cannot write {}", path.display()))
}

fn describe_end(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("status {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "an unknown status".to_owned(),
    }
}
