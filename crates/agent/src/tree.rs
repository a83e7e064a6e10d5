//! Connects the tree to the agent: its settings, its status and its metrics.

use std::net::SocketAddr;
use std::sync::Arc;

use pegel_collect::SelfMetrics;
use pegel_metric::{Family, MetricKind, Millis};
use pegel_serve::LocalUsers;
use pegel_store::Store;
use pegel_tree::{LocalUserPolicy, Tree, TreeFigures, TreeOptions};

use crate::agent_settings::AgentSettings;
use crate::agent_status::AgentStatus;
use crate::running_agent::AgentStartError;

/// Implements the policy with the server's knowledge of local users.
#[derive(Debug)]
struct TreeUserPolicy(LocalUsers);

impl LocalUserPolicy for TreeUserPolicy {
    fn owner_of(&self, client: SocketAddr, server: SocketAddr) -> Option<u32> {
        self.0.owner_of(client, server)
    }

    fn admits(&self, uid: u32) -> bool {
        self.0.admits(uid)
    }
}

/// Binds the address for children and loads the credentials; `None` if no tree is configured.
pub(crate) fn bind_tree(
    plan: &AgentSettings,
    store: &Store,
    version: &str,
    started: Millis,
) -> Result<Option<Tree>, AgentStartError> {
    if !plan.tree.is_configured() {
        return Ok(None);
    }
    let options = TreeOptions {
        settings: plan.tree.clone(),
        node: plan.node.clone(),
        version: version.to_owned(),
        dir: plan.store.dir.clone(),
        store: store.clone(),
        clock: plan.store.clock.clone(),
        supervisor: store.supervisor().clone(),
        started,
        sample_interval: plan.collect.rate,
        local_users: Arc::new(TreeUserPolicy(LocalUsers::new(
            &plan.serve.admitted_users(),
        )?)),
        series_max: plan.store.limits.series.get() as usize,
    };
    Ok(Some(Tree::bind(options)?))
}

const fn counter(name: &'static str, help: &'static str) -> Family {
    Family::new(name, MetricKind::Counter, "", 0, help)
}

const fn gauge(name: &'static str, unit: &'static str, help: &'static str) -> Family {
    Family::new(name, MetricKind::Gauge, unit, 0, help)
}

/// A family, and the figure that it shows.
type TreeMetric = (Family, fn(&TreeFigures) -> f64);

/// The figures without labels.
static FIGURES: [TreeMetric; 15] = [
    (
        gauge("pegel_tree_children", "", "Number of connected children."),
        |figures| figures.below.children as f64,
    ),
    (
        gauge(
            "pegel_tree_attached",
            "",
            "1 if a parent is connected, else 0.",
        ),
        |figures| f64::from(u8::from(figures.is_attached)),
    ),
    (
        counter(
            "pegel_tree_ticks_sent_total",
            "Total number of ticks sent to a parent.",
        ),
        |figures| figures.ticks_sent as f64,
    ),
    (
        counter(
            "pegel_tree_ticks_skipped_total",
            "Total number of ticks that were not sent: the parent or the connection was slow.",
        ),
        |figures| figures.ticks_skipped as f64,
    ),
    (
        counter(
            "pegel_tree_ticks_received_total",
            "Total number of ticks received from children.",
        ),
        |figures| figures.ticks_received as f64,
    ),
    (
        counter(
            "pegel_tree_ticks_late_total",
            "Total number of ticks that arrived after their reduction was written.",
        ),
        |figures| figures.ticks_late as f64,
    ),
    (
        counter(
            "pegel_tree_ticks_closed_total",
            "Total number of ticks whose reduction was written.",
        ),
        |figures| figures.ticks_closed as f64,
    ),
    (
        gauge(
            "pegel_tree_dirty_ticks",
            "",
            "Number of ticks whose reduction waits to be computed again.",
        ),
        |figures| figures.dirty_ticks as f64,
    ),
    (
        counter(
            "pegel_tree_backfilled_ticks_total",
            "Total number of ticks whose reduction was computed again.",
        ),
        |figures| figures.backfilled_ticks as f64,
    ),
    (
        counter(
            "pegel_tree_requests_sent_total",
            "Total number of requests sent to children.",
        ),
        |figures| figures.requests_sent as f64,
    ),
    (
        counter(
            "pegel_tree_requests_received_total",
            "Total number of requests received from a parent.",
        ),
        |figures| figures.requests_received as f64,
    ),
    (
        counter(
            "pegel_tree_received_bytes_total",
            "Total number of bytes received from children and parents.",
        ),
        |figures| figures.received_bytes as f64,
    ),
    (
        counter(
            "pegel_tree_sent_bytes_total",
            "Total number of bytes sent to children and parents.",
        ),
        |figures| figures.sent_bytes as f64,
    ),
    (
        gauge(
            "pegel_tree_reduced_series",
            "",
            "Number of series that are reduced over nodes.",
        ),
        |figures| figures.below.reduced_series as f64,
    ),
    (
        counter(
            "pegel_tree_refused_series_total",
            "Total number of series that exceeded a limit and were not reduced.",
        ),
        |figures| figures.refused_series as f64,
    ),
];

