//! What a job will do: its nodes, launcher, network, directories and settings. Everything that can
//! be wrong on the command line is found here, before anything is started.

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use pegel_agent::{ConfigArgument, LoadedConfig};
use pegel_job::{
    AgentInvocation, Allocation, AllocationRequest, JobFile, Launcher, LauncherKind, NetworkError,
    SecretText, Site, Tunnel, choose_address, login_host, own_node,
};

use super::head_process::{HeadProcess, token_path};
use super::node_directory::{job_directory, programs_socket};
use super::{JobArgs, collect, credentials, launched_agents};
use crate::command_error::CommandError;

/// Seconds after which an agent ends that cannot reach any parent.
const LOST_AFTER: f64 = 20.0;
/// The ports of parents between the head and the nodes.
const PARENT_PORTS: std::ops::Range<u32> = 20_000..30_000;
/// The ports of the user's machine in the printed tunnel: the page, and OpenTSDB for Grafana.
const NEAR_PORTS: [u16; 2] = [1337, 4242];
/// The longest pause for the last sample.
const LAST_SAMPLE_MAX: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct JobPlan {
    pub(super) file: JobFile,
    pub(super) launcher: Option<Launcher>,
    pub(super) agent: AgentInvocation,
    is_head_in_allocation: bool,
    login: Option<String>,
    /// The id of the job in `pegel jobs`: the scheduler's, if there is one.
    job_id: String,
    /// Whether no scheduler gives programs of the job an id.
    names_job: bool,
    level: u8,
    /// Where Dragon's tools look for the samples of all nodes.
    dump_dir: Option<PathBuf>,
    /// The host to which a tunnel is opened, and the port there.
    remote_tunnel: Option<(String, u16)>,
    /// The file with Dragon's keys, for clients that read it.
    dragon_config: Option<PathBuf>,
    sample_interval: Duration,
}

impl JobPlan {
    pub(super) fn new(args: &JobArgs) -> anyhow::Result<JobPlan> {
        let usage = |error: &dyn std::fmt::Display| CommandError::usage(error.to_string());
        let loaded = load_config(args)?;
        let host = super::host_name();
        let allocation = find_nodes(args, &host)?;
        let scheduler = std::env::var("SLURMD_NODENAME").ok();
        let own = own_node(&allocation.nodes, &host, scheduler.as_deref()).map(str::to_owned);
        let head = own.clone().unwrap_or_else(|| host.clone());
        let mut nodes = allocation.nodes.clone();
        nodes.retain(|node| *node != head);
        let launcher = match &args.launcher {
            Some(text) => Some(Launcher::parse(text).map_err(|error| usage(&error))?),
            None => Launcher::of_site(allocation.site),
        };
        if let Some(out) = &args.out {
            collect::check_empty(out, &allocation.nodes)?;
        }
        let file = describe_job(args, &loaded, head, nodes)?;
        let binary = match &args.binary {
            Some(path) => path.clone(),
            None => std::env::current_exe().context("cannot find this program")?,
        };
        let agent = AgentInvocation {
            binary,
            job_file: file.path.clone(),
        };
        let dragon = &loaded.config.dragon;
        let tunnel_host = dragon.remote_tunnel_node.as_deref();
        let tunnel_host = tunnel_host.or(dragon.remote_port_forward.as_deref());
        let tunnel_port = dragon.remote_tunnel_port.unwrap_or(NEAR_PORTS[1]);
        let given = args.login.as_deref().or(tunnel_host);
        let environment = |name: &str| std::env::var(name).ok();
        Ok(JobPlan {
            names_job: matches!(allocation.site, Site::Hosts | Site::Local)
                && pegel_lane::job_id().is_none(),
            job_id: pegel_lane::job_id().unwrap_or_else(|| file.id.clone()),
            launcher: launcher.filter(|_| !file.nodes.is_empty()),
            is_head_in_allocation: own.is_some(),
            login: login_host(given, environment, &host),
            level: loaded.config.agent.level.get(),
            dragon_config: loaded
                .file
                .clone()
                .filter(|_| loaded.uses_dragon_keys(&|_| None)),
            sample_interval: loaded.config.agent.rate.duration(),
            dump_dir: { dragon.dump_dir.as_deref() }
                .map(|dir| collect::prepare(&dir.join("telemetry"), "dump_dir"))
                .transpose()?,
            remote_tunnel: tunnel_host.map(|host| (host.to_owned(), tunnel_port)),
            agent,
            file,
        })
    }

