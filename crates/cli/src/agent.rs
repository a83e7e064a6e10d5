//! `pegel agent`: runs the agent until a signal, the end of a process or the end of all lanes. Also
//! holds the flags that override configuration keys, which `pegel config show` shares.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use pegel_agent::{
    AgentSettings, ConfigArgument, LoadedConfig, RunningAgent, StopCondition, StopSignals,
};
use pegel_config::LogLevel;

use crate::command_error::{CommandError, FAILED, USAGE};
use crate::format::{self, OutputFormat};
use crate::{logging, output};

/// Time limit for an orderly stop after a thread ended unexpectedly.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Sample this node, store the samples and serve them until interrupted
#[derive(Debug, Default, clap::Args)]
pub(crate) struct AgentArgs {
    #[command(flatten)]
    pub config_flags: ConfigFlags,
    /// Exit when process PID exits
    #[arg(long, value_name = "PID", allow_negative_numbers = true)]
    until_pid: Option<i32>,
    /// Exit when the last program that counts through shared memory exits
    #[arg(long, conflicts_with = "until_pid")]
    until_lanes_end: bool,
    /// Take one sample, store and print it, then exit
    #[arg(long, conflicts_with_all = ["until_pid", "until_lanes_end"])]
    once: bool,
    /// The agent was started by `pegel session start`, which may replace it
    #[arg(long, hide = true)]
    supervised: bool,
    /// End the records of tasks when the agent stops: it cannot outlive the task
    #[arg(long, hide = true)]
    end_records: bool,
    /// Output format of --once [default: Prometheus text]
    #[arg(short, long, value_enum, requires = "once")]
    format: Option<OutputFormat>,
}

/// Flags that set configuration keys. They override environment and file.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct ConfigFlags {
    /// Configuration file [default: $PEGEL_CONFIG, $DRAGON_TELEMETRY_CONFIG]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address for HTTP, or only a port for loopback: 127.0.0.1:1338, 1338; may be repeated,
    /// replaces the configured list
    #[arg(long, value_name = "[ADDRESS:]PORT")]
    pub listen: Vec<String>,
    /// Address for statsd lines: udp:ADDRESS:PORT, tcp:ADDRESS:PORT, unix:PATH, or off; may be
    /// repeated, replaces the configured list
    #[arg(long, value_name = "PROTOCOL:ADDRESS:PORT")]
    pub statsd: Vec<String>,
    /// UNIX socket for programs and for the other commands
    #[arg(long, value_name = "PATH")]
    socket: Option<String>,
    /// Directory of the store
    #[arg(long, value_name = "DIR")]
    dir: Option<String>,
    /// Sampling interval: 500ms, 5s; a plain number means seconds
    #[arg(long, value_name = "TIME")]
    rate: Option<String>,
    /// Highest metric level to keep, 0 to 4
    #[arg(long, value_name = "N")]
    level: Option<String>,
    /// Name of this node
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Accept nodes as children at this address: 0.0.0.0:1338; see docs/tree.md
    #[arg(long, value_name = "ADDRESS:PORT")]
    accept: Option<String>,
    /// Send the values of this node to a parent and answer its queries; may be repeated in order of
    /// preference, replaces the configured list
    #[arg(long, value_name = "HOST:PORT")]
    parent: Vec<String>,
    /// Use the next free port if a port is in use; a second agent of the same user also needs --dir
    /// and --socket
    #[arg(long)]
    port_search: bool,
    /// Permit addresses reachable from other machines without TLS and without a token
    #[arg(long)]
    insecure: bool,
    /// Log level and destination: error, warn, info, debug or off; journal, syslog, stderr or a
    /// file's path; or both, such as journal:info
    #[arg(long, value_name = "LEVEL|PLACE[:LEVEL]")]
    log: Option<String>,
}

impl ConfigFlags {
    /// Reads file, environment and command line. Errors exit with 2.
    pub(crate) fn load(&self) -> anyhow::Result<LoadedConfig> {
        pegel_agent::load_config(self.config.clone(), &self.arguments(), &|name| {
            std::env::var_os(name)
        })
        .map_err(|error| CommandError::with_code(USAGE, error.to_string()))
    }

    /// Returns the flags of an agent that `pegel session start` may start.
    pub(crate) fn for_session(
        config: Option<PathBuf>,
        dir: Option<PathBuf>,
        socket: Option<PathBuf>,
    ) -> ConfigFlags {
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        ConfigFlags {
            config: config.map(|path| std::path::absolute(&path).unwrap_or(path)),
            dir: dir.map(text),
            socket: socket.map(text),
            ..ConfigFlags::default()
        }
    }

