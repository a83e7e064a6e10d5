//! `pegel job-agent`: the agent of one node of a job. It ends with its job: when its standard input
//! ends (the head, and nodes that ssh started), when its launcher is gone, or when no parent can be
//! reached any more. Whatever ends it, it removes its directory.

use std::io::{BufRead, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use pegel_agent::{
    AgentSettings, ConfigArgument, LoadedConfig, ParentContact, RunningAgent, StopCondition,
};
use pegel_job::{JOB_FILE_BYTES_MAX, JobFile, ParentOfNode, is_parent, own_node, parent_of};
use serde_json::json;

use super::collect::{DEPTH_MAX, copy_dir, copy_store};
use super::node_directory::NodeDirectory;
use super::sqlite_import::import_database;
use crate::command_error::CommandError;
use crate::{logging, output};

/// How much lower the priority of the agent is than that of the program.
const NICENESS: i32 = 5;
/// How long a parent may take to accept this agent for the first time.
const FIRST_CONTACT: Duration = Duration::from_secs(120);
/// How long the parents must refuse connections before the job counts as ended.
const REFUSED_TIME: Duration = Duration::from_millis(600);
/// How long the head waits for the job to read its last values.
const LAST_REQUESTS: Duration = Duration::from_secs(30);

/// Run the agent of one node of a job; `pegel job` starts it
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub(crate) struct JobAgentArgs {
    /// File that describes the job
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "stdin",
        required_unless_present = "stdin"
    )]
    file: Option<PathBuf>,
    /// Read the description from standard input, whose end is the end of the job
    #[arg(long)]
    stdin: bool,
    /// Name of this node [default: the scheduler's name, the host name]
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// This agent is the head
    #[arg(long, requires = "stdin")]
    head: bool,
}

pub(crate) fn run(args: &JobAgentArgs) -> anyhow::Result<()> {
    let job = match &args.file {
        Some(path) => JobFile::read(path)?,
        None => read_stdin()?,
    };
    let launcher = rustix::process::getppid();
    leave_cores_to_the_program();
    let name = node_name(args, &job);
    // Launchers that cannot leave out a node start an agent beside the head.
    if !args.head && name == job.head {
        return Ok(());
    }
    let Some(dir) = NodeDirectory::claim(&job, args.head, &name)? else {
        // Launchers that count cores start several agents on a node.
        return Ok(());
    };
    let ended = run_agent(args, &job, &dir, &name, launcher);
    if let (Ok(()), Some(out)) = (&ended, &job.out)
        && let Err(error) = copy_store(&dir.store(), out, &name)
    {
        output::print_message(&format!(
            "pegel: {name}: cannot copy the samples to {}: {error:#}",
            out.display()
        ));
    }
    if args.head {
        // In case that `pegel job` was killed before it did so.
        let _ = std::fs::remove_file(&job.path);
    }
    drop(dir);
    ended.with_context(|| format!("node {name}"))
}

fn run_agent(
    args: &JobAgentArgs,
    job: &JobFile,
    dir: &NodeDirectory,
    name: &str,
    launcher: Option<rustix::process::Pid>,
) -> anyhow::Result<()> {
    dir.write_credentials(job)?;
    let environment = |name: &str| match name {
        "PEGEL_LANES" => Some(dir.lanes().as_os_str().to_owned()),
        // Opens the port of Dragon's clients.
        "DRAGON_TELEMETRY_LEVEL" => job.level().map(Into::into),
        // The keys of the job take precedence over variables of the caller.
        "PEGEL_ROOT" | "PEGEL_NVML" | "PEGEL_DISABLE" | "PEGEL_IMDS_URL" | "HOME" => {
            std::env::var_os(name)
        }
        _ => None,
    };
    let arguments = config_arguments(args.head, job, dir, name);
    let loaded: LoadedConfig =
        pegel_agent::load_config(job.config.clone(), &arguments, &environment)
            .map_err(|error| CommandError::usage(error.to_string()))?;
    let logging = logging::start(&loaded.config.agent.log);
    let mut plan = AgentSettings::new(&loaded, &environment);
    plan.log = Some(logging);
    // Only the head ends on request. Participants are counted over all nodes, by `pegel job`.
    plan.ends_with_job = args.head;
    plan.ends_with_participants = false;
    plan.remove_store = false;
    plan.ends_jobs = true;
    if let Some(source) = &job.view {
        plan.only_serve_stored();
        if !args.head {
            let database = job.number_of(name).and_then(|n| job.databases.get(n));
            match database {
                Some(database) => import_database(database, &dir.store())?,
                None => copy_dir(&source.join(name), &dir.store(), DEPTH_MAX)
                    .context("cannot copy the samples")?,
            }
        }
    }
    let mut node = RunningAgent::start(plan)?;
    let is_over = Arc::new(AtomicBool::new(false));
    if args.stdin {
        watch_stdin(&is_over)?;
    }
    if args.head {
        announce(&node, dir)?;
    }
    let mut contact = ContactWatch::new(job.lost_after);
    let parent_contact = node.parent_contact();
    let watched = is_over.clone();
    let until = StopCondition::when(move || {
        let is_orphan = rustix::process::getppid() != launcher;
        is_orphan || watched.load(Ordering::Relaxed) || contact.is_lost(parent_contact())
    });
    let ended = node.wait(Some(until)).context("the agent cannot continue");
    if args.head && ended.is_ok() && !is_over.load(Ordering::Relaxed) {
        // A client requested the end: the job still reads what it needs for its summary.
        output::write(None, "ending\n")?;
        wait_until(&is_over, LAST_REQUESTS);
    }
    node.stop();
    ended.map(drop)
}

