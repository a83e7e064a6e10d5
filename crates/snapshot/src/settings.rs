//! The section `snapshot` of the configuration.

use std::path::PathBuf;

use pegel_config::{TimeSpan, settings};

settings! {
    /// Description of this machine.
    pub struct SnapshotSettings {
        /// Interval between snapshots of the machine, at least 1s. Only changes are stored.
        every: TimeSpan = TimeSpan::seconds(300),
        /// Query the cloud's metadata service, if the firmware names a cloud. Only values on an
        /// allow-list are used.
        cloud: bool = true,
        /// Log file of the Azure Batch node agent, the source of allocation and boot times.
        azure_batch_log: PathBuf = PathBuf::from("/mnt/batch/sys/logs/agent-debug.log"),
    }
}