    pub(super) fn job_id(&self) -> &str {
        &self.job_id
    }

    /// Returns the nodes of the allocation.
    pub(super) fn all_nodes(&self) -> Vec<String> {
        let head = self.is_head_in_allocation.then(|| self.file.head.clone());
        head.into_iter()
            .chain(self.file.nodes.iter().cloned())
            .collect()
    }

    /// Writes the file that launchers without standard input name.
    pub(super) fn write_job_file(&self) -> anyhow::Result<()> {
        let path = &self.agent.job_file;
        if let Some(dir) = path.parent() {
            let created = DirBuilder::new().recursive(true).mode(0o700).create(dir);
            created.with_context(|| {
                format!(
                    "cannot create {}; choose another directory with --shared",
                    dir.display()
                )
            })?;
        }
        Ok(self.file.write(path)?)
    }

    /// Removes the secrets of the shared file system. The head does so as well.
    pub(super) fn remove_job_file(&self) {
        let _ = fs::remove_file(&self.agent.job_file);
    }

    /// Returns how long to wait for the last sample of the program.
    pub(super) fn last_sample_time(&self) -> Duration {
        self.sample_interval.min(LAST_SAMPLE_MAX) + Duration::from_millis(100)
    }

    /// Returns the variables by which clients in the command find the agents.
    pub(super) fn variables(&self) -> Vec<(String, OsString)> {
        let mut variables = vec![
            (
                "PEGEL_SOCKET".to_owned(),
                programs_socket(&self.file.dir).into_os_string(),
            ),
            (
                "PEGEL_LANES".to_owned(),
                self.file.lanes.clone().into_os_string(),
            ),
            ("PEGEL_JOB_ID".to_owned(), OsString::from(&self.file.id)),
            ("PEGEL_JOB_HEAD".to_owned(), OsString::from(&self.file.head)),
            (
                "DRAGON_TELEMETRY_LEVEL".to_owned(),
                self.level.to_string().into(),
            ),
        ];
        if self.names_job {
            variables.push(("PEGEL_JOB".to_owned(), OsString::from(&self.job_id)));
        }
        if let Some(path) = &self.dragon_config {
            let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
            variables.push(("DRAGON_TELEMETRY_CONFIG".to_owned(), path.into_os_string()));
        }
        variables
    }

