//! `pegel view`: serves the samples that `pegel job --out` collected, or those of database files of
//! Dragon's telemetry. Every node gets an agent on this machine that serves a copy of its samples
//! and takes none; they form a tree as in the job, so that page and APIs are the same.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use jiff::Timestamp;
use pegel_job::{JobFile, LaunchCommand, SecretText};

use super::events::{JobEvent, JobEvents};
use super::head_process::HeadProcess;
use super::launched_agents::{self, LaunchedAgents};
use super::node_directory::job_directory;
use super::{END_TIME, NAMED_MAX, credentials};
use crate::agent_client::AgentClient;
use crate::command_error::CommandError;
use crate::output;

/// The agent above those of the nodes.
const HEAD: &str = "pegel-view";
/// How long the agents may take to copy and open their stores.
const START_TIME: Duration = Duration::from_secs(120);
/// The most nodes: each has a process.
const NODES_MAX: usize = 256;

/// Show the samples that `pegel job --out` collected: page, PromQL and all other APIs
///
/// Works on a copy, and changes nothing in DIR. Runs until Ctrl-C.
#[derive(Debug, clap::Args)]
pub(crate) struct ViewArgs {
    /// Directory of `pegel job --out`, or that of one node in it; or a directory of ts_NODE.db
    /// files of Dragon's telemetry, or one such file
    #[arg(value_name = "DIR")]
    source: PathBuf,
    /// Directory for the copies [default: /tmp]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(crate) fn run(args: &ViewArgs) -> anyhow::Result<()> {
    let mut file = describe(args)?;
    let events = JobEvents::start()?;
    let mut head = HeadProcess::start(&file, &events)?;
    file.head_address = head.children_address();
    let mut agents = LaunchedAgents::default();
    let commands = commands(&file.nodes)?;
    let started = agents.start_commands(commands, &file, &events);
    let served = started.and_then(|()| serve(&file, &head, &mut agents, &events));
    head.stop(END_TIME);
    agents.stop(END_TIME, &events);
    served
}

/// Describes the tree: one agent for each store.
fn describe(args: &ViewArgs) -> anyhow::Result<JobFile> {
    let ViewSource {
        dir: source,
        nodes,
        databases,
    } = find_samples(&args.source)?;
    let id = credentials::random_digits(6)?;
    let issued = credentials::issue_certificate(HEAD)?;
    let base = args.dir.clone().unwrap_or_else(|| PathBuf::from("/tmp"));
    Ok(JobFile {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        dir: job_directory(&std::path::absolute(base)?, &id),
        lanes: job_directory(Path::new("/dev/shm"), &id),
        head: HEAD.to_owned(),
        fan_out: NODES_MAX,
        head_address: "127.0.0.1:0".to_owned(),
        certificate: issued.certificate,
        key: SecretText(issued.key),
        fingerprint: issued.fingerprint,
        token: SecretText(credentials::random_digits(32)?),
        settings: vec![
            ("level".to_owned(), "4".to_owned()),
            ("log".to_owned(), "stderr:warn".to_owned()),
        ],
        lost_after: END_TIME.as_secs_f64(),
        view: Some(source),
        databases,
        nodes,
        id,
        ..JobFile::default()
    })
}

/// The samples to serve.
pub(crate) struct ViewSource {
    pub dir: PathBuf,
    pub nodes: Vec<String>,
    /// One for each node; empty if they are stores.
    pub databases: Vec<PathBuf>,
}

/// Finds the stores of nodes in a directory or, if there are none, the database files.
pub(crate) fn find_samples(given: &Path) -> anyhow::Result<ViewSource> {
    let usage = |problem: String| CommandError::usage(format!("{}: {problem}", given.display()));
    let given_absolute = fs::canonicalize(given).map_err(|error| usage(error.to_string()))?;
    let is_store = |dir: &Path| dir.join("format").is_file() && dir.join("log").is_dir();
    let name = |path: &Path| {
        path.file_name()
            .map(|name| name.to_string_lossy().into_owned())
    };
    let is_one = given_absolute.is_file() || is_store(&given_absolute);
    let (dir, found) = match given_absolute.parent().filter(|_| is_one) {
        Some(parent) => (parent.to_owned(), vec![given_absolute.clone()]),
        None => {
            let entries =
                fs::read_dir(&given_absolute).map_err(|error| usage(error.to_string()))?;
            let paths = entries.flatten().map(|entry| entry.path());
            (given_absolute.clone(), paths.collect())
        }
    };
    let stores = found.iter().filter(|path| is_store(path));
    let mut nodes: Vec<String> = stores.filter_map(|path| name(path)).collect();
    nodes.retain(|name| !name.starts_with('.'));
    nodes.sort();
    let mut databases = Vec::new();
    if nodes.is_empty() {
        let files = found.iter().filter(|path| path.is_file());
        let named = files.filter_map(|path| Some((node_of_database(&name(path)?)?, path.clone())));
        let mut named: Vec<(String, PathBuf)> = named.collect();
        named.sort();
        // Two files of one node, of two jobs: each is shown under the name of its file.
        let names: Vec<String> = named.iter().map(|(node, _)| node.clone()).collect();
        for (node, path) in named {
            let is_single = names.iter().filter(|name| **name == node).count() == 1;
            let file_name = path.file_stem().unwrap_or_default().to_string_lossy();
            nodes.push(match is_single {
                true => node,
                false => file_name.into_owned(),
            });
            databases.push(path);
        }
    }
    match nodes.len() {
        0 => Err(usage(
            "no samples of a node here; expected a directory of `pegel job --out`, or ts_NODE.db \
             files of Dragon's telemetry"
                .to_owned(),
        )),
        1..=NODES_MAX => Ok(ViewSource {
            dir,
            nodes,
            databases,
        }),
        count => Err(usage(format!(
            "{count} nodes exceed the limit of {NODES_MAX}; view single nodes: DIR/NODE"
        ))),
    }
}

