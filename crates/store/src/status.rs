//! The status of the store as `/status` shows it. The field names are part of that JSON.

use std::path::PathBuf;

use pegel_metric::Millis;
use serde::Serialize;

/// The state of the store, as `/status` shows it.
#[derive(Debug, Clone, Serialize)]
pub struct StoreStatus {
    pub dir: PathBuf,
    /// Live series.
    pub series: u64,
    /// Memory used by samples and series.
    pub memory_bytes: u64,
    pub log_bytes: u64,
    pub block_bytes: u64,
    pub blocks: u64,
    /// The part of `block_bytes` that each class of inputs uses, and its reserved share.
    pub classes: Vec<ClassUsage>,
    /// The times of the oldest and the newest sample.
    pub oldest: Option<Millis>,
    pub newest: Option<Millis>,
    pub duplicates: u64,
    pub out_of_order: u64,
    /// Bytes discarded at the end of the log at start: an incomplete write before a crash.
    pub torn_bytes: u64,
    /// Files that were unreadable, wholly or in part, and were set aside.
    pub set_aside: Vec<PathBuf>,
    /// Blocks with unreadable parts. They are kept until they expire, because the rest of them is
    /// intact.
    pub damaged_blocks: u64,
    /// The reason why the store is degraded, and since when: the log or blocks cannot be written,
    /// samples of the node are dropped, or blocks are damaged.
    pub degraded: Option<Degradation>,
}

/// The blocks of one class of inputs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClassUsage {
    pub class: &'static str,
    pub block_bytes: u64,
    /// The bytes reserved for the class.
    pub share_bytes: u64,
    /// The time of its oldest sample in a block.
    pub oldest: Option<Millis>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Degradation {
    pub reason: String,
    pub since: Millis,
}
