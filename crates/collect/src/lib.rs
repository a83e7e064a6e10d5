//! Samples the node itself. Collectors read `/proc` and `/sys`; the sampler runs them on schedule and
//! passes one [`Tick`](pegel_metric::Tick) per nominal time to a sink.
//!
//! A collector is one file in `collectors/` and one line in [`REGISTRY`]. It declares each series
//! once, keeps the slots, and afterwards only sets values: a pass allocates nothing. Files are
//! opened once and read with `pread` into a reused buffer; the text is parsed in place.
//!
//! | part | role |
//! |---|---|
//! | [`Host`] | the locations of `/proc` and `/sys`, so that a fixture tree can replace a machine |
//! | [`CollectorSet`] | opens the collectors, runs passes, tracks their states |
//! | [`Schedule`] | decides which collectors are due when, as a pure state machine |
//! | [`Sampler`] | the thread that connects the two |
//! | [`Execution::Threaded`] | collectors whose reads may hang, each on its own thread |

mod attribute;
mod collector_set;
pub mod collectors;
mod config;
mod context;
mod cursor_map;
mod device_slots;
mod dynamic_series;
mod file_collector;
mod host;
mod info_series;
mod managed_collector;
mod node_exporter_gaps;
mod proc_file;
mod proc_parse;
mod sampler;
mod schedule;
mod settings;
mod stats;
mod sysfs_dir;
mod sysfs_walk;
mod threaded_collector;
mod udev;
mod unlabelled_series;

use std::fmt::Debug;
use std::path::PathBuf;
use std::time::Duration;

use pegel_metric::{Family, Level, SampleGroup};

pub use collector_set::CollectorSet;
pub use config::{CollectorSettings, CollectorsConfig};
pub use context::{Context, SelfMetrics};
pub use host::{FilesystemSpace, Host, StatVfs};
pub use node_exporter_gaps::{DIVERGENT_METRICS, OMITTED_METRICS};
pub use proc_file::CollectError;
pub use sampler::{Sampler, SamplerStartError, TickSink};
pub use schedule::{ClockPair, Schedule, ScheduleCounts};
pub use settings::{CollectSettings, CollectSettingsError, RATE_MAX, RATE_MIN};
pub use stats::{CollectorState, CollectorStatus, SamplerStats};
pub use threaded_collector::CurrentOperation;

use collectors::{agent, cpu, disk, load, memory, network, pressure, stat, vmstat};
use collectors::{
    arp, bonding, clocksource, conntrack, dmi, entropy, filefd, filesystem, lustre, md, mountstats,
    netclass, netstat, nfs, nfsd, nvidia, os, power_supply, process_states, processes, schedstat,
    selinux, sockstat, softnet, swap, timex, udp_queues, uname,
};
use collectors::{
    cgroup, cpufreq, cray, edac, gpu, hwmon, infiniband, numa, nvme, rapl, slingshot, thermal_zone,
    top_processes,
};

/// All collectors. `agent` comes last, so that its values include the current pass.
pub static REGISTRY: &[&CollectorEntry] = &[
    &cpu::ENTRY,
    &stat::ENTRY,
    &memory::ENTRY,
    &load::ENTRY,
    &pressure::ENTRY,
    &disk::ENTRY,
    &network::ENTRY,
    &vmstat::ENTRY,
    &filesystem::ENTRY,
    &nvidia::ENTRY,
    &hwmon::ENTRY,
    &thermal_zone::ENTRY,
    &cpufreq::ENTRY,
    &numa::ENTRY,
    &rapl::ENTRY,
    &cray::ENTRY,
    &infiniband::ENTRY,
    &slingshot::ENTRY,
    &edac::ENTRY,
    &nvme::ENTRY,
    &gpu::ENTRY,
    &cgroup::ENTRY,
    &top_processes::ENTRY,
    &netstat::ENTRY,
    &sockstat::ENTRY,
    &softnet::ENTRY,
    &udp_queues::ENTRY,
    &arp::ENTRY,
    &netclass::ENTRY,
    &bonding::ENTRY,
    &conntrack::ENTRY,
    &processes::ENTRY,
    &process_states::ENTRY,
    &schedstat::ENTRY,
    &swap::ENTRY,
    &filefd::ENTRY,
    &entropy::ENTRY,
    &md::ENTRY,
    &nfs::ENTRY,
    &nfsd::ENTRY,
    &mountstats::ENTRY,
    &lustre::ENTRY,
    &timex::ENTRY,
    &clocksource::ENTRY,
    &uname::ENTRY,
    &os::ENTRY,
    &selinux::ENTRY,
    &dmi::ENTRY,
    &power_supply::ENTRY,
    &agent::ENTRY,
];

/// The static description of a collector.
#[derive(Debug)]
pub struct CollectorEntry {
    pub name: &'static str,
    pub tier: Tier,
    pub execution: Execution,
    /// The lowest level of its families: an agent below this level disables the collector.
    pub level: Level,
    /// The families that it may publish. A name with `<…>` in it stands for many.
    pub families: &'static [&'static Family],
    pub open: fn(&Context) -> Result<OpenOutcome, CollectorOpenError>,
}

/// The default rate of a collector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    /// The agent's rate.
    Fast,
    /// Every 5 s, or the agent's rate if that is slower.
    FiveSeconds,
    /// Every 60 s, or the agent's rate if that is slower.
    Minute,
}

impl Tier {
    pub fn rate(self, fast: Duration) -> Duration {
        match self {
            Tier::Fast => fast,
            Tier::FiveSeconds => fast.max(Duration::from_secs(5)),
            Tier::Minute => fast.max(Duration::from_secs(60)),
        }
    }
}

/// The thread on which a collector runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Execution {
    /// The sampler thread: its reads cannot hang and take microseconds.
    Inline,
    /// A thread of its own, because its reads may be slow or hang: see [`CurrentOperation`].
    Threaded,
}

/// The result of opening a collector.
#[derive(Debug)]
pub enum OpenOutcome {
    Active(Box<dyn Collector>),
    /// The node has no such source. Not logged; retried every minute.
    Absent {
        looked_for: PathBuf,
    },
}

/// Why a collector could not be opened although its source exists.
#[derive(Debug, thiserror::Error)]
pub enum CollectorOpenError {
    #[error("cannot open {path}")]
    Io {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error(transparent)]
    Collect(#[from] CollectError),
}

/// A source of values on this node. Runs on the thread that its [`Execution`] selects.
pub trait Collector: Debug + Send {
    /// Sets the current values. A series that is not set is absent from this tick; after an error
    /// all series are absent.
    fn collect(&mut self, out: &mut SampleGroup) -> Result<(), CollectError>;

    /// Describes what the last pass could not read although the rest succeeded. The collector counts as
    /// failed, but its values are kept and it is not reopened, so it must recover by itself.
    fn partial_failure(&self) -> Option<&str> {
        None
    }
}
