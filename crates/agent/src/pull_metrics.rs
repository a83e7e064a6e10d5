//! Metrics of the sources that the agent reads by itself.

use std::sync::Arc;

use pegel_collect::SelfMetrics;
use pegel_ingest::pull::PullState;
use pegel_metric::{Family, MetricKind};

use crate::agent_status::AgentStatus;

static FAMILIES: [Family; 6] = [
    Family::new(
        "pegel_input_up",
        MetricKind::Gauge,
        "",
        0,
        "Whether the last attempt to read an input succeeded (1).",
    ),
    Family::new(
        "pegel_input_duration_seconds",
        MetricKind::Gauge,
        "seconds",
        0,
        "Duration of the last attempt to read an input, in seconds.",
    ),
    Family::new(
        "pegel_input_samples",
        MetricKind::Gauge,
        "",
        0,
        "Number of samples that the last attempt to read an input stored.",
    ),
    Family::new(
        "pegel_input_refused_samples",
        MetricKind::Gauge,
        "",
        0,
        "Number of samples that the last attempt to read an input dropped.",
    ),
    Family::new(
        "pegel_input_attempts_total",
        MetricKind::Counter,
        "",
        0,
        "Total number of attempts to read an input.",
    ),
    Family::new(
        "pegel_input_failures_total",
        MetricKind::Counter,
        "",
        0,
        "Total number of attempts to read an input that failed.",
    ),
];

/// The families of the metrics of inputs.
pub(crate) fn families() -> impl Iterator<Item = &'static Family> {
    FAMILIES.iter()
}

/// Publishes the state of each input. Disabled inputs and those that were not read yet are absent.
#[derive(Debug)]
pub(crate) struct PullMetrics {
    status: Arc<AgentStatus>,
    families: Vec<Arc<Family>>,
}

impl PullMetrics {
    pub(crate) fn new(status: &Arc<AgentStatus>) -> Arc<PullMetrics> {
        Arc::new(PullMetrics {
            status: status.clone(),
            families: FAMILIES.iter().cloned().map(Arc::new).collect(),
        })
    }
}

impl SelfMetrics for PullMetrics {
    fn readings(&self, put: &mut dyn FnMut(&Arc<Family>, &[(&str, &str)], f64)) {
        let Some(inputs) = self.status.pull() else {
            return;
        };
        for input in inputs.statuses() {
            let is_up = match input.state {
                PullState::Up => 1.0,
                PullState::Failing => 0.0,
                PullState::Waiting | PullState::Disabled => continue,
            };
            let values = [
                is_up,
                input.duration,
                input.samples as f64,
                input.refused as f64,
                input.attempts as f64,
                input.failures as f64,
            ];
            let labels = [("input", input.name.as_str())];
            for (family, value) in self.families.iter().zip(values) {
                put(family, &labels, value);
            }
        }
    }
}
