use serde::Serialize;

/// Something that the cloud is about to do to this machine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct CloudEvent {
    /// In lower case: `preempt`, `reboot`, `redeploy`, `freeze`, `terminate`, `stop`, `hibernate`, `rebalance`,
    /// `migrate_on_host_maintenance`, …
    pub kind: String,
    /// `scheduled` or `started`.
    pub status: String,
    /// As the cloud writes it.
    pub not_before: Option<String>,
    pub id: Option<String>,
    pub source: Option<String>,
}