/// Returns the node of a database file: `ts_NODE.db`, or `ts_USER_NODE_DATE_TIME.db` of a dump.
fn node_of_database(file_name: &str) -> Option<String> {
    let stem = file_name.strip_prefix("ts_")?.strip_suffix(".db")?;
    let is_number =
        |text: &str, count| text.len() == count && text.bytes().all(|b| b.is_ascii_digit());
    let of_dump = || {
        let (rest, time) = stem.rsplit_once('_')?;
        let (rest, date) = rest.rsplit_once('_')?;
        let (_, node) = rest.split_once('_')?;
        (is_number(date, 8) && is_number(time, 6)).then_some(node)
    };
    let node = of_dump().unwrap_or(stem);
    (!node.is_empty()).then(|| node.to_owned())
}

fn commands(nodes: &[String]) -> anyhow::Result<Vec<LaunchCommand>> {
    let program = std::env::current_exe()?.to_string_lossy().into_owned();
    let command = |node: &String| {
        let words = [&program, "job-agent", "--stdin", "--node", node];
        LaunchCommand {
            argv: words.map(str::to_owned).to_vec(),
            nodes: vec![node.clone()],
            is_fed: true,
        }
    };
    Ok(nodes.iter().map(command).collect())
}

/// Waits until the stores are open, prints the addresses, and waits for a signal.
fn serve(
    file: &JobFile,
    head: &HeadProcess,
    agents: &mut LaunchedAgents,
    events: &JobEvents,
) -> anyhow::Result<()> {
    let client = AgentClient::find(Some(head.socket()), &[])?;
    let deadline = Instant::now() + START_TIME;
    let known = file.nodes.iter().cloned().collect();
    loop {
        let up = launched_agents::nodes_up(&client, &known)?;
        let missing = file.nodes.iter().filter(|node| !up.contains(*node));
        let missing: Vec<&str> = missing.map(String::as_str).collect();
        if agents.have_given_up(&missing) || Instant::now() >= deadline {
            if up.is_empty() {
                anyhow::bail!("no store can be opened: {}", agents.failure_text());
            }
            if !missing.is_empty() {
                let text = launched_agents::named(&missing, NAMED_MAX);
                output::print_message(&format!("pegel: not shown: {text}"));
                for reason in agents.failures_of(&missing) {
                    output::print_message(&format!("pegel: {reason}"));
                }
            }
            break;
        }
        match events.next(Duration::from_millis(25)) {
            Some(JobEvent::Signal(_) | JobEvent::HeadEnded) => return Ok(()),
            Some(JobEvent::LauncherEnded(index, status)) => agents.on_end(index, status),
            _ => {}
        }
    }
    print_addresses(file, head, &client);
    loop {
        match events.next(Duration::from_secs(3600)) {
            Some(JobEvent::Signal(_) | JobEvent::HeadEnded | JobEvent::HeadEnding) => return Ok(()),
            Some(JobEvent::LauncherEnded(index, status)) => agents.on_end(index, status),
            _ => {}
        }
    }
}

fn print_addresses(file: &JobFile, head: &HeadProcess, client: &AgentClient) {
    let mut text = format!("pegel: {} nodes", file.nodes.len());
    let oldest = file.nodes.iter().filter_map(|node| {
        let status = client
            .of_agent()
            .through_node(node)
            .get("/status", &[])
            .ok()?;
        status["store"]["oldest"].as_i64()
    });
    let source = file.view.iter();
    let stores = source.flat_map(|source| file.nodes.iter().map(move |node| source.join(node)));
    let ends = stores.chain(file.databases.iter().cloned());
    let ends = ends.filter_map(|dir| fs::metadata(dir).and_then(|found| found.modified()).ok());
    let end = ends
        .max()
        .and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
    let end = end.and_then(|since| i64::try_from(since.as_millis()).ok());
    if let (Some(begin), Some(end)) = (oldest.min().and_then(time_text), end.and_then(time_text)) {
        text.push_str(&format!(", samples from {begin} to {end}"));
    }
    if let Some(page) = head.page() {
        text.push_str(&format!("\npegel: page and API: http://{page}"));
    }
    text.push_str(&format!("\npegel: socket: {}\n", head.socket().display()));
    output::print_text(&text);
}

fn time_text(millis: i64) -> Option<String> {
    let time = Timestamp::from_millisecond(millis).ok()?;
    Some(time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn database_files_are_named_after_their_nodes() {
        for (file, node) in [
            ("ts_nid0003.db", Some("nid0003")),
            ("ts_my_node.db", Some("my_node")),
            ("ts_ada_nid0003_20240417_093012.db", Some("nid0003")),
            ("ts_nid0003.db.partial", None),
            ("ts_.db", None),
            ("other.db", None),
        ] {
            assert_eq!(node_of_database(file).as_deref(), node, "{file}");
        }
    }
}
