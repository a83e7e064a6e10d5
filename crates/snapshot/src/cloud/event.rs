//! Scheduled events of a cloud.

use serde::Serialize;

/// An event that the cloud announced for this machine, such as a reboot or an eviction.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct CloudEvent {
    /// In lower case: `preempt`, `reboot`, `redeploy`, `freeze`, `terminate`, `stop`, `hibernate`,
    /// `rebalance`, `migrate_on_host_maintenance`, …
    pub kind: String,
    /// `scheduled` or `started`.
    pub status: String,
    /// Earliest time, in the cloud's own format.
    pub not_before: Option<String>,
    pub id: Option<String>,
    pub source: Option<String>,
}
