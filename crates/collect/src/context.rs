use std::fmt::Debug;
use std::sync::Arc;

use pegel_metric::{Clock, Family, Ledger};
use pegel_supervisor::Supervisor;

use crate::proc_file::SharedFile;
use crate::{CurrentOperation, Host, SamplerStats};

/// What a collector may use when it is opened.
#[derive(Debug, Clone)]
pub struct Context {
    pub host: Host,
    pub clock: Arc<dyn Clock>,
    pub ledger: Arc<Ledger>,
    /// Readings of other parts of the agent, published by the `agent` collector.
    pub self_metrics: Vec<Arc<dyn SelfMetrics>>,
    pub stats: Arc<SamplerStats>,
    /// Restarts the threads of single collectors.
    pub supervisor: Supervisor,
    /// Where a collector with [`Pace::Aside`](crate::Pace::Aside) says what it is about to touch.
    pub operation: CurrentOperation,
    /// `/proc/stat`, which two collectors need: read once per pass.
    pub(crate) proc_stat: Arc<SharedFile>,
}

/// A part of the agent that publishes figures about itself.
pub trait SelfMetrics: Debug + Send + Sync {
    /// Puts its readings. Runs on the sampler's thread in every pass of the `agent` collector: it
    /// must be quick, and cheapest when order and labels stay the same.
    #[allow(
        clippy::type_complexity,
        reason = "a name would hide what is asked for"
    )]
    fn readings(&self, put: &mut dyn FnMut(&Arc<Family>, &[(&str, &str)], f64));
}