    /// Returns the argument that names the configuration file.
    pub(crate) fn config_argument(&self) -> Vec<OsString> {
        let file = self.config.iter();
        file.flat_map(|file| ["--config".into(), file.clone().into()])
            .collect()
    }

    /// Returns whether any flag is given.
    pub(crate) fn is_given(&self) -> bool {
        self.config.is_some() || !self.arguments().is_empty()
    }

    fn arguments(&self) -> Vec<ConfigArgument> {
        let one = |text: &Option<String>| text.iter().cloned().collect();
        let truth = |is_set: bool| is_set.then(|| "true".to_owned()).into_iter().collect();
        [
            ("socket", "--socket", one(&self.socket)),
            ("dir", "--dir", one(&self.dir)),
            ("rate", "--rate", one(&self.rate)),
            ("level", "--level", one(&self.level)),
            ("node", "--node", one(&self.node)),
            ("log", "--log", one(&self.log)),
            ("listen", "--listen", self.listen.clone()),
            ("statsd", "--statsd", self.statsd.clone()),
            ("tree.accept", "--accept", one(&self.accept)),
            ("tree.parents", "--parent", self.parent.clone()),
            ("port_search", "--port-search", truth(self.port_search)),
            ("insecure", "--insecure", truth(self.insecure)),
        ]
        .into_iter()
        .filter(|(_, _, texts): &(_, _, Vec<String>)| !texts.is_empty())
        .map(|(key, flag, texts)| ConfigArgument { key, flag, texts })
        .collect()
    }
}

pub(crate) fn run(args: &AgentArgs) -> anyhow::Result<()> {
    run_with(args, |node, is_quiet| {
        for line in node.announcement().iter().filter(|_| !is_quiet) {
            output::print_message(&format!("pegel: {line}"));
        }
    })
}

/// Runs the agent. `announce` prints the startup messages; its flag is true if logging is off.
pub(crate) fn run_with(
    args: &AgentArgs,
    announce: impl FnOnce(&RunningAgent, bool),
) -> anyhow::Result<()> {
    let loaded = args.config_flags.load()?;
    let log = &loaded.config.agent.log;
    let logging = logging::start(log);
    let mut plan = AgentSettings::new(&loaded, &|name| std::env::var_os(name));
    plan.log = Some(logging);
    plan.is_supervised = args.supervised;
    plan.ends_records = args.end_records;
    let ends_with_job = args.until_pid.is_some() || args.until_lanes_end;
    plan.ends_with_job |= ends_with_job;
    plan.ends_with_participants |= ends_with_job;
    // Reject an invalid PID before starting anything.
    let mut until = args
        .until_pid
        .map(StopCondition::on_process_exit)
        .transpose()?;
    if args.until_lanes_end {
        let lanes = plan.lanes.iter().flat_map(|lanes| &lanes.directories);
        until = Some(StopCondition::on_lanes_end(
            lanes.map(|directory| directory.path.clone()).collect(),
        ));
    }
    if args.once {
        return run_once(plan, args.format);
    }
    let mut node = RunningAgent::start(plan)?;
    announce(&node, log.level == LogLevel::Off);
    match node.wait(until).context("the agent cannot continue") {
        Ok(signals) => {
            exit_on_second_signal(&node, signals);
            node.stop();
            Ok(())
        }
        Err(error) => {
            exit_after(STOP_TIMEOUT, &error);
            node.stop();
            Err(error)
        }
    }
}

fn run_once(plan: AgentSettings, format: Option<OutputFormat>) -> anyhow::Result<()> {
    let sample = pegel_agent::sample_once(plan)?;
    let text = match format {
        None => sample.prometheus,
        Some(format) => {
            let readings: Vec<crate::api_values::SeriesValue> = sample
                .values
                .into_iter()
                .map(|(name, ts, value)| crate::api_values::SeriesValue { name, ts, value })
                .collect();
            format::values(format, &readings, crate::agent_query::display_context(None))
        }
    };
    output::write(None, &text)
}

/// Exits after `time` if a stuck thread prevents an orderly stop.
#[allow(clippy::exit)] // The only way to end a thread that does not return.
fn exit_after(time: Duration, error: &anyhow::Error) {
    let message = format!("pegel: {error:#}");
    // If no thread can be started, the service manager kills the agent a little later.
    let _ = std::thread::Builder::new().spawn(move || {
        std::thread::sleep(time);
        output::print_message(&message);
        std::process::exit(i32::from(FAILED));
    });
}

/// Exits at once on a second signal, without waiting for the orderly stop.
#[allow(clippy::exit)] // Skips the orderly stop on purpose.
fn exit_on_second_signal(node: &RunningAgent, mut signals: StopSignals) {
    node.runtime().spawn(async move {
        signals.next().await;
        std::process::exit(1);
    });
}
