//! What can be measured here, without an agent: for `pegel doctor`.

use std::sync::Arc;

use pegel_collect::{CollectorStatus, Sampler};
use pegel_metric::{Ledger, SystemClock};

use crate::agent_settings::AgentSettings;

/// Opens every collector that the plan allows, takes one sample for nobody, and says how each of them fared.
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
