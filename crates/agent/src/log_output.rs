//! The output of log messages, as the agent sees it, and its metric.

use std::fmt::Debug;
use std::sync::Arc;

use pegel_collect::SelfMetrics;
use pegel_metric::{Family, MetricKind};

/// The output of log messages, implemented by the program that set it up.
pub trait LogOutput: Send + Sync + Debug {
    /// The name of the destination, for users.
    fn destination(&self) -> &str;

    /// The number of messages that could not be written.
    fn lost(&self) -> u64;

    /// Opens the destination again, after the log was rotated.
    fn reopen(&self);
}

static LOST_FAMILY: Family = Family::new(
    "pegel_log_lost_total",
    MetricKind::Counter,
    "",
    0,
    "Total number of log messages that could not be written.",
);

/// Publishes the number of lost log messages.
#[derive(Debug)]
pub(crate) struct LogMetrics {
    output: Arc<dyn LogOutput>,
    lost: Arc<Family>,
}

impl LogMetrics {
    pub(crate) fn new(output: &Arc<dyn LogOutput>) -> Arc<LogMetrics> {
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