/// Returns the keys that the job sets.
fn config_arguments(
    is_head: bool,
    job: &JobFile,
    dir: &NodeDirectory,
    name: &str,
) -> Vec<ConfigArgument> {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let mut keys: Vec<(&'static str, Vec<String>)> = vec![
        ("node", vec![name.to_owned()]),
        ("dir", vec![text(&dir.store())]),
        ("socket", vec![text(&dir.socket())]),
        ("port_search", vec!["true".to_owned()]),
    ];
    for (key, value) in &job.settings {
        if let Some(key) = ["level", "rate", "log"]
            .into_iter()
            .find(|known| known == key)
        {
            keys.push((key, vec![value.clone()]));
        }
    }
    if is_head {
        keys.push(("token_file", vec![text(&dir.token())]));
        keys.push((
            "forwarded",
            ["127.0.0.1:1347", "127.0.0.1:4252"]
                .map(str::to_owned)
                .to_vec(),
        ));
    }
    let number = job.number_of(name);
    let count = job.nodes.len();
    let accept = match number {
        None if is_head && count > 0 => Some(job.head_address.clone()),
        Some(number) if is_parent(number, count, job.fan_out) => {
            Some(format!("0.0.0.0:{}", job.parent_port))
        }
        _ => None,
    };
    if let Some(accept) = accept {
        keys.push(("tree.accept", vec![accept]));
        keys.push(("tree.cert", vec![text(&dir.certificate())]));
        keys.push(("tree.key", vec![text(&dir.key())]));
        // The children of a parent that is missing come to the head.
        keys.push((
            "tree.children_max",
            vec![count.clamp(64, 10_000).to_string()],
        ));
    }
    if !is_head {
        let mut parents = Vec::new();
        let parent = number.map(|number| parent_of(number, job.fan_out));
        if let Some(ParentOfNode::Node(parent)) = parent {
            parents.push(format!(
                "{}:{}",
                bracketed(&job.nodes[parent]),
                job.parent_port
            ));
        }
        parents.push(job.head_address.clone());
        keys.push(("tree.parents", parents));
        keys.push(("tree.fingerprint", vec![job.fingerprint.clone()]));
    }
    keys.push(("tree.token_file", vec![text(&dir.token())]));
    let argument = |(key, texts)| ConfigArgument {
        key,
        flag: "pegel job",
        texts,
    };
    keys.into_iter().map(argument).collect()
}

fn bracketed(host: &str) -> String {
    match host.contains(':') {
        true => format!("[{host}]"),
        false => host.to_owned(),
    }
}

/// Prints the addresses of the head for `pegel job`.
fn announce(node: &RunningAgent, dir: &NodeDirectory) -> anyhow::Result<()> {
    let line = json!({
        "accept": node.accept_address(),
        "http": node.http_addresses(),
        "forwarded": node.forwarded_addresses(),
        "socket": dir.socket(),
    });
    output::write(None, &format!("{line}\n"))
}

