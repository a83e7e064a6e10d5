//! Settings: the directories of lanes that an agent reads, and the users whose lanes it reads
//! there.

use std::path::PathBuf;
use std::sync::Arc;

use pegel_store::Files;

/// The directories of lanes, and the journal of what they counted.
#[derive(Debug, Clone)]
pub struct LanesSettings {
    pub directories: Vec<LaneDirectory>,
    pub journal: PathBuf,
    /// The file operations with which the journal is written.
    pub files: Arc<dyn Files>,
    /// The most lanes that are read at one time. A lane takes a descriptor; further lanes wait
    /// until others end.
    pub lanes_max: usize,
}

/// One directory of lanes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneDirectory {
    pub path: PathBuf,
    /// The users whose lanes are read, by the owner of the opened file; `None`: all users.
    pub owners: Option<Vec<u32>>,
    /// The mode with which it is created if it is missing; an existing one must belong to the
    /// agent's user. `None`: it is used as it is.
    pub mode: Option<u32>,
    /// Whether it may be missing: it is not created, and its absence is not a fault.
    pub is_optional: bool,
}

impl LaneDirectory {
    /// Returns a directory that was configured or is the system's: lanes of all users are read.
    pub fn for_all_users(path: impl Into<PathBuf>) -> LaneDirectory {
        LaneDirectory {
            path: path.into(),
            owners: None,
            mode: None,
            is_optional: false,
        }
    }

    /// Returns the directory of the agent's own user.
    pub fn for_user(path: impl Into<PathBuf>, uid: u32) -> LaneDirectory {
        LaneDirectory {
            owners: Some(vec![uid]),
            mode: Some(0o700),
            ..LaneDirectory::for_all_users(path)
        }
    }

    /// Returns a directory of the agent's user in which these users create lanes. It has the mode
    /// of the system's: every user can create files, and cannot list or remove those of others.
    pub fn for_guests(path: impl Into<PathBuf>, owners: Vec<u32>) -> LaneDirectory {
        LaneDirectory {
            owners: Some(owners),
            mode: Some(0o1733),
            ..LaneDirectory::for_all_users(path)
        }
    }
}
