use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use pegel_agent::{Argument, Loaded, Node, Plan, StopSignals, Until};
use pegel_config::LogLevel;

use crate::command_error::{CommandError, FAILED, USAGE};
use crate::format::{self, OutputFormat};
use crate::{logging, output};

/// How long an orderly stop may take after a thread ended unexpectedly.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Sample this node, keep its samples and serve them, until interrupted
#[derive(Debug, Default, clap::Args)]
pub struct AgentArgs {
    #[command(flatten)]
    pub config_flags: ConfigFlags,
    /// End together with the process PID
    #[arg(long, value_name = "PID", allow_negative_numbers = true)]
    until_pid: Option<i32>,
    /// End when no program counts through shared memory any more
    #[arg(long, conflicts_with = "until_pid")]
    until_lanes_end: bool,
    /// Take one sample, store it, print it and end
    #[arg(long, conflicts_with_all = ["until_pid", "until_lanes_end"])]
    once: bool,
    /// With --once: the form of the values [default: Prometheus text]
    #[arg(short, long, value_enum, requires = "once")]
    format: Option<OutputFormat>,
}

/// What the command line can say about the configuration. It wins over environment and file.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ConfigFlags {
    /// Configuration file [default: $PEGEL_CONFIG, $DRAGON_TELEMETRY_CONFIG]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Serve HTTP here; may be repeated, and replaces the whole list
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Vec<String>,
    /// Take statsd lines here: udp:ADDRESS:PORT, tcp:ADDRESS:PORT, unix:PATH, or off; may be repeated, and
    /// replaces all addresses
    #[arg(long, value_name = "PROTOCOL:ADDRESS:PORT")]
    pub statsd: Vec<String>,
    /// The UNIX socket for programs and for the other commands
    #[arg(long, value_name = "PATH")]
    socket: Option<String>,
    /// Where the store is
    #[arg(long, value_name = "DIR")]
    dir: Option<String>,
    /// The time between two samples: 500ms, 5s; a plain number is seconds
    #[arg(long, value_name = "TIME")]
    rate: Option<String>,
    /// How much detail to keep, 0 to 4
    #[arg(long, value_name = "N")]
    level: Option<String>,
    /// What this node is called
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// When a port is busy, take the next free one
    #[arg(long)]
    port_search: bool,
    /// Allow addresses that other machines can reach, without TLS and without a token
    #[arg(long)]
    insecure: bool,
    /// What to log and where: error, warn, info, debug, off; journal, syslog, stderr or /a/file; journal:info
    #[arg(long, value_name = "LEVEL|PLACE[:LEVEL]")]
    log: Option<String>,
}

impl ConfigFlags {
    /// Reads file, environment and command line. Mistakes exit with 2.
    pub fn load(&self) -> anyhow::Result<Loaded> {
        pegel_agent::load(self.config.clone(), &self.arguments(), &|name| {
            std::env::var_os(name)
        })
        .map_err(|error| CommandError::with_code(USAGE, error.to_string()))
    }

    fn arguments(&self) -> Vec<Argument> {
        let single = [
            ("socket", "--socket", &self.socket),
            ("dir", "--dir", &self.dir),
            ("rate", "--rate", &self.rate),
            ("level", "--level", &self.level),
            ("node", "--node", &self.node),
            ("log", "--log", &self.log),
        ];
        let mut arguments: Vec<Argument> = single
            .into_iter()
            .filter_map(|(key, flag, text)| {
                Some(Argument {
                    key,
                    flag,
                    texts: vec![text.clone()?],
                })
            })
            .collect();
        for (key, flag, texts) in [
            ("listen", "--listen", &self.listen),
            ("statsd", "--statsd", &self.statsd),
        ] {
            if !texts.is_empty() {
                arguments.push(Argument {
                    key,
                    flag,
                    texts: texts.clone(),
                });
            }
        }
        for (key, flag, is_set) in [
            ("port_search", "--port-search", self.port_search),
            ("insecure", "--insecure", self.insecure),
        ] {
            if is_set {
                arguments.push(Argument {
                    key,
                    flag,
                    texts: vec!["true".to_owned()],
                });
            }
        }
        arguments
    }
}

pub fn run(args: &AgentArgs) -> anyhow::Result<()> {
    run_with(args, |node, is_quiet| {
        for line in node.announcement().iter().filter(|_| !is_quiet) {
            output::print_message(&format!("pegel: {line}"));
        }
    })
}

/// The same with other first words, which are left out where nothing is to be logged.
pub fn run_with(args: &AgentArgs, announce: impl FnOnce(&Node, bool)) -> anyhow::Result<()> {
    let loaded = args.config_flags.load()?;
    let log = &loaded.config.own.log;
    let logging = logging::start(log);
    let mut plan = Plan::new(&loaded, &|name| std::env::var_os(name));
    plan.log = Some(logging);
    plan.ends_with_job |= args.until_pid.is_some() || args.until_lanes_end;
    // A wrong number is found before anything is touched.
    let mut until = args.until_pid.map(Until::pid).transpose()?;
    if args.until_lanes_end {
        let lanes = plan.lanes.iter().flat_map(|lanes| &lanes.directories);
        until = Some(Until::lanes_end(
            lanes.map(|directory| directory.path.clone()).collect(),
        ));
    }
    if args.once {
        return run_once(plan, args.format);
    }
    let mut node = Node::start(plan)?;
    announce(&node, log.level == LogLevel::Off);
    let ended = node.wait(until).context("the agent cannot go on");
    match ended {
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

fn run_once(plan: Plan, format: Option<OutputFormat>) -> anyhow::Result<()> {
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

/// Ends the process if a part of the agent that is stuck keeps it from an orderly stop.
#[allow(clippy::exit)] // There is no other way to leave a thread that does not return.
fn exit_after(time: Duration, error: &anyhow::Error) {
    let message = format!("pegel: {error:#}");
    // Without a thread for it, the service manager ends the agent a little later.
    let _ = std::thread::Builder::new().spawn(move || {
        std::thread::sleep(time);
        output::print_message(&message);
        std::process::exit(i32::from(FAILED));
    });
}

/// Whoever asks a second time does not want to wait for an orderly end.
#[allow(clippy::exit)] // Ends the process at once, and only when told twice.
fn exit_on_second_signal(node: &Node, mut signals: StopSignals) {
    node.runtime().spawn(async move {
        signals.next().await;
        std::process::exit(1);
    });
}
