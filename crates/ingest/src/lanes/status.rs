use std::collections::BTreeMap;

use serde::Serialize;

/// What `/status` says about lanes.
#[derive(Debug, Clone, Default, Serialize)]
pub struct LanesStatus {
    /// Where they are looked for.
    pub directories: Vec<String>,
    /// Directories that cannot be used, and why.
    pub faults: Vec<String>,
    /// Lanes of programs that run.
    pub alive: u64,
    /// Lanes of programs that ended, whose files are still there.
    pub ended: u64,
    /// Files that are not read, by the reason.
    pub refused: BTreeMap<String, u64>,
    /// Why what lanes counted cannot be remembered, if so.
    pub journal: Option<String>,
}
