//! The `snapshot:` key.

use std::path::PathBuf;

use pegel_config::{Span, settings};

settings! {
    /// How this machine is described.
    pub struct SnapshotConfig {
        /// How often the machine is looked at, to notice what changed; at most once a second.
        every: Span = Span::seconds(300),
        /// Whether the metadata service of a cloud is asked, where the firmware names one. Only values
        /// on a list are taken.
        cloud: bool = true,
        /// The log of Azure Batch's node agent, for the times of allocation and boot.
        azure_batch_log: PathBuf = PathBuf::from("/mnt/batch/sys/logs/agent-debug.log"),
    }
}
