//! Finds the agent that records tasks: one that runs, else a new one in the background. An agent
//! that does not respond, or one of another version that an earlier `pegel session start` started,
//! is replaced.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use pegel_agent::AgentSettings;
use pegel_session::{SessionIdentity, SessionSettings};
use serde_json::{Value, json};

use super::replace_agent::replace_agent;
use super::supervise::{SupervisorFile, SupervisorPhase};
use crate::agent::ConfigFlags;
use crate::agent_client::AgentClient;
use crate::command_error::{NO_AGENT, exit_code};
use crate::output;

/// How long an agent may take to respond.
const RESPONSE_TIME: Duration = Duration::from_secs(5);
/// How long requests to an agent that did not respond may take.
const SILENT_TIME: Duration = Duration::from_secs(1);
/// How long a request may take: a hand-over waits for the disk.
const REQUEST_TIME: Duration = Duration::from_secs(60);
/// How long a new agent may take to start.
const START_TIME: Duration = Duration::from_secs(20);
const START_POLL: Duration = Duration::from_millis(10);
/// An agent is started or replaced at most this often before the command fails.
const ATTEMPTS: usize = 4;

/// Variables of the task that an agent in the background inherits: it outlives the task. No others
/// are passed on, credentials in particular.
const INHERITED: [&str; 17] = [
    "AZ_BATCH_ACCOUNT_NAME",
    "AZ_BATCH_NODE_ID",
    "AZ_BATCH_NODE_ROOT_DIR",
    "AZ_BATCH_POOL_ID",
    "HOME",
    "LANG",
    "LOGNAME",
    "PATH",
    "PEGEL_CONFIG",
    "PEGEL_DISABLE",
    "PEGEL_IMDS_URL",
    "PEGEL_LANES",
    "PEGEL_ROOT",
    "PEGEL_SOCKET",
    "USER",
    "XDG_RUNTIME_DIR",
    "XDG_STATE_HOME",
];

/// The agent at the socket, if any.
enum FoundAgent {
    Usable(AgentClient),
    /// It responds, and has the version in the second field. This version replaces it.
    OtherVersion(AgentClient, String),
    Silent(AgentClient),
    None,
}

/// Returns a client of an agent that records tasks.
pub(super) fn ensure_agent(
    flags: &ConfigFlags,
    socket: Option<&Path>,
    identity: &SessionIdentity,
) -> anyhow::Result<AgentClient> {
    let loaded = flags.load()?;
    let settings = loaded.config.agent.session.clone();
    let plan = AgentSettings::new(&loaded, &|name| std::env::var_os(name));
    let own_socket = plan
        .serve
        .socket
        .clone()
        .context("the configuration disables the agent's socket; sessions require one")?;
    let dir = agent_dir(&plan.store.dir, &own_socket);
    for _ in 0..ATTEMPTS {
        match find_agent(socket)? {
            FoundAgent::Usable(client) => return Ok(client.with_timeout(REQUEST_TIME)),
            FoundAgent::OtherVersion(client, version) => {
                let message = format!("replacing the agent of version {version}");
                output::print_message(&format!("pegel: {message}"));
                let process = client.agent_process()?;
                request_stop(&client);
                let timeout = end_timeout(&settings, &dir, identity);
                replace_agent(&process, timeout, &settings)?;
            }
            FoundAgent::Silent(client) => {
                let process = client.agent_process()?;
                // An agent that is only busy acts on the requests later.
                request_stop(&client.with_timeout(SILENT_TIME));
                let timeout = end_timeout(&settings, &dir, identity);
                replace_agent(&process, timeout, &settings)?;
            }
            FoundAgent::None => {
                start_agent(flags, &own_socket, &dir, &settings)?;
                wait_for_agent(socket, &own_socket)?;
            }
        }
    }
    bail!(
        "no agent responds after {ATTEMPTS} attempts to start or replace one; see {}",
        own_socket.with_extension("agent.log").display()
    )
}

