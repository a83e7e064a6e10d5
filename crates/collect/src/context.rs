//! The dependencies that a collector receives when it is opened.

use std::fmt::Debug;
use std::sync::Arc;

use pegel_metric::{Clock, Family, Ledger};
use pegel_supervisor::Supervisor;

use crate::proc_file::SharedFile;
use crate::{CurrentOperation, Host, LiveProcesses, SamplerStats};

/// The environment of a collector, passed when it is opened.
#[derive(Debug, Clone)]
pub struct Context {
    pub host: Host,
    pub clock: Arc<dyn Clock>,
    pub ledger: Arc<Ledger>,
    /// Metrics of other parts of the agent, published by the `agent` collector.
    pub self_metrics: Vec<Arc<dyn SelfMetrics>>,
    pub stats: Arc<SamplerStats>,
    /// Restarts the threads of threaded collectors.
    pub supervisor: Supervisor,
    /// Set by a collector with [`Execution::Threaded`](crate::Execution::Threaded) before each call
    /// that may hang.
    pub operation: CurrentOperation,
    /// `/proc/stat`, which two collectors use: read once per pass.
    pub(crate) proc_stat: Arc<SharedFile>,
    /// The latest pass of `top_processes`, shared with the server.
    pub live_processes: Arc<LiveProcesses>,
}

/// A part of the agent that publishes metrics about itself.
pub trait SelfMetrics: Debug + Send + Sync {
    /// Calls `put` for each metric. Runs on the sampler thread in every pass of the `agent`
    /// collector, so it must be fast and must not block. Cheapest when order and labels stay the
    /// same.
    #[allow(
        clippy::type_complexity,
        reason = "an alias would hide the signature that implementers need"
    )]
    fn readings(&self, put: &mut dyn FnMut(&Arc<Family>, &[(&str, &str)], f64));
}
