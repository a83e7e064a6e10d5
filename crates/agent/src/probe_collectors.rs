//! Probes the collectors without an agent, for `pegel doctor`.

use std::sync::Arc;

use pegel_collect::{CollectorStatus, Sampler};
use pegel_metric::{Ledger, SystemClock};

use crate::agent_settings::AgentSettings;

/// Opens every enabled collector, takes one sample, discards it, and returns the status of each
/// collector.
pub fn probe_collectors(
    plan: &AgentSettings,
) -> Result<Vec<CollectorStatus>, pegel_collect::CollectSettingsError> {
    Sampler::sample_once(
        &plan.collect,
        plan.host.clone(),
        plan.level,
        Vec::new(),
        Arc::new(Ledger::default()),
        Arc::new(SystemClock),
        Box::new(|_| {}),
    )
}
