use std::collections::BTreeMap;

use serde::Serialize;

/// What `/status` says about lanes.
#[derive(Debug, Clone, Default, Serialize)]
pub struct LanesStatus {
    /// Where they are looked for.
    pub directories: Vec<String>,
    /// Directories that cannot be used, or whose lanes are not all read, and why.
    pub faults: Vec<String>,
    /// Lanes of programs that run.
    pub alive: u64,
    /// Lanes of programs that ended, whose files are still there.
    pub ended: u64,
    /// Lanes that another agent counted before: this one counts from its first reading on.
    pub counted_elsewhere: u64,
    /// Files that are not read, by the reason.
    pub refused: BTreeMap<String, u64>,
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
