//! Starts the agents that run beside the loop, configured as on a site: Pegel with its default
//! collectors, node_exporter scraped over HTTP, collectd with its usual plugins and files.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use pegel_bench::{release_binary, thread_cpu_time, whole_process_cpu_time};
use pegel_testkit::{
    AgentAddress, AgentBuilder, AgentProcess, ChildProcess, PrometheusProcess, TempDir, get, need,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disturber {
    None,
    Pegel,
    NodeExporter,
    Collectd,
}

impl Disturber {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Disturber::None => "no agent",
            Disturber::Pegel => "Pegel",
            Disturber::NodeExporter => "node_exporter",
            Disturber::Collectd => "collectd",
        }
    }
}

/// A running agent; stopped when it goes out of scope.
#[derive(Debug)]
pub(crate) enum RunningDisturber {
    None,
    Pegel(AgentProcess),
    NodeExporter(PrometheusProcess, Scraper),
    Collectd {
        process: ChildProcess,
        /// Its configuration and files.
        _home: TempDir,
    },
}

impl RunningDisturber {
    /// Starts an agent that samples `rate` times a second. Returns `None` if it is not installed.
    pub(crate) fn start(agent: Disturber, rate: u32) -> Option<RunningDisturber> {
        let interval = Duration::from_secs(1) / rate.max(1);
        Some(match agent {
            Disturber::None => RunningDisturber::None,
            Disturber::Pegel => {
                let config = format!("rate: {}ms\n", interval.as_millis());
                RunningDisturber::Pegel(AgentBuilder::new(release_binary()).config(&config).start())
            }
            Disturber::NodeExporter => {
                let program = need("prometheus-node-exporter")?;
                let exporter = PrometheusProcess::start(&program, |_| Vec::new());
                let scraper = Scraper::start(exporter.address.clone(), interval);
                RunningDisturber::NodeExporter(exporter, scraper)
            }
            Disturber::Collectd => start_collectd(interval)?,
        })
    }

    /// Returns the CPU time of the agent so far.
    pub(crate) fn cpu_time(&self) -> Duration {
        match self {
            RunningDisturber::None => Duration::ZERO,
            RunningDisturber::Pegel(agent) => whole_process_cpu_time(agent.pid()),
            RunningDisturber::NodeExporter(exporter, _) => whole_process_cpu_time(exporter.pid()),
            RunningDisturber::Collectd { process, .. } => whole_process_cpu_time(process.pid()),
        }
    }

    /// Stops the agent. Returns the share of a core that the scraping thread took, if there is one.
    pub(crate) fn stop(self) -> Option<f64> {
        match self {
            RunningDisturber::None | RunningDisturber::Collectd { .. } => None,
            RunningDisturber::Pegel(agent) => {
                agent.stop();
                None
            }
            RunningDisturber::NodeExporter(_exporter, scraper) => Some(scraper.stop()),
        }
    }
}

/// The plugins of Debian's default configuration that read this machine.
const COLLECTD_PLUGINS: [&str; 11] = [
    "cpu",
    "df",
    "disk",
    "entropy",
    "interface",
    "irq",
    "load",
    "memory",
    "processes",
    "swap",
    "users",
];

fn start_collectd(interval: Duration) -> Option<RunningDisturber> {
    let program = Path::new("/usr/sbin/collectd");
    if !program.exists() {
        need("collectd")?;
    }
    let home = TempDir::new();
    let base = home.path().display();
    let plugins: String = COLLECTD_PLUGINS
        .iter()
        .map(|name| format!("LoadPlugin {name}\n"))
        .collect();
    let config = format!(
        "BaseDir \"{base}\"\nPIDFile \"{base}/pid\"\nPluginDir \"/usr/lib/collectd\"\n\
         TypesDB \"/usr/share/collectd/types.db\"\nInterval {}\n{plugins}LoadPlugin csv\n\
         <Plugin csv>\n DataDir \"{base}/csv\"\n</Plugin>\n",
        interval.as_secs_f64()
    );
    let path = home.join("collectd.conf");
    std::fs::write(&path, config).expect("a writable directory");
    let mut command = Command::new(program);
    let process = ChildProcess::start(command.arg("-f").arg("-C").arg(path));
    Some(RunningDisturber::Collectd {
        process,
        _home: home,
    })
}

/// A thread that scrapes an exporter at a fixed rate, as a Prometheus does.
#[derive(Debug)]
pub(crate) struct Scraper {
    is_stopping: Arc<AtomicBool>,
    thread: JoinHandle<f64>,
}

impl Scraper {
    fn start(address: AgentAddress, interval: Duration) -> Scraper {
        let is_stopping = Arc::new(AtomicBool::new(false));
        let stopping = is_stopping.clone();
        let thread = thread::spawn(move || {
            let begin = Instant::now();
            let mut next = begin;
            while !stopping.load(Ordering::Relaxed) {
                let answer = get(&address, "/metrics").expect("an answer");
                assert_eq!(answer.status, 200);
                // If a scrape takes longer than the interval, the missed ones are skipped.
                next = (next + interval).max(Instant::now());
                thread::sleep(next - Instant::now());
            }
            thread_cpu_time().as_secs_f64() / begin.elapsed().as_secs_f64()
        });
        Scraper {
            is_stopping,
            thread,
        }
    }

    /// Ends the thread and returns the share of a core that it used.
    fn stop(self) -> f64 {
        self.is_stopping.store(true, Ordering::Relaxed);
        self.thread.join().expect("the exporter answers")
    }
}