    /// Returns the lines that tell how to reach the page, here and from another machine.
    pub(super) fn access_lines(&self, head: &HeadProcess) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(page) = head.page() {
            lines.push(format!("page: http://{page}"));
        }
        let tunnel = Tunnel {
            head: super::host_name(),
            login: self.login.clone(),
            ports: NEAR_PORTS.into_iter().zip(head.forwarded_ports()).collect(),
            dir: self.file.dir.display().to_string(),
        };
        lines.push(format!("page from elsewhere: {}", tunnel.tunnel_line()));
        lines.push(format!("or without pegel: {}", tunnel.jump_line()));
        if let Some((first, second)) = tunnel.hop_lines() {
            lines.push(format!(
                "or in two hops: on the login host: {first}; then: {second}"
            ));
        }
        let jump = self.login.iter().map(|login| format!("-J {login} "));
        let token = token_path(&self.file);
        lines.push(format!(
            "token for it: ssh {}{} cat {}",
            jump.collect::<String>(),
            tunnel.head,
            token.display()
        ));
        lines
    }

    /// Returns the command that opens a port on the login host, if the configuration wants one.
    pub(super) fn reverse_tunnel(&self, head: &HeadProcess) -> Option<Vec<String>> {
        let (host, port) = self.remote_tunnel.as_ref()?;
        let far = head.forwarded_ports().get(1).copied()?;
        let mut words = match &self.launcher {
            Some(launcher) if launcher.kind == LauncherKind::Ssh => launcher.words().to_vec(),
            _ => vec!["ssh".to_owned()],
        };
        let options = ["-o", "BatchMode=yes", "-o", "ExitOnForwardFailure=yes"];
        words.extend(options.map(str::to_owned));
        words.push("-NR".to_owned());
        words.push(format!("localhost:{port}:localhost:{far}"));
        words.push(host.clone());
        Some(words)
    }

    /// Returns the database of every node: those of `--sqlite`, and those of Dragon's `dump_dir`.
    pub(super) fn database_files(&self, has_sqlite: bool) -> Vec<(String, PathBuf)> {
        let mut files = Vec::new();
        let user = std::env::var("USER").ok().filter(|user| !user.is_empty());
        let user = user.unwrap_or_else(|| rustix::process::getuid().as_raw().to_string());
        let stamp = jiff::Zoned::now().strftime("%Y%m%d_%H%M%S").to_string();
        for node in self.all_nodes() {
            if let Some(out) = self.file.out.as_ref().filter(|_| has_sqlite) {
                files.push((node.clone(), out.join(format!("ts_{node}.db"))));
            }
            if let Some(dir) = &self.dump_dir {
                let name = format!("ts_{user}_{node}_{stamp}.db");
                files.push((node, dir.join(name)));
            }
        }
        files
    }

    /// Names the nodes whose samples were not copied, once.
    pub(super) fn missing_copies(&mut self) -> Option<String> {
        let out = self.file.out.take()?;
        let all = self.all_nodes();
        let missing = collect::missing(&out, &all);
        let missing: Vec<&str> = missing.iter().map(String::as_str).collect();
        if missing.is_empty() {
            return None;
        }
        Some(format!(
            "no samples in {} of {}; does that node share the directory?",
            out.display(),
            launched_agents::named(&missing, 10)
        ))
    }
}

/// Describes the job for its agents, with a certificate and a token of its own.
fn describe_job(
    args: &JobArgs,
    loaded: &LoadedConfig,
    head: String,
    nodes: Vec<String>,
) -> anyhow::Result<JobFile> {
    let address = match nodes.is_empty() {
        true => String::new(),
        false => SocketAddr::new(head_address(args, &nodes)?, 0).to_string(),
    };
    let id = credentials::random_digits(6)?;
    let issued = credentials::issue_certificate(&head)?;
    let out = args.out.as_deref();
    let config = loaded.file.as_deref();
    Ok(JobFile {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        dir: job_directory(&node_base(args, loaded)?, &id),
        lanes: job_directory(Path::new("/dev/shm"), &id),
        head,
        fan_out: args.fan_out.into(),
        head_address: address,
        parent_port: parent_port(&id),
        certificate: issued.certificate,
        key: SecretText(issued.key),
        fingerprint: issued.fingerprint,
        token: SecretText(credentials::random_digits(32)?),
        config: config.map(std::path::absolute).transpose()?,
        settings: settings(args, loaded),
        out: out.map(|out| collect::prepare(out, "--out")).transpose()?,
        view: None,
        databases: Vec::new(),
        keeps_dir: loaded.config.dragon.delete_tmdb == Some(false),
        lost_after: LOST_AFTER,
        path: shared_dir(args)?.join(&id),
        nodes,
        id,
    })
}

