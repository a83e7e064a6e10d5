//! The state of the lanes, as shown in `/status`.

use std::collections::BTreeMap;

use serde::Serialize;

/// The state of the lanes in `/status`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct LanesStatus {
    /// The directories of lanes.
    pub directories: Vec<String>,
    /// Directories that cannot be used, or whose lanes are not all read, and why.
    pub faults: Vec<String>,
    /// The number of lanes of running programs.
    pub alive: u64,
    /// The number of lanes of ended programs whose files still exist.
    pub ended: u64,
    /// The number of lanes that another agent counted before: this one counts from its first
    /// reading on.
    pub counted_elsewhere: u64,
    /// The number of files that are not read, by reason.
    pub refused: BTreeMap<String, u64>,
    /// The processes of running programs, by job and user.
    #[serde(skip)]
    pub jobs: BTreeMap<(String, u32), Vec<u32>>,
    /// Why the lane journal cannot be written, if so. The agent is degraded then.
    pub journal: Option<String>,
}

impl LanesStatus {
    /// Returns messages for the start of the agent.
    pub fn remarks(&self) -> Vec<String> {
        let faults = self.faults.iter().map(|fault| format!("lanes: {fault}"));
        let elsewhere = (self.counted_elsewhere > 0).then(|| {
            format!(
                "lanes: {} were counted by another agent before; this agent counts from now on",
                self.counted_elsewhere
            )
        });
        faults.chain(elsewhere).collect()
    }
}
