//! Options of machine snapshots, and metrics of scheduled cloud events.

use std::collections::BTreeMap;
use std::sync::Arc;

use pegel_collect::SelfMetrics;
use pegel_config::Setting;
use pegel_metric::{Family, MetricKind};
use pegel_snapshot::{OnceInputs, ProcessEnvironment, RedactedConfig, SnapshotOptions};

use crate::agent_settings::host;
use crate::agent_status::AgentStatus;
use crate::config_sources::{self, LoadedConfig};
use crate::store_dir;

static EVENT_FAMILY: Family = Family::new(
    "node_cloud_scheduled_event",
    MetricKind::Gauge,
    "",
    2,
    "Number of events that the cloud provider has scheduled for this machine, by type and status.",
);
static WATCHED_FAMILY: Family = Family::new(
    "node_cloud_events_watched",
    MetricKind::Gauge,
    "",
    2,
    "Whether the cloud provider's event service responds (1).",
);

/// The families of cloud metrics.
pub(crate) fn families() -> impl Iterator<Item = &'static Family> {
    [&EVENT_FAMILY, &WATCHED_FAMILY].into_iter()
}

/// The options of a snapshot.
pub fn snapshot_options(
    loaded: &LoadedConfig,
    environment: config_sources::EnvironmentLookup<'_>,
) -> SnapshotOptions {
    let config = &loaded.config;
    SnapshotOptions {
        root: host(environment).root,
        node: config
            .agent
            .node
            .clone()
            .unwrap_or_else(store_dir::host_name),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        environment: ProcessEnvironment::current(),
        configuration: Some(RedactedConfig::new(
            loaded.file.as_deref(),
            &config.to_value(),
        )),
        settings: config.agent.snapshot.clone(),
        once_inputs: OnceInputs::default(),
    }
}

/// Publishes scheduled cloud events.
#[derive(Debug)]
pub(crate) struct CloudMetrics {
    status: Arc<AgentStatus>,
    event: Arc<Family>,
    watched: Arc<Family>,
}

impl CloudMetrics {
    pub(crate) fn new(status: &Arc<AgentStatus>) -> Arc<CloudMetrics> {
        Arc::new(CloudMetrics {
            status: status.clone(),
            event: Arc::new(EVENT_FAMILY.clone()),
            watched: Arc::new(WATCHED_FAMILY.clone()),
        })
    }
}

impl SelfMetrics for CloudMetrics {
    fn readings(&self, put: &mut dyn FnMut(&Arc<Family>, &[(&str, &str)], f64)) {
        let Some((provider, events)) = self.status.cloud_events() else {
            return;
        };
        put(&self.watched, &[("provider", provider.as_str())], 1.0);
        let mut counts: BTreeMap<(&str, &str), f64> = BTreeMap::new();
        for event in &events {
            *counts.entry((&event.kind, &event.status)).or_default() += 1.0;
        }
        for ((kind, status), count) in counts {
            let labels = [
                ("provider", provider.as_str()),
                ("status", status),
                ("type", kind),
            ];
            put(&self.event, &labels, count);
        }
    }
}
