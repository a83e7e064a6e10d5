//! What the agent knows about the place of its log messages.

use std::fmt::Debug;
use std::sync::Arc;

use pegel_collect::SelfMetrics;
use pegel_metric::{Family, MetricKind};

/// Where log messages go, as the one who made the place tells it.
pub trait LogOutput: Send + Sync + Debug {
    /// Its name, for people.
    fn destination(&self) -> &str;

    /// Messages that the place did not take.
    fn lost(&self) -> u64;

    /// Looks for the place again, after the log was rotated.
    fn reopen(&self);
}

static LOST_FAMILY: Family = Family::new(
    "pegel_log_lost_total",
    MetricKind::Counter,
    "",
    0,
    "Log messages that could not be handed over.",
);

/// Publishes what was lost.
#[derive(Debug)]
pub(crate) struct LogMetrics {
    output: Arc<dyn LogOutput>,
    lost: Arc<Family>,
}

impl LogMetrics {
    pub fn new(output: &Arc<dyn LogOutput>) -> Arc<LogMetrics> {
        Arc::new(LogMetrics {
            output: output.clone(),
            lost: Arc::new(LOST_FAMILY.clone()),
        })
    }
}

impl SelfMetrics for LogMetrics {
    fn readings(&self, put: &mut dyn FnMut(&Arc<Family>, &[(&str, &str)], f64)) {
        put(&self.lost, &[], self.output.lost() as f64);
    }
}
