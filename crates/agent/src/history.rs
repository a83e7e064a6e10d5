//! Connects the history to the agent: its status and its metrics.

use std::sync::Arc;

use pegel_collect::SelfMetrics;
use pegel_history::HistoryStatus;
use pegel_metric::{Family, MetricKind};
use serde_json::{Map, Value, json};

use crate::agent_status::AgentStatus;

const fn counter(name: &'static str, unit: &'static str, help: &'static str) -> Family {
    Family::new(name, MetricKind::Counter, unit, 0, help)
}

static FAMILIES: [Family; 6] = [
    counter(
        "pegel_history_requests_total",
        "",
        "Total number of requests to the engine of the history.",
    ),
    counter(
        "pegel_history_incomplete_total",
        "",
        "Total number of answers that lack a part of the history, by reason.",
    ),
    counter(
        "pegel_history_received_bytes_total",
        "bytes",
        "Total number of bytes received from the engine of the history.",
    ),
    counter(
        "pegel_history_samples_total",
        "",
        "Total number of samples received from the engine of the history.",
    ),
    counter(
        "pegel_history_cache_lookups_total",
        "",
        "Total number of lookups in the cache of the history, by result.",
    ),
    Family::new(
        "pegel_history_cache_bytes",
        MetricKind::Gauge,
        "bytes",
        0,
        "Memory used by the cache of the history.",
    ),
];

/// The families of the metrics of the history.
pub(crate) fn families() -> impl Iterator<Item = &'static Family> {
    FAMILIES.iter()
}

/// Publishes the counts of the history.
#[derive(Debug)]
pub(crate) struct HistoryMetrics {
    status: Arc<AgentStatus>,
    families: Vec<Arc<Family>>,
}

impl HistoryMetrics {
    pub(crate) fn new(status: &Arc<AgentStatus>) -> Arc<HistoryMetrics> {
        Arc::new(HistoryMetrics {
            status: status.clone(),
            families: FAMILIES.iter().cloned().map(Arc::new).collect(),
        })
    }
}

impl SelfMetrics for HistoryMetrics {
    fn readings(&self, put: &mut dyn FnMut(&Arc<Family>, &[(&str, &str)], f64)) {
        let [requests, incomplete, received, samples, lookups, cached] = self.families.as_slice()
        else {
            return;
        };
        let Some(status) = self.status.history() else {
            return;
        };
        put(requests, &[], status.requests as f64);
        for (reason, count) in &status.problems {
            put(incomplete, &[("reason", reason)], *count as f64);
        }
        put(received, &[], status.received_bytes as f64);
        put(samples, &[], status.samples as f64);
        put(lookups, &[("result", "hit")], status.cache_hits as f64);
        put(lookups, &[("result", "miss")], status.cache_misses as f64);
        put(cached, &[], status.cache_bytes as f64);
    }
}

/// Describes the history for `/status`.
pub(crate) fn status_json(status: &HistoryStatus) -> Value {
    let incomplete = status.problems.iter().filter(|(_, count)| *count > 0);
    let incomplete: Map<String, Value> = incomplete
        .map(|(reason, count)| ((*reason).to_owned(), json!(count)))
        .collect();
    json!({
        "url": status.address,
        "api": status.api,
        "requests": status.requests,
        "received_bytes": status.received_bytes,
        "samples": status.samples,
        "cache_hits": status.cache_hits,
        "cache_misses": status.cache_misses,
        "cache_bytes": status.cache_bytes,
        "incomplete": incomplete,
        "last_error": status.last_error,
        "last_error_kind": status.last_error_kind,
    })
}
