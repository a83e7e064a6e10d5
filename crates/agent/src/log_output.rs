//! What the agent knows about the place of its log messages.

use std::fmt::Debug;
use std::sync::Arc;

use pegel_collect::Own;
use pegel_metric::{Family, Kind};

/// Where log messages go, as the one who made the place tells it.
pub trait LogOutput: Send + Sync + Debug {
    /// Its name, for people.
    fn place(&self) -> &str;

    /// Messages that the place did not take.
    fn lost(&self) -> u64;

    /// Looks for the place again, after the log was rotated.
    fn reopen(&self);
}

static LOST: Family = Family::new(
    "pegel_log_lost_total",
    Kind::Counter,
    "",
    0,
    "Log messages that could not be handed over.",
);

/// Publishes what was lost.
#[derive(Debug)]
pub(crate) struct LogFigures {
    output: Arc<dyn LogOutput>,
    lost: Arc<Family>,
}

impl LogFigures {
    pub fn new(output: &Arc<dyn LogOutput>) -> Arc<LogFigures> {
        Arc::new(LogFigures {
            output: output.clone(),
            lost: Arc::new(LOST.clone()),
        })
    }
}

impl Own for LogFigures {
    fn readings(&self, put: &mut dyn FnMut(&Arc<Family>, &[(&str, &str)], f64)) {
        put(&self.lost, &[], self.output.lost() as f64);
    }
}