static NODES: Family = gauge("pegel_tree_nodes", "", "Number of nodes below this agent.");
static REFUSED: Family = counter(
    "pegel_tree_refused_total",
    "Total number of refused connections and streams.",
);
static CLOCK_OFFSET: Family = gauge(
    "pegel_tree_clock_offset_seconds",
    "seconds",
    "The clock of a child minus the clock of this agent, in seconds.",
);
static OUTLIERS: Family = gauge(
    "pegel_tree_outliers",
    "",
    "Number of figures in which a node stands out.",
);

/// The families of the tree's metrics.
pub(crate) fn families() -> impl Iterator<Item = &'static Family> {
    let labelled = [&NODES, &REFUSED, &CLOCK_OFFSET, &OUTLIERS];
    FIGURES.iter().map(|(family, _)| family).chain(labelled)
}

/// Publishes the figures of the tree.
#[derive(Debug)]
pub(crate) struct TreeMetrics {
    status: Arc<AgentStatus>,
    figures: Vec<Arc<Family>>,
    nodes: Arc<Family>,
    refused: Arc<Family>,
    clock_offset: Arc<Family>,
    outliers: Arc<Family>,
}

impl TreeMetrics {
    pub(crate) fn new(status: &Arc<AgentStatus>) -> Arc<TreeMetrics> {
        let figures = FIGURES.iter().map(|(family, _)| Arc::new(family.clone()));
        Arc::new(TreeMetrics {
            status: status.clone(),
            figures: figures.collect(),
            nodes: Arc::new(NODES.clone()),
            refused: Arc::new(REFUSED.clone()),
            clock_offset: Arc::new(CLOCK_OFFSET.clone()),
            outliers: Arc::new(OUTLIERS.clone()),
        })
    }
}

impl SelfMetrics for TreeMetrics {
    fn readings(&self, put: &mut dyn FnMut(&Arc<Family>, &[(&str, &str)], f64)) {
        let Some(figures) = self.status.tree_figures() else {
            return;
        };
        for (family, (_, read)) in self.figures.iter().zip(&FIGURES) {
            put(family, &[], read(&figures));
        }
        for (state, count) in &figures.below.nodes {
            put(&self.nodes, &[("state", state)], *count as f64);
        }
        for (reason, count) in &figures.refused {
            put(&self.refused, &[("reason", reason)], *count as f64);
        }
        for (child, seconds) in &figures.below.clock_offsets {
            put(&self.clock_offset, &[("child", child)], *seconds);
        }
        for (node, count) in &figures.below.outliers {
            put(&self.outliers, &[("host", node)], *count as f64);
        }
    }
}
