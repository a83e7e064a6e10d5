//! Connects the OTLP output to the agent: its threads, its status and its metrics.

use std::io;
use std::sync::Arc;

use pegel_collect::SelfMetrics;
use pegel_metric::{Family, MetricKind};
use pegel_sink::otlp::{OtlpCounts, OtlpOutput, OtlpOutputOptions};
use pegel_store::Store;
use serde_json::{Value, json};

use crate::agent_settings::AgentSettings;
use crate::agent_status::AgentStatus;

/// Starts the outputs to all configured receivers.
pub(crate) fn start_otlp(
    plan: &AgentSettings,
    store: &Store,
    version: &str,
) -> io::Result<Vec<OtlpOutput>> {
    let outputs = plan.otlp.iter().map(|receiver| {
        OtlpOutput::start(OtlpOutputOptions {
            settings: receiver.0.clone(),
            node: plan.node.clone(),
            version: version.to_owned(),
            store: store.clone(),
            clock: plan.store.clock.clone(),
            supervisor: store.supervisor().clone(),
        })
    });
    outputs.collect()
}

const fn counter(name: &'static str, help: &'static str) -> Family {
    Family::new(name, MetricKind::Counter, "", 0, help)
}

static FAMILIES: [Family; 3] = [
    counter(
        "pegel_otlp_sent_total",
        "Total number of data points that an OTLP receiver accepted.",
    ),
    counter(
        "pegel_otlp_errors_total",
        "Total number of failed attempts to send to an OTLP receiver.",
    ),
    counter(
        "pegel_otlp_dropped_total",
        "Total number of data points that an OTLP receiver did not get or did not accept, by reason.",
    ),
];

/// The families of the metrics of this output.
pub(crate) fn families() -> impl Iterator<Item = &'static Family> {
    FAMILIES.iter()
}

/// Publishes the counts of all receivers.
#[derive(Debug)]
pub(crate) struct OtlpMetrics {
    status: Arc<AgentStatus>,
    families: Vec<Arc<Family>>,
}

impl OtlpMetrics {
    pub(crate) fn new(status: &Arc<AgentStatus>) -> Arc<OtlpMetrics> {
        Arc::new(OtlpMetrics {
            status: status.clone(),
            families: FAMILIES.iter().cloned().map(Arc::new).collect(),
        })
    }
}

impl SelfMetrics for OtlpMetrics {
    fn readings(&self, put: &mut dyn FnMut(&Arc<Family>, &[(&str, &str)], f64)) {
        let [sent, errors, dropped] = self.families.as_slice() else {
            return;
        };
        for counts in self.status.otlp_counts() {
            let receiver = ("receiver", counts.receiver.as_str());
            put(sent, &[receiver], counts.sent as f64);
            put(errors, &[receiver], counts.errors as f64);
            for (reason, count) in [
                ("interval", counts.dropped),
                ("rejected", counts.rejected),
                ("unsuitable", counts.unsuitable),
            ] {
                put(dropped, &[("reason", reason), receiver], count as f64);
            }
        }
    }
}

/// Describes the outputs for `/status`.
pub(crate) fn status_json(counts: &[OtlpCounts]) -> Value {
    let receivers = counts.iter().map(|counts| {
        json!({
            "receiver": counts.receiver,
            "connected": counts.is_connected,
            "sent": counts.sent,
            "errors": counts.errors,
            "dropped": counts.dropped,
            "rejected": counts.rejected,
            "unsuitable": counts.unsuitable,
            "last_error": counts.last_error,
        })
    });
    receivers.collect()
}
