//! What this machine is, and what its cloud is about to do to it: from the configuration to the keeper of
//! the snapshot, and from there to a metric.

use std::collections::BTreeMap;
use std::sync::Arc;

use pegel_collect::Own;
use pegel_config::Setting;
use pegel_metric::{Family, Kind};
use pegel_snapshot::{ProcessEnvironment, RedactedConfig, SnapshotOptions};

use crate::place;
use crate::plan::host;
use crate::source::Source;
use crate::sources::{self, Loaded};

static EVENT: Family = Family::new(
    "node_cloud_scheduled_event",
    Kind::Gauge,
    "",
    2,
    "Events that the cloud has announced for this machine, by what will happen and whether it has begun.",
);
static WATCHED: Family = Family::new(
    "node_cloud_events_watched",
    Kind::Gauge,
    "",
    2,
    "1 where a cloud answers when it is asked for events.",
);

/// What is published about the cloud.
pub(crate) fn families() -> impl Iterator<Item = &'static Family> {
    [&EVENT, &WATCHED].into_iter()
}

/// What a snapshot looks at.
pub fn snapshot_subject(loaded: &Loaded, environment: sources::Environment<'_>) -> SnapshotOptions {
    let config = &loaded.config;
    SnapshotOptions {
        root: host(environment).root,
        node: config.own.node.clone().unwrap_or_else(place::host_name),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        environment: ProcessEnvironment::current(),
        configuration: Some(RedactedConfig::new(
            loaded.file.as_deref(),
            &config.written(),
        )),
        azure_batch_log: config.own.snapshot.azure_batch_log.clone(),
        cloud: config.own.snapshot.cloud,
    }
}

/// Publishes what the cloud is about to do.
#[derive(Debug)]
pub(crate) struct CloudFigures {
    source: Arc<Source>,
    event: Arc<Family>,
    watched: Arc<Family>,
}

impl CloudFigures {
    pub fn new(source: &Arc<Source>) -> Arc<CloudFigures> {
        Arc::new(CloudFigures {
            source: source.clone(),
            event: Arc::new(EVENT.clone()),
            watched: Arc::new(WATCHED.clone()),
        })
    }
}

impl Own for CloudFigures {
    fn readings(&self, put: &mut dyn FnMut(&Arc<Family>, &[(&str, &str)], f64)) {
        let Some((provider, events)) = self.source.cloud_events() else {
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
