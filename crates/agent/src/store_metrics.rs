//! Metrics of the store, in addition to its part of `/status`.

use std::sync::Arc;

use pegel_collect::SelfMetrics;
use pegel_metric::{Family, MetricKind};
use pegel_store::{Store, StoreStatus};

/// A metric and its value in the store's status. Level 0: always kept.
type StoreMetric = (Family, fn(&StoreStatus) -> f64);

static STORE_METRICS: [StoreMetric; 9] = [
    (
        Family::new(
            "pegel_store_series",
            MetricKind::Gauge,
            "",
            0,
            "Number of live series.",
        ),
        |status| status.series as f64,
    ),
    (
        Family::new(
            "pegel_store_memory_bytes",
            MetricKind::Gauge,
            "bytes",
            0,
            "Memory used by samples and series, in bytes.",
        ),
        |status| status.memory_bytes as f64,
    ),
    (
        Family::new(
            "pegel_store_log_bytes",
            MetricKind::Gauge,
            "bytes",
            0,
            "Size of the log on disk, in bytes.",
        ),
        |status| status.log_bytes as f64,
    ),
    (
        Family::new(
            "pegel_store_block_bytes",
            MetricKind::Gauge,
            "bytes",
            0,
            "Size of the blocks on disk, in bytes.",
        ),
        |status| status.block_bytes as f64,
    ),
    (
        Family::new(
            "pegel_store_duplicates_total",
            MetricKind::Counter,
            "",
            0,
            "Total number of samples that replaced one with the same time.",
        ),
        |status| status.duplicates as f64,
    ),
    (
        Family::new(
            "pegel_store_out_of_order_total",
            MetricKind::Counter,
            "",
            0,
            "Total number of samples that arrived out of order.",
        ),
        |status| status.out_of_order as f64,
    ),
    (
        Family::new(
            "pegel_store_set_aside",
            MetricKind::Gauge,
            "",
            0,
            "Number of unreadable files that were set aside since the start.",
        ),
        |status| status.set_aside.len() as f64,
    ),
    (
        Family::new(
            "pegel_store_damaged_blocks",
            MetricKind::Gauge,
            "",
            0,
            "Number of blocks with parts that could not be read.",
        ),
        |status| status.damaged_blocks as f64,
    ),
    (
        Family::new(
            "pegel_store_degraded",
            MetricKind::Gauge,
            "",
            0,
            "Whether the store cannot write to its disk, drops samples of the node, or has damaged blocks (1).",
        ),
        |status| f64::from(u8::from(status.degraded.is_some())),
    ),
];

/// The families of the store's metrics.
pub(crate) fn families() -> impl Iterator<Item = &'static Family> {
    STORE_METRICS.iter().map(|(family, _)| family)
}

#[derive(Debug)]
pub(crate) struct StoreMetrics {
    store: Store,
    families: Vec<Arc<Family>>,
}

impl StoreMetrics {
    pub(crate) fn new(store: &Store) -> Arc<StoreMetrics> {
        let families = STORE_METRICS
            .iter()
            .map(|(family, _)| Arc::new(family.clone()))
            .collect();
        Arc::new(StoreMetrics {
            store: store.clone(),
            families,
        })
    }
}

impl SelfMetrics for StoreMetrics {
    fn readings(&self, put: &mut dyn FnMut(&Arc<Family>, &[(&str, &str)], f64)) {
        let status = self.store.status();
        for (family, (_, figure)) in self.families.iter().zip(&STORE_METRICS) {
            put(family, &[], figure(&status));
        }
    }
}
