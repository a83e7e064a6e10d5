//! `pegel session`: records of tasks. Starts an agent if none runs, replaces one that does not
//! respond, and sends it the requests of docs/sessions.md.

mod cgroup_escape;
mod ensure_agent;
mod replace_agent;
mod start;
mod status;
mod supervise;

pub(crate) use replace_agent::AgentProcessHandle;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::bail;
use pegel_session::DEFAULT_SLOT;
use serde_json::{Value, json};

use crate::agent_client::AgentClient;
use crate::{output, storage_access};

/// How long `--wait` waits by default, in seconds.
const WAIT_DEFAULT: u64 = 60;
/// How often `--wait` requests the status.
const WAIT_INTERVAL: Duration = Duration::from_millis(100);

/// Record a task: what its node measured, kept in files or cloud storage
#[derive(Debug, clap::Args)]
pub(crate) struct SessionArgs {
    #[command(subcommand)]
    action: SessionAction,
}

#[derive(Debug, clap::Subcommand)]
enum SessionAction {
    Start(Box<start::StartArgs>),
    Status(status::StatusArgs),
    Stop(StopArgs),
    Credentials(CredentialsArgs),
    #[command(hide = true)]
    Supervise(supervise::SuperviseArgs),
}

/// The session that a command is about.
#[derive(Debug, clap::Args)]
struct SlotArgs {
    /// The slot of the session; each slot of a user records one task at a time
    #[arg(long, value_name = "NAME")]
    slot: Option<String>,
    /// The agent's socket [default: $PEGEL_SOCKET, the user's, the system's]
    #[arg(short = 'u', value_name = "SOCKET")]
    socket: Option<PathBuf>,
}

/// Whether a command waits until the record is stored.
#[derive(Debug, clap::Args)]
struct WaitArgs {
    /// Return when the record is stored, not only spooled on this node
    #[arg(long)]
    wait: bool,
    /// How long --wait waits, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = WAIT_DEFAULT, requires = "wait")]
    timeout: u64,
}

/// End the session of a slot: its record ends cleanly
#[derive(Debug, clap::Args)]
struct StopArgs {
    #[command(flatten)]
    session: SlotArgs,
    /// The exit status of the task; one other than 0 adds the state of the task to the record
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    exit_status: Option<i32>,
    #[command(flatten)]
    wait: WaitArgs,
    /// Also stop the agent, if `pegel session start` started it; what it has not stored yet is
    /// stored by the next one
    #[arg(long)]
    agent: bool,
}

/// Renew the credentials of a session from the environment, before they expire
#[derive(Debug, clap::Args)]
struct CredentialsArgs {
    #[command(flatten)]
    session: SlotArgs,
}

pub(crate) fn run(args: &SessionArgs) -> anyhow::Result<()> {
    match &args.action {
        SessionAction::Start(args) => start::run(args),
        SessionAction::Status(args) => status::run(args),
        SessionAction::Stop(args) => stop(args),
        SessionAction::Credentials(args) => renew_credentials(args),
        SessionAction::Supervise(args) => supervise::run(args),
    }
}

fn stop(args: &StopArgs) -> anyhow::Result<()> {
    let client = AgentClient::find(args.session.socket.as_deref(), &[])?;
    if !args.agent {
        return stop_session(&client, args);
    }
    let sessions = client.get("/api/v1/sessions", &[])?;
    let sessions = sessions["sessions"].as_array().into_iter().flatten();
    let slot = args.session.slot.as_deref().unwrap_or(DEFAULT_SLOT);
    let mut in_slot = sessions.filter(|session| text(session, "slot") == slot);
    if in_slot.any(|session| text(session, "state") == "recording") {
        stop_session(&client, args)?;
    }
    client.post("/api/v1/agent/stop", &json!({}))?;
    output::write(None, "the agent stops\n")
}

fn stop_session(client: &AgentClient, args: &StopArgs) -> anyhow::Result<()> {
    let body = json!({"slot": args.session.slot, "exit_status": args.exit_status});
    let answer = client.post("/api/v1/sessions/stop", &body)?;
    let to = text(&answer["session"], "to").to_owned();
    wait_until_stored(client, &args.wait, &to, |session| {
        session["state"] == "stored"
    })?;
    output::write(None, &format!("ended: {to}\n"))
}

fn renew_credentials(args: &CredentialsArgs) -> anyhow::Result<()> {
    let client = AgentClient::find(args.session.socket.as_deref(), &[])?;
    let credentials = storage_access::credentials()?;
    let body = json!({"slot": args.session.slot, "credentials": credentials});
    let answer = client.post("/api/v1/sessions/credentials", &body)?;
    for session in answer["sessions"].as_array().into_iter().flatten() {
        output::write(None, &format!("renewed: {}\n", text(session, "to")))?;
    }
    Ok(())
}

/// Waits, with `--wait`, until `is_done` for the session with this place.
fn wait_until_stored(
    client: &AgentClient,
    args: &WaitArgs,
    to: &str,
    is_done: impl Fn(&Value) -> bool,
) -> anyhow::Result<()> {
    if !args.wait {
        return Ok(());
    }
    let deadline = Instant::now() + Duration::from_secs(args.timeout);
    loop {
        let answer = client.get("/api/v1/sessions", &[])?;
        let mut sessions = answer["sessions"].as_array().into_iter().flatten();
        let session = sessions.find(|session| text(session, "to") == to);
        if session.is_some_and(&is_done) {
            return Ok(());
        }
        if Instant::now() >= deadline {
            let problem = session.map(|session| text(&session["upload"], "problem"));
            let problem = problem.filter(|problem| !problem.is_empty());
            bail!(
                "{to} is not stored after {} s: {}; the agent retries, see `pegel session status`",
                args.timeout,
                problem.unwrap_or("the storage has not confirmed it")
            );
        }
        std::thread::sleep(WAIT_INTERVAL);
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}
