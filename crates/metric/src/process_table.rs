//! The processes of the node as of one pass of the collector `top_processes`, for the server. Plain
//! data: the collector builds it, the agent hands it to the server, nothing stores it.

use std::sync::Arc;

use crate::Millis;

/// All processes that the collector knows, ordered by ID.
#[derive(Debug, Clone, Default)]
pub struct ProcessTable {
    /// When the pass ended.
    pub time: Millis,
    /// The time between two passes, in seconds.
    pub interval: f64,
    pub rows: Vec<ProcessRow>,
}

/// One process. Texts are printable: control and invisible characters are escaped.
#[derive(Debug, Clone)]
pub struct ProcessRow {
    pub pid: u32,
    /// The program's name, which every process chooses for itself.
    pub comm: Arc<str>,
    /// The effective user; `None` if the process ended before it was read.
    pub uid: Option<u32>,
    /// The name of the effective user, or its number if it has no name.
    pub user: Arc<str>,
    pub threads: u64,
    /// The kernel's letter: R running, S sleeping, D waiting for a device, Z zombie.
    pub state: char,
    /// CPU time used per second since the previous reading, in cores.
    pub cpu: f64,
    /// Resident memory in bytes.
    pub memory: u64,
    /// Bytes read from and written to devices per second; `None` if the agent may not read them, or
    /// has read them only once.
    pub io: Option<ProcessIoRates>,
    /// GPU memory in bytes; `None` if it uses no GPU.
    pub gpu_memory: Option<u64>,
    /// The path of its control group.
    pub cgroup: Arc<str>,
    /// The ID of the batch job to which it belongs.
    pub job: Option<Arc<str>>,
    /// Seconds since 1970.
    pub started: i64,
    /// The command line with secrets redacted; `None` for kernel threads. Confidential: see
    /// [`ProcessRow::command_for`].
    pub command: Option<Arc<str>>,
    /// The only user who owned the process when its command line was read; `None` if its user IDs
    /// differed, as in a set-user-ID program.
    pub owner: Option<u32>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ProcessIoRates {
    pub read: f64,
    pub write: f64,
}

/// The command lines that a client may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandVisibility {
    All,
    /// Those of processes that this user owns.
    OwnedBy(u32),
    None,
}

impl ProcessRow {
    /// Returns the command line if a client may see it.
    pub fn command_for(&self, visible: CommandVisibility) -> Option<&str> {
        let is_visible = match visible {
            CommandVisibility::All => true,
            CommandVisibility::OwnedBy(uid) => self.owner == Some(uid),
            CommandVisibility::None => false,
        };
        self.command.as_deref().filter(|_| is_visible)
    }
}
