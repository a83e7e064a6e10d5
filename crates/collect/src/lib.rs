//! Samples the node itself. Collectors read `/proc` and `/sys`; the sampler runs them on schedule
//! and passes a [`Tick`](pegel_metric::Tick) per nominal time to a sink.
//!
//! A collector is one file in `collectors/` and one line in [`REGISTRY`]. It declares each series
//! once, keeps the slots, and afterwards only sets values: a pass allocates nothing. Files are
//! opened once and read with `pread` into a reused buffer; the text is parsed in place.
//!
//! | part | role |
//! |---|---|
//! | [`Host`] | the locations of `/proc` and `/sys`, so that a fixture tree can replace a machine |
//! | [`CollectorSet`] | the collectors of a node; runs those that are due |
//! | `ManagedCollector` | one collector with its state: opens it, runs its passes, reopens it after a failure |
//! | `CollectorThread` | the thread of a collector whose reads may hang, see [`Execution::Threaded`] |
//! | [`Schedule`] | decides which collectors are due when, as a pure state machine |
//! | [`Sampler`] | the thread that connects set and schedule |
//!
//! Collectors set their values through one of these:
//!
//! | part | for |
//! |---|---|
//! | `families!` | the table of a collector's metrics |
//! | `UnlabelledSeries` | one series without labels |
//! | `SeriesTable` | devices that a file lists, with the same metrics for each |
//! | `SeriesWriter` | whatever a walk through `/sys` discovers |
//! | `open_files`, `open_walk` | a whole collector from parsers of files, or from a walk through a directory |

mod collector_set;
mod collector_thread;
pub mod collectors;
mod config;
mod context;
mod cursor_map;
mod dynamic_series;
mod families;
mod file_collector;
mod host;
mod live_processes;
mod managed_collector;
mod node_exporter_gaps;
mod pass_ticks;
mod proc_file;
mod proc_parse;
mod sampler;
mod schedule;
mod series_table;
mod settings;
mod stats;
mod sysfs_dir;
mod sysfs_walk;
mod unlabelled_series;

use std::fmt::Debug;
use std::path::PathBuf;
use std::time::Duration;

use pegel_metric::{Family, Level, SampleGroup};

pub use collector_set::CollectorSet;
pub use collector_thread::CurrentOperation;
pub use collectors::REGISTRY;
pub use config::{CollectorSettings, CollectorsConfig};
pub use context::{Context, SelfMetrics};
pub use host::{FilesystemSpace, Host, StatVfs};
pub use live_processes::LiveProcesses;
pub use node_exporter_gaps::{DIVERGENT_METRICS, OMITTED_METRICS};
pub use proc_file::CollectError;
pub use sampler::{ExtraSamples, Sampler, SamplerStartError, TickSink};
pub use schedule::{ClockPair, Schedule, ScheduleCounts};
pub use settings::{CollectSettings, CollectSettingsError, RATE_MAX, RATE_MIN};
pub use stats::{CollectorState, CollectorStatus, SamplerStats};

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
    pub open: fn(&Context) -> OpenResult,
}

impl CollectorEntry {
    /// Describes a collector that runs on the sampler thread.
    pub(crate) const fn inline(
        name: &'static str,
        tier: Tier,
        families: &'static [&'static Family],
        open: fn(&Context) -> OpenResult,
    ) -> CollectorEntry {
        CollectorEntry {
            name,
            tier,
            execution: Execution::Inline,
            level: lowest_level(families),
            families,
            open,
        }
    }

    /// Describes a collector with a thread of its own.
    pub(crate) const fn threaded(
        name: &'static str,
        tier: Tier,
        families: &'static [&'static Family],
        open: fn(&Context) -> OpenResult,
    ) -> CollectorEntry {
        CollectorEntry {
            execution: Execution::Threaded,
            ..CollectorEntry::inline(name, tier, families, open)
        }
    }
}

/// Returns the lowest level of the families; 0 if there are none.
const fn lowest_level(families: &[&Family]) -> Level {
    let mut lowest = if families.is_empty() { 0 } else { Level::MAX };
    let mut index = 0;
    while index < families.len() {
        if families[index].level < lowest {
            lowest = families[index].level;
        }
        index += 1;
    }
    lowest
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

pub type OpenResult = Result<OpenOutcome, CollectorOpenError>;

impl OpenOutcome {
    pub(crate) fn active(collector: impl Collector + 'static) -> OpenResult {
        Ok(OpenOutcome::Active(Box::new(collector)))
    }

    pub(crate) fn absent(looked_for: impl Into<PathBuf>) -> OpenResult {
        let looked_for = looked_for.into();
        Ok(OpenOutcome::Absent { looked_for })
    }
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

    /// Describes what the last pass could not read although the rest succeeded. The collector
    /// counts as failed, but its values are kept and it is not reopened, so it must recover by
    /// itself.
    fn partial_failure(&self) -> Option<&str> {
        None
    }

    /// Returns the monotonic time at which the last pass read its source. `None`: any time in the
    /// pass. On a busy machine the thread may wait for long between reading and parsing.
    fn read_at(&self) -> Option<Duration> {
        None
    }
}