/// Decides when an agent has lost its job.
struct ContactWatch {
    lost_after: Duration,
    was_connected: bool,
    started: Instant,
    lost_since: Option<Instant>,
    refused_since: Option<Instant>,
}

impl ContactWatch {
    fn new(lost_after: f64) -> ContactWatch {
        ContactWatch {
            lost_after: Duration::try_from_secs_f64(lost_after).unwrap_or(FIRST_CONTACT),
            was_connected: false,
            started: Instant::now(),
            lost_since: None,
            refused_since: None,
        }
    }

    /// Takes note of the state; returns true when the job is gone. The head has no parent.
    fn is_lost(&mut self, contact: Option<ParentContact>) -> bool {
        let now = Instant::now();
        match contact {
            None => return false,
            Some(ParentContact::Connected) => {
                self.was_connected = true;
                self.lost_since = None;
                self.refused_since = None;
                return false;
            }
            Some(ParentContact::Lost) => self.refused_since = None,
            Some(ParentContact::Refused) => _ = self.refused_since.get_or_insert(now),
        }
        if !self.was_connected {
            return now.duration_since(self.started) > FIRST_CONTACT;
        }
        let lost_since = *self.lost_since.get_or_insert(now);
        let is_refused =
            { self.refused_since }.is_some_and(|since| now.duration_since(since) >= REFUSED_TIME);
        is_refused || now.duration_since(lost_since) >= self.lost_after
    }
}

/// Reads the first line of standard input.
fn read_stdin() -> anyhow::Result<JobFile> {
    let mut line = Vec::new();
    let stdin = std::io::stdin().lock();
    stdin
        .take(JOB_FILE_BYTES_MAX)
        .read_until(b'\n', &mut line)
        .context("cannot read the job from standard input")?;
    Ok(JobFile::parse(&line)?)
}

/// Sets the flag when standard input ends.
fn watch_stdin(is_over: &Arc<AtomicBool>) -> anyhow::Result<()> {
    let is_over = is_over.clone();
    // Detached: it sleeps until the other end of the pipe or this process is gone.
    let watch = std::thread::Builder::new().name("job-input".to_owned());
    watch.spawn(move || {
        let mut rest = [0; 512];
        while std::io::stdin()
            .read(&mut rest)
            .is_ok_and(|count| count > 0)
        {}
        is_over.store(true, Ordering::Relaxed);
    })?;
    Ok(())
}

fn wait_until(flag: &AtomicBool, bound: Duration) {
    let deadline = Instant::now() + bound;
    while !flag.load(Ordering::Relaxed) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the name of this node in the job.
fn node_name(args: &JobAgentArgs, job: &JobFile) -> String {
    if args.head {
        return job.head.clone();
    }
    if let Some(name) = &args.node {
        return name.clone();
    }
    let host = super::host_name();
    let scheduler = std::env::var("SLURMD_NODENAME").ok();
    let mut all = job.nodes.clone();
    all.push(job.head.clone());
    let found = own_node(&all, &host, scheduler.as_deref());
    found.map_or(host.clone(), str::to_owned)
}

/// Lets this process run on all cores, whatever the launcher bound it to, at a lower priority.
/// Best effort: both are about being out of the way.
fn leave_cores_to_the_program() {
    let mut all = rustix::thread::CpuSet::new();
    for cpu in 0..rustix::thread::CpuSet::MAX_CPU {
        all.set(cpu);
    }
    let _ = rustix::thread::sched_setaffinity(None, &all);
    let _ = rustix::process::nice(NICENESS);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_lost_only_after_it_was_there() {
        let mut watch = ContactWatch::new(0.05);
        assert!(!watch.is_lost(None), "the head has no parent");
        for contact in [ParentContact::Lost, ParentContact::Refused] {
            assert!(
                !watch.is_lost(Some(contact)),
                "the head may still be starting"
            );
        }
        assert!(!watch.is_lost(Some(ParentContact::Connected)));
        assert!(!watch.is_lost(Some(ParentContact::Lost)));
        std::thread::sleep(Duration::from_millis(60));
        assert!(watch.is_lost(Some(ParentContact::Lost)));
        assert!(
            !watch.is_lost(Some(ParentContact::Connected)),
            "back in time"
        );
        assert!(!watch.is_lost(Some(ParentContact::Refused)));
    }
}
