//! Connects the archive to the agent: its thread, its status and its metrics.

use std::io;
use std::sync::Arc;

use pegel_archive::{ArchiveCounts, Archiver, ArchiverOptions, load_progress};
use pegel_collect::SelfMetrics;
use pegel_metric::{Family, MetricKind};
use pegel_store::{ArchiveProgress, Store};
use serde_json::{Value, json};

use crate::agent_settings::AgentSettings;
use crate::agent_status::AgentStatus;

/// Loads which blocks are archived, before the store is opened: retention needs it from the start.
pub(crate) fn archive_progress(plan: &AgentSettings) -> Option<Arc<ArchiveProgress>> {
    let place = plan.archive.to.as_ref()?;
    Some(Arc::new(load_progress(&plan.store.dir, &place.to_string())))
}

/// Starts the archive, if there is one.
pub(crate) fn start_archive(plan: &AgentSettings, store: &Store) -> io::Result<Option<Archiver>> {
    let (Some(place), Some(progress)) = (&plan.archive.to, store.archive_progress()) else {
        return Ok(None);
    };
    let archiver = Archiver::start(ArchiverOptions {
        settings: plan.archive.clone(),
        place: place.clone(),
        node: plan.node.clone(),
        dir: plan.store.dir.clone(),
        store: store.clone(),
        progress: progress.clone(),
        clock: plan.store.clock.clone(),
        supervisor: store.supervisor().clone(),
    })?;
    Ok(Some(archiver))
}

const fn counter(name: &'static str, help: &'static str) -> Family {
    Family::new(name, MetricKind::Counter, "", 0, help)
}

static FAMILIES: [Family; 7] = [
    counter(
        "pegel_archive_samples_total",
        "Total number of samples in the files that were archived.",
    ),
    counter(
        "pegel_archive_files_total",
        "Total number of files that were archived.",
    ),
    counter(
        "pegel_archive_bytes_total",
        "Total size of the files that were archived, in bytes.",
    ),
    counter(
        "pegel_archive_errors_total",
        "Total number of failed attempts to store in the archive, checks of the place included.",
    ),
    counter(
        "pegel_archive_dropped_total",
        "Total number of samples that were not archived, by reason: dropped by retention before, or \
         archived already.",
    ),
    Family::new(
        "pegel_archive_pending_blocks",
        MetricKind::Gauge,
        "",
        0,
        "Number of finished blocks that are not archived yet.",
    ),
    Family::new(
        "pegel_archive_last_success_timestamp_seconds",
        MetricKind::Gauge,
        "seconds",
        0,
        "Time at which a block was last archived, in seconds since 1970; 0 if none was.",
    ),
];

/// The families of the metrics of the archive.
pub(crate) fn families() -> impl Iterator<Item = &'static Family> {
    FAMILIES.iter()
}

/// Publishes the counts of the archive.
#[derive(Debug)]
pub(crate) struct ArchiveMetrics {
    status: Arc<AgentStatus>,
    families: Vec<Arc<Family>>,
}

impl ArchiveMetrics {
    pub(crate) fn new(status: &Arc<AgentStatus>) -> Arc<ArchiveMetrics> {
        Arc::new(ArchiveMetrics {
            status: status.clone(),
            families: FAMILIES.iter().cloned().map(Arc::new).collect(),
        })
    }
}

impl SelfMetrics for ArchiveMetrics {
    fn readings(&self, put: &mut dyn FnMut(&Arc<Family>, &[(&str, &str)], f64)) {
        let [samples, files, bytes, errors, dropped, pending, last] = self.families.as_slice()
        else {
            return;
        };
        let Some(counts) = self.status.archive_counts() else {
            return;
        };
        put(samples, &[], counts.samples as f64);
        put(files, &[], counts.files as f64);
        put(bytes, &[], counts.bytes as f64);
        put(errors, &[], counts.errors as f64);
        put(
            dropped,
            &[("reason", "retention")],
            counts.lost_samples as f64,
        );
        put(dropped, &[("reason", "repeated")], counts.repeated as f64);
        put(pending, &[], counts.pending_blocks as f64);
        put(last, &[], counts.last_archived.unwrap_or(0) as f64 / 1000.0);
    }
}

/// Describes the archive for `/status`.
pub(crate) fn status_json(counts: &ArchiveCounts) -> Value {
    json!({
        "to": counts.place,
        "blocks": counts.blocks,
        "files": counts.files,
        "existing_files": counts.existing_files,
        "samples": counts.samples,
        "bytes": counts.bytes,
        "repeated": counts.repeated,
        "damaged_columns": counts.damaged_columns,
        "errors": counts.errors,
        "lost_samples": counts.lost_samples,
        "lost_blocks": counts.lost_blocks,
        "pending_blocks": counts.pending_blocks,
        "last_archived": counts.last_archived,
        "last_error": counts.last_error,
    })
}
