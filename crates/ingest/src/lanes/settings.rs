//! Which directories of lanes an agent reads, and whose lanes there.

use std::path::PathBuf;
use std::sync::Arc;

use pegel_store::Files;

/// Where lanes are, and where to remember them.
#[derive(Debug, Clone)]
pub struct LanesSettings {
    pub directories: Vec<LaneDirectory>,
    pub journal: PathBuf,
    /// The file operations with which the journal is written.
    pub files: Arc<dyn Files>,
    /// How many lanes are read at one time. A lane takes a descriptor; further ones wait until others end.
    pub lanes_max: usize,
}

/// One directory of lanes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneDirectory {
    pub path: PathBuf,
    /// Only lanes of these users are read, by the owner of the opened file; None: of any.
    pub owners: Option<Vec<u32>>,
    /// With this mode it is made if it is not there, and one that is must belong to the agent's user. None: it is used as it is.
    pub mode: Option<u32>,
    /// It is not made, and it is no fault when it is not there.
    pub is_optional: bool,
}

impl LaneDirectory {
    /// A directory that was named, or is the system's: lanes of all users are read.
    pub fn open_to_all(path: impl Into<PathBuf>) -> LaneDirectory {
        LaneDirectory {
            path: path.into(),
            owners: None,
            mode: None,
            is_optional: false,
        }
    }

    /// The directory of the agent's own user.
    pub fn of_user(path: impl Into<PathBuf>, uid: u32) -> LaneDirectory {
        LaneDirectory {
            owners: Some(vec![uid]),
            mode: Some(0o700),
            ..LaneDirectory::open_to_all(path)
        }
    }

    /// A directory of the agent's user where these users put lanes. The mode is that of the system's: everybody may make a
    /// file, and sees and removes none of others.
    pub fn of_guests(path: impl Into<PathBuf>, owners: Vec<u32>) -> LaneDirectory {
        LaneDirectory {
            owners: Some(owners),
            mode: Some(0o1733),
            ..LaneDirectory::open_to_all(path)
        }
    }
}
