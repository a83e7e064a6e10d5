//! Connects remote write out to the agent: its threads, its status and its metrics.

use std::io;
use std::path::Path;
use std::sync::Arc;

use pegel_collect::SelfMetrics;
use pegel_config::ByteSize;
use pegel_metric::{Family, MetricKind};
use pegel_query::promql::StoreSource;
use pegel_sink::remote_write::{
    RemoteWriteCounts, RemoteWriteOptions, RemoteWriteOutput, RemoteWriteTarget,
};
use pegel_store::Store;
use serde_json::{Value, json};

use crate::agent_settings::AgentSettings;
use crate::agent_status::AgentStatus;
use crate::store_dir::{FileSystemKind, file_system_kind};

/// The directory of the targets' positions, in the directory of the store.
pub(crate) const POSITIONS_DIR: &str = "remote_write";
/// How much of the log waits for a receiver if the store is on a tmpfs.
const TMPFS_LAG_BYTES: u64 = 16 << 20;

/// Returns the targets, with a smaller default for what may wait if the store is in memory.
pub(crate) fn targets(configured: &[RemoteWriteTarget], store: &Path) -> Vec<RemoteWriteTarget> {
    let mut targets = configured.to_vec();
    if !targets.is_empty() && file_system_kind(store) == FileSystemKind::Memory {
        for RemoteWriteTarget(settings) in &mut targets {
            let lag = &mut settings.lag;
            lag.get_or_insert_with(|| ByteSize::bytes(TMPFS_LAG_BYTES));
        }
    }
    targets
}

/// Starts the output to all targets; `None` without targets.
pub(crate) fn start_remote_write(
    plan: &AgentSettings,
    store: &Store,
    source: &StoreSource,
) -> io::Result<Option<RemoteWriteOutput>> {
    if plan.remote_write.is_empty() {
        return Ok(None);
    }
    let output = RemoteWriteOutput::start(RemoteWriteOptions {
        targets: plan.remote_write.clone(),
        node: source.node_labels().clone(),
        interval: source.tick_interval(),
        dir: plan.store.dir.join(POSITIONS_DIR),
        store: store.clone(),
        supervisor: store.supervisor().clone(),
    });
    output.map(Some)
}

const fn counter(name: &'static str, help: &'static str) -> Family {
    Family::new(name, MetricKind::Counter, "", 0, help)
}

const fn gauge(name: &'static str, unit: &'static str, help: &'static str) -> Family {
    Family::new(name, MetricKind::Gauge, unit, 0, help)
}

static FAMILIES: [Family; 9] = [
    counter(
        "pegel_remote_write_samples_total",
        "Total number of samples that a receiver of remote write confirmed.",
    ),
    counter(
        "pegel_remote_write_late_samples_total",
        "Total number of confirmed samples that were not newer than others of their series.",
    ),
    counter(
        "pegel_remote_write_bytes_total",
        "Total number of bytes of confirmed requests, compressed.",
    ),
    counter(
        "pegel_remote_write_errors_total",
        "Total number of failed attempts to send a request.",
    ),
    counter(
        "pegel_remote_write_dropped_total",
        "Total number of samples that were not sent or not accepted, by reason.",
    ),
    gauge(
        "pegel_remote_write_pending_samples",
        "",
        "Samples that are being sent.",
    ),
    gauge(
        "pegel_remote_write_pending_bytes",
        "bytes",
        "Bytes of the log that a receiver has not confirmed.",
    ),
    gauge(
        "pegel_remote_write_highest_sent_timestamp_seconds",
        "seconds",
        "Time of the newest sample that a receiver confirmed.",
    ),
    gauge(
        "pegel_remote_write_shards",
        "",
        "Requests that may be under way at a time.",
    ),
];

/// The families of the metrics of this output.
pub(crate) fn families() -> impl Iterator<Item = &'static Family> {
    FAMILIES.iter()
}

/// Publishes the counts of all targets.
#[derive(Debug)]
pub(crate) struct RemoteWriteMetrics {
    status: Arc<AgentStatus>,
    families: Vec<Arc<Family>>,
}

impl RemoteWriteMetrics {
    pub(crate) fn new(status: &Arc<AgentStatus>) -> Arc<RemoteWriteMetrics> {
        Arc::new(RemoteWriteMetrics {
            status: status.clone(),
            families: FAMILIES.iter().cloned().map(Arc::new).collect(),
        })
    }
}

/// Returns the numbers of samples that did not arrive, by reason.
fn dropped(counts: &RemoteWriteCounts) -> [(&'static str, u64); 7] {
    [
        ("collision", counts.hidden),
        ("damaged", counts.damaged),
        ("lag", counts.dropped_lag),
        ("refused", counts.refused),
        ("refused_again", counts.refused_again),
        ("replaced", counts.replaced),
        ("unlogged", counts.unlogged),
    ]
}

impl SelfMetrics for RemoteWriteMetrics {
    fn readings(&self, put: &mut dyn FnMut(&Arc<Family>, &[(&str, &str)], f64)) {
        let [
            samples,
            late,
            bytes,
            errors,
            drops,
            pending,
            pending_bytes,
            newest,
            shards,
        ] = self.families.as_slice()
        else {
            return;
        };
        for counts in self.status.remote_write_counts() {
            let target = ("target", counts.target.as_str());
            put(samples, &[target], counts.sent as f64);
            put(late, &[target], counts.sent_late as f64);
            put(bytes, &[target], counts.bytes as f64);
            put(errors, &[target], counts.errors as f64);
            for (reason, count) in dropped(&counts) {
                put(drops, &[("reason", reason), target], count as f64);
            }
            put(pending, &[target], counts.pending as f64);
            put(pending_bytes, &[target], counts.pending_bytes as f64);
            if let Some(time) = counts.newest_sent {
                put(newest, &[target], time as f64 / 1000.0);
            }
            put(shards, &[target], counts.shards as f64);
        }
    }
}

/// Describes the targets for `/status`.
pub(crate) fn status_json(counts: &[RemoteWriteCounts]) -> Value {
    let targets = counts.iter().map(|counts| {
        let dropped = dropped(counts).into_iter();
        let dropped: Value = dropped
            .map(|(reason, count)| (reason.to_owned(), json!(count)))
            .collect();
        json!({
            "target": counts.target,
            "version": counts.version,
            "shards": counts.shards,
            "sent": counts.sent,
            "sent_late": counts.sent_late,
            "requests": counts.requests,
            "bytes": counts.bytes,
            "errors": counts.errors,
            "dropped": dropped,
            "pending": counts.pending,
            "pending_bytes": counts.pending_bytes,
            "newest_sent": counts.newest_sent,
            "last_error": counts.last_error,
            "last_refusal": counts.last_refusal,
        })
    });
    targets.collect()
}