/// Loads the configuration of the agents, to report its errors before anything is started.
fn load_config(args: &JobArgs) -> anyhow::Result<LoadedConfig> {
    let one = |text: &Option<String>| text.iter().cloned().collect::<Vec<_>>();
    let keys = [
        ("level", "--level", one(&args.level)),
        ("rate", "--rate", one(&args.rate)),
    ];
    let arguments: Vec<ConfigArgument> = { keys.into_iter() }
        .filter(|(_, _, texts)| !texts.is_empty())
        .map(|(key, flag, texts)| ConfigArgument { key, flag, texts })
        .collect();
    let environment = |name: &str| match name {
        "PEGEL_CONFIG"
        | "DRAGON_TELEMETRY_CONFIG"
        | "DRAGON_TELEMETRY_LEVEL"
        | "PEGEL_LEVEL"
        | "PEGEL_RATE" => std::env::var_os(name),
        _ => None,
    };
    let loaded = pegel_agent::load_config(args.config.clone(), &arguments, &environment);
    loaded.map_err(|error| CommandError::usage(error.to_string()))
}

/// Returns the keys that the agents get besides those of the file.
fn settings(args: &JobArgs, loaded: &LoadedConfig) -> Vec<(String, String)> {
    let mut settings = vec![(
        "level".to_owned(),
        loaded.config.agent.level.get().to_string(),
    )];
    let rate = args
        .rate
        .clone()
        .or_else(|| std::env::var("PEGEL_RATE").ok());
    settings.extend(rate.map(|rate| ("rate".to_owned(), rate)));
    if loaded.origin_of("log").is_none() {
        settings.push(("log".to_owned(), "stderr:warn".to_owned()));
    }
    settings
}

fn find_nodes(args: &JobArgs, host: &str) -> anyhow::Result<Allocation> {
    let request = AllocationRequest {
        hosts: args.hosts.as_deref(),
        host_file: args.hostfile.as_deref(),
        environment: &|name| std::env::var(name).ok(),
        flux_hosts: &flux_hosts,
        own_name: host,
    };
    request
        .find()
        .map_err(|error| CommandError::usage(error.to_string()))
}

fn flux_hosts() -> Result<String, String> {
    let output = Command::new("flux").args(["getattr", "hostlist"]).output();
    let output = output.map_err(|error| format!("flux: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

/// Returns the address at which the other nodes reach the head.
fn head_address(args: &JobArgs, nodes: &[String]) -> anyhow::Result<IpAddr> {
    let is_loopback = |node: &String| node.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
    if args.interface.is_none() && nodes.iter().all(is_loopback) {
        return Ok(loopback);
    }
    match choose_address(args.interface.as_deref()) {
        // The nodes can only be on this machine.
        Err(NetworkError::None) => Ok(loopback),
        chosen => chosen.map_err(|error| CommandError::usage(error.to_string())),
    }
}

/// Returns the directory on storage of the nodes in which the agents create theirs.
fn node_base(args: &JobArgs, loaded: &LoadedConfig) -> anyhow::Result<PathBuf> {
    let dragon = loaded.config.dragon.default_tmdb_dir.as_ref();
    let base = args.dir.as_ref().or(dragon);
    let base = base.map_or_else(|| PathBuf::from("/tmp"), Clone::clone);
    Ok(std::path::absolute(&base)?)
}

/// Returns the directory that all nodes share.
fn shared_dir(args: &JobArgs) -> anyhow::Result<PathBuf> {
    if let Some(dir) = &args.shared {
        return Ok(std::path::absolute(dir)?);
    }
    let absolute = |name: &str| {
        let value = std::env::var_os(name).map(PathBuf::from);
        value.filter(|path| path.is_absolute())
    };
    let state = absolute("XDG_STATE_HOME");
    let state = state.or_else(|| absolute("HOME").map(|home| home.join(".local/state")));
    let state = state.unwrap_or_else(|| PathBuf::from("/tmp"));
    Ok(state.join("pegel/jobs"))
}

/// Returns a port for parents; the id of the job is random.
fn parent_port(id: &str) -> u16 {
    let digits = id.get(..6).unwrap_or("0");
    let number = u32::from_str_radix(digits, 16).unwrap_or_default();
    let port = PARENT_PORTS.start + number % PARENT_PORTS.len() as u32;
    u16::try_from(port).unwrap_or(u16::MAX)
}
