//! Connects the Graphite output to the agent: its threads, its status and its metrics.

use std::io;
use std::path::Path;
use std::sync::Arc;

use pegel_collect::SelfMetrics;
use pegel_metric::{Family, MetricKind};
use pegel_sink::graphite::{GraphiteCounts, GraphiteOutput, GraphiteOutputOptions};
use pegel_store::Store;
use serde_json::{Value, json};

use crate::agent_settings::AgentSettings;
use crate::agent_status::AgentStatus;

/// Where values wait for their server, in the directory of the store.
pub(crate) const SPOOL_DIR: &str = "graphite";

/// Starts the outputs to all configured servers.
pub(crate) fn start_graphite(
    plan: &AgentSettings,
    store: &Store,
) -> io::Result<Vec<GraphiteOutput>> {
    let outputs = plan.graphite.iter().map(|server| {
        GraphiteOutput::start(GraphiteOutputOptions {
            settings: server.0.clone(),
            node: plan.node.clone(),
            spool_dir: spool_dir(&plan.store.dir, &server.0.server_name()),
            store: store.clone(),
            clock: plan.store.clock.clone(),
            supervisor: store.supervisor().clone(),
        })
    });
    outputs.collect()
}

/// Returns the directory for the values of one server.
fn spool_dir(store: &Path, server: &str) -> std::path::PathBuf {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':');
    let name: String = { server.chars() }
        .map(|c| if is_plain(c) { c } else { '_' })
        .collect();
    store.join(SPOOL_DIR).join(name)
}

const fn counter(name: &'static str, help: &'static str) -> Family {
    Family::new(name, MetricKind::Counter, "", 0, help)
}

static FAMILIES: [Family; 4] = [
    counter(
        "pegel_graphite_sent_total",
        "Total number of values sent to a Graphite server.",
    ),
    counter(
        "pegel_graphite_errors_total",
        "Total number of failed attempts to connect to a Graphite server or to send to it.",
    ),
    counter(
        "pegel_graphite_dropped_total",
        "Total number of values that were not sent to a Graphite server, by reason.",
    ),
    Family::new(
        "pegel_graphite_spool_bytes",
        MetricKind::Gauge,
        "bytes",
        0,
        "Bytes on disk that wait for a Graphite server.",
    ),
];

/// The families of the metrics of this output.
pub(crate) fn families() -> impl Iterator<Item = &'static Family> {
    FAMILIES.iter()
}

/// Publishes the counts of all servers.
#[derive(Debug)]
pub(crate) struct GraphiteMetrics {
    status: Arc<AgentStatus>,
    families: Vec<Arc<Family>>,
}

impl GraphiteMetrics {
    pub(crate) fn new(status: &Arc<AgentStatus>) -> Arc<GraphiteMetrics> {
        Arc::new(GraphiteMetrics {
            status: status.clone(),
            families: FAMILIES.iter().cloned().map(Arc::new).collect(),
        })
    }
}

impl SelfMetrics for GraphiteMetrics {
    fn readings(&self, put: &mut dyn FnMut(&Arc<Family>, &[(&str, &str)], f64)) {
        let [sent, errors, dropped, spool] = self.families.as_slice() else {
            return;
        };
        for counts in self.status.graphite_counts() {
            let server = ("server", counts.server.as_str());
            put(sent, &[server], counts.sent as f64);
            put(errors, &[server], counts.errors as f64);
            put(
                dropped,
                &[("reason", "spool"), server],
                counts.dropped as f64,
            );
            let unsuitable = counts.unsuitable as f64;
            put(dropped, &[("reason", "unsuitable"), server], unsuitable);
            put(spool, &[server], counts.spool_bytes as f64);
        }
    }
}

/// Describes the outputs for `/status`.
pub(crate) fn status_json(counts: &[GraphiteCounts]) -> Value {
    let servers = counts.iter().map(|counts| {
        json!({
            "server": counts.server,
            "connected": counts.is_connected,
            "sent": counts.sent,
            "errors": counts.errors,
            "dropped": counts.dropped,
            "unsuitable": counts.unsuitable,
            "spool_bytes": counts.spool_bytes,
            "last_error": counts.last_error,
        })
    });
    servers.collect()
}
