//! Counts of the tree, for the agent's own metrics and `/status`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The figures of a tree at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TreeFigures {
    pub below: Arc<NodeFigures>,
    /// Refused connections and streams by reason.
    pub refused: Vec<(&'static str, u64)>,
    /// Whether a parent is connected.
    pub is_attached: bool,
    pub ticks_sent: u64,
    /// Ticks that were not sent: no credit, or the connection was slow.
    pub ticks_skipped: u64,
    pub ticks_received: u64,
    /// Ticks that arrived after they were closed.
    pub ticks_late: u64,
    pub ticks_closed: u64,
    /// Ticks that wait to be computed again.
    pub dirty_ticks: u64,
    /// Ticks that were computed again.
    pub backfilled_ticks: u64,
    /// Requests sent to children.
    pub requests_sent: u64,
    /// Requests received from the parent.
    pub requests_received: u64,
    pub received_bytes: u64,
    pub sent_bytes: u64,
    /// Series that were not reduced or not sent because of a limit.
    pub refused_series: u64,
}

/// The figures of the nodes below an agent. They are computed once per second: the sampler, which
/// reads them, must not wait for the locks of the tree.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeFigures {
    /// Connected children.
    pub children: u64,
    /// The nodes below this agent by state: up, late, lost, refused.
    pub nodes: Vec<(&'static str, u64)>,
    pub reduced_series: u64,
    /// The clock of each child minus that of this agent, in seconds.
    pub clock_offsets: Vec<(String, f64)>,
    /// Nodes that stand out, with the number of figures in which they do.
    pub outliers: Vec<(String, u64)>,
}

/// A counter that many tasks increase.
#[derive(Debug, Default)]
pub(crate) struct TreeCount(AtomicU64);

impl TreeCount {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters of a tree.
#[derive(Debug, Default)]
pub(crate) struct TreeCounts {
    pub(crate) ticks_sent: TreeCount,
    pub(crate) ticks_skipped: TreeCount,
    pub(crate) ticks_received: TreeCount,
    pub(crate) ticks_late: TreeCount,
    pub(crate) ticks_closed: TreeCount,
    pub(crate) backfilled_ticks: TreeCount,
    pub(crate) requests_sent: TreeCount,
    pub(crate) requests_received: TreeCount,
    pub(crate) received_bytes: TreeCount,
    pub(crate) sent_bytes: TreeCount,
    pub(crate) refused_series: TreeCount,
}
