//! What the store publishes about itself, beside what `/status` says.

use std::sync::Arc;

use pegel_collect::SelfMetrics;
use pegel_metric::{Family, MetricKind};
use pegel_store::{Store, StoreStatus};

/// A figure, and where it stands in the store's status. Always kept: level 0.
type StoreMetric = (Family, fn(&StoreStatus) -> f64);

static STORE_METRICS: [StoreMetric; 9] = [
    (
        Family::new(
            "pegel_store_series",
            MetricKind::Gauge,
            "",
            0,
            "Live series.",
        ),
        |status| status.series as f64,
    ),
    (
        Family::new(
            "pegel_store_memory_bytes",
            MetricKind::Gauge,
            "bytes",
            0,
            "What samples and series take in memory.",
        ),
        |status| status.memory_bytes as f64,
    ),
    (
        Family::new(
            "pegel_store_log_bytes",
            MetricKind::Gauge,
            "bytes",
            0,
            "What the log takes on disk.",
        ),
        |status| status.log_bytes as f64,
    ),
    (
        Family::new(
            "pegel_store_block_bytes",
            MetricKind::Gauge,
            "bytes",
            0,
            "What the blocks take on disk.",
        ),
        |status| status.block_bytes as f64,
    ),
    (
        Family::new(
            "pegel_store_duplicates_total",
            MetricKind::Counter,
            "",
            0,
            "Samples that replaced one of the same time.",
        ),
        |status| status.duplicates as f64,
    ),
    (
        Family::new(
            "pegel_store_out_of_order_total",
            MetricKind::Counter,
            "",
            0,
            "Samples that came after younger ones.",
        ),
        |status| status.out_of_order as f64,
    ),
    (
        Family::new(
            "pegel_store_set_aside",
            MetricKind::Gauge,
            "",
            0,
            "Files that could not be read and were set aside since the start.",
        ),
        |status| status.set_aside.len() as f64,
    ),
    (
        Family::new(
            "pegel_store_damaged_blocks",
            MetricKind::Gauge,
            "",
            0,
            "Blocks of which a reader could not read everything.",
        ),
        |status| status.damaged_blocks as f64,
    ),
    (
        Family::new(
            "pegel_store_degraded",
            MetricKind::Gauge,
            "",
            0,
            "1 while the store cannot write to its disk, drops samples of the node, or has damaged blocks.",
        ),
        |status| f64::from(u8::from(status.degraded.is_some())),
    ),
];

/// What the store publishes.
pub(crate) fn families() -> impl Iterator<Item = &'static Family> {
    STORE_METRICS.iter().map(|(family, _)| family)
}

#[derive(Debug)]
pub(crate) struct StoreMetrics {
    store: Store,
    families: Vec<Arc<Family>>,
}

impl StoreMetrics {
    pub fn new(store: &Store) -> Arc<StoreMetrics> {
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
