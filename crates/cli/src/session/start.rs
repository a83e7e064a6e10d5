//! `pegel session start`.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use pegel_session::storage::{RecordPlace, StorageCredentials, StorageEndpoints};
use pegel_session::{CallerContext, RequestedNames, SessionIdentity};
use serde_json::json;

use super::{SlotArgs, WaitArgs, ensure_agent, text};
use crate::agent::ConfigFlags;
use crate::command_error::CommandError;
use crate::{output, storage_access};

/// The most bytes of `runner-task.json`.
const RUNNER_TASK_BYTES_MAX: u64 = 1 << 20;

/// Record the task of this process; ends the record of the previous task in the same slot
#[derive(Debug, clap::Args)]
pub(crate) struct StartArgs {
    /// Name of the task [default: from the workflow engine, the batch system or the cgroup]
    #[arg(long, value_name = "NAME")]
    task: Option<String>,
    /// Name of the workflow, the folder of its tasks
    #[arg(long, value_name = "NAME")]
    workflow: Option<String>,
    /// Number of the attempt
    #[arg(long, value_name = "N")]
    attempt: Option<String>,
    /// Place of the record: azblob://ACCOUNT/CONTAINER[/PREFIX], s3://BUCKET[/PREFIX],
    /// gs://BUCKET[/PREFIX] or file:///DIR [default: $PEGEL_SESSION_TO]
    #[arg(long, value_name = "PLACE")]
    to: Option<String>,
    /// URL of the storage, if it is not the provider's own [default: $PEGEL_STORAGE_ENDPOINT]
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
    /// File with the certificates of the authorities that --endpoint's certificate is checked with
    /// [default: $PEGEL_STORAGE_CA_FILE]
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// URL of the metadata service that issues tokens of managed identities
    #[arg(long, value_name = "URL")]
    metadata: Option<String>,
    /// First process of the task [default: the parent of this command]
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    #[command(flatten)]
    session: SlotArgs,
    #[command(flatten)]
    wait: WaitArgs,
    /// Configuration file of the agent, if this command starts one
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Directory of the agent, if this command starts one
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(super) fn run(args: &StartArgs) -> anyhow::Result<()> {
    let place = place(args)?;
    let identity = identity(args)?;
    let credentials = storage_access::credentials()?.for_place(&place);
    let pid = args.pid.or_else(parent_pid);
    let socket = args.session.socket.clone();
    let flags = ConfigFlags::for_session(args.config.clone(), args.dir.clone(), socket);
    let agent = ensure_agent::ensure_agent(&flags, args.session.socket.as_deref(), &identity)?;
    let body = json!({
        "workflow": identity.workflow,
        "task": identity.task,
        "attempt": identity.attempt,
        "slot": args.session.slot,
        "to": place,
        "endpoints": endpoints(args),
        // Without credentials in the environment, those of a session that continues stay.
        "credentials": (credentials != StorageCredentials::default()).then_some(credentials),
        "pid": pid,
    });
    let answer = agent.post("/api/v1/sessions/start", &body)?;
    let to = text(&answer["session"], "to").to_owned();
    super::wait_until_stored(&agent, &args.wait, &to, |session| {
        let upload = &session["upload"];
        upload["position"]["sequence"].as_u64() > Some(0) && upload["waiting_blocks"] == 0
    })?;
    let word = match answer["new"].as_bool() {
        Some(true) => "recording",
        _ => "continuing",
    };
    output::write(None, &format!("{word}: {to}\n"))
}

fn endpoints(args: &StartArgs) -> StorageEndpoints {
    let environment = storage_access::endpoints();
    let ca_file = args.ca_file.clone().or(environment.ca_file);
    StorageEndpoints {
        endpoint: args.endpoint.clone().or(environment.endpoint),
        metadata: args.metadata.clone(),
        // The agent has another working directory.
        ca_file: ca_file.map(|path| std::path::absolute(&path).unwrap_or(path)),
    }
}

fn place(args: &StartArgs) -> anyhow::Result<RecordPlace> {
    let variable = || std::env::var("PEGEL_SESSION_TO").ok();
    let given = args.to.clone().or_else(variable);
    let given = given.filter(|place| !place.is_empty()).ok_or_else(|| {
        CommandError::usage(
            "the place of the record is missing; pass it with --to, or set $PEGEL_SESSION_TO",
        )
    })?;
    let place = given.parse::<RecordPlace>();
    place.map_err(|error| CommandError::usage(format!("--to: {error}")))
}

fn identity(args: &StartArgs) -> anyhow::Result<SessionIdentity> {
    let working_dir = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    let runner_task = working_dir.join("runner-task.json");
    let is_small = |path: &PathBuf| {
        fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() < RUNNER_TASK_BYTES_MAX)
    };
    let runner_task = Some(runner_task).filter(is_small);
    let runner_task = runner_task.and_then(|path| fs::read_to_string(path).ok());
    let cgroup = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let requested = RequestedNames {
        workflow: args.workflow.clone(),
        task: args.task.clone(),
        attempt: args.attempt.clone(),
    };
    let caller = CallerContext {
        environment: &|name| std::env::var(name).ok(),
        working_dir: &working_dir,
        cgroup: &cgroup,
        runner_task: runner_task.as_deref(),
    };
    SessionIdentity::resolve(&requested, &caller).ok_or_else(|| {
        CommandError::usage(
            "nothing names this task: no workflow engine, batch system or cgroup of one was found; \
             pass --task",
        )
    })
}

/// Returns the process that runs this command: usually the start script of the task.
fn parent_pid() -> Option<u32> {
    let parent = rustix::process::getppid()?;
    u32::try_from(parent.as_raw_nonzero().get())
        .context("negative pid")
        .ok()
}