fn find_agent(socket: Option<&Path>) -> anyhow::Result<FoundAgent> {
    let client = match AgentClient::find_within(RESPONSE_TIME, socket, &[]) {
        Ok(client) => client,
        Err(error) if exit_code(&error).0 == NO_AGENT => return Ok(FoundAgent::None),
        Err(error) => return Err(error),
    };
    let Ok(response) = client.request("/api/v1/agent/version", &[]) else {
        return Ok(FoundAgent::Silent(client));
    };
    if response.status == 404 {
        bail!(
            "the running agent is older than this command and cannot record tasks; restart it with \
             this version"
        );
    }
    let answer: Value = client.read_json(response)?;
    let version = answer["version"].as_str().unwrap_or_default().to_owned();
    let is_replaced = answer["supervised"] == true && version != env!("CARGO_PKG_VERSION");
    Ok(match is_replaced {
        true => FoundAgent::OtherVersion(client, version),
        false => FoundAgent::Usable(client),
    })
}

/// Requests that an agent writes everything and ends, with the requests that every version has.
fn request_stop(client: &AgentClient) {
    for path in ["/api/v1/agent/flush", "/api/v1/agent/stop"] {
        if let Err(error) = client.post(path, &json!({})) {
            output::print_message(&format!("pegel: {path}: {error:#}"));
        }
    }
}

/// Returns how long to wait for the end of an agent before it gets signals: `same_task_timeout` if
/// it records this task, else `other_task_timeout`, which is longer by default.
fn end_timeout(settings: &SessionSettings, dir: &Path, identity: &SessionIdentity) -> Duration {
    match pegel_session::is_recorded_in(&dir.join("sessions"), identity) {
        true => settings.same_task_timeout.duration(),
        false => settings.other_task_timeout.duration(),
    }
}

/// Returns the directory of the agent. One that the batch system deletes with the task is replaced
/// by one beside the agent's socket, in a directory of this user.
fn agent_dir(default: &Path, socket: &Path) -> PathBuf {
    let task_dirs = ["AZ_BATCH_TASK_DIR", "AZ_BATCH_TASK_WORKING_DIR"];
    let task_dirs = task_dirs.iter().filter_map(std::env::var_os);
    let is_in_task = task_dirs
        .map(PathBuf::from)
        .any(|dir| dir.is_absolute() && default.starts_with(dir));
    let host = default.file_name().unwrap_or_default();
    match socket.parent() {
        Some(parent) if is_in_task => parent.join("state").join(host),
        _ => default.to_owned(),
    }
}

/// Starts a supervisor in the background, in a new session of the kernel (setsid).
fn start_agent(
    flags: &ConfigFlags,
    socket: &Path,
    dir: &Path,
    settings: &SessionSettings,
) -> anyhow::Result<()> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["session", "supervise", "--socket"])
        .arg(socket);
    let pause = settings.restart_pause.duration().as_secs_f64();
    command.args(["--pause", &pause.to_string()]);
    command
        .args(["--", "--port-search", "--socket"])
        .arg(socket);
    command.arg("--dir").arg(dir);
    command.args(flags.config_argument());
    command.current_dir("/").env_clear();
    let inherited = INHERITED
        .iter()
        .filter_map(|name| Some((name, std::env::var_os(name)?)));
    command.envs(inherited);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    // SAFETY: setsid and close_range are system calls that access no memory of this process and are
    // async-signal-safe; the new program uses no descriptor of the caller beyond 2.
    unsafe {
        command.pre_exec(|| {
            let _ = rustix::process::setsid();
            libc::close_range(
                3,
                libc::c_uint::MAX,
                libc::CLOSE_RANGE_CLOEXEC as libc::c_int,
            );
            Ok(())
        });
    }
    command.spawn().context("cannot start an agent")?;
    Ok(())
}

/// Waits until a new agent responds.
fn wait_for_agent(socket: Option<&Path>, own_socket: &Path) -> anyhow::Result<()> {
    let deadline = Instant::now() + START_TIME;
    loop {
        match find_agent(socket) {
            Ok(FoundAgent::None) | Err(_) if Instant::now() < deadline => {}
            Ok(FoundAgent::None) => break,
            found => return found.map(drop),
        }
        let state = SupervisorFile::read(own_socket);
        if let Some(state) = state.filter(|state| state.phase == SupervisorPhase::Paused) {
            bail!("the agent does not start; {}", state.describe());
        }
        std::thread::sleep(START_POLL);
    }
    let log = own_socket.with_extension("agent.log");
    bail!(
        "the agent did not start within {} s; see {}",
        START_TIME.as_secs(),
        log.display()
    )
}
