//! How many lanes are read at one time, and how many of each user: what one user has never takes the room of another.

use std::collections::HashMap;

use pegel_lane::reader::LaneFile;

/// The most lanes that an agent reads, whatever its descriptors allow.
pub const LANES_MAX: usize = 16_384;
const LANES_PER_USER_MAX: usize = 4_096;
/// Bounds the time that the lanes of one user take: this much is copied at each pass.
const BYTES_PER_USER_MAX: u64 = 256 << 20;

/// The lanes that are read now, by the owner of their files.
#[derive(Debug)]
pub(super) struct LaneQuota {
    /// Lanes and bytes.
    users: HashMap<u32, (usize, u64)>,
    lanes: usize,
    lanes_max: usize,
    own_uid: u32,
}

impl LaneQuota {
    pub fn new(lanes_max: usize) -> LaneQuota {
        LaneQuota {
            users: HashMap::new(),
            lanes: 0,
            lanes_max: lanes_max.min(LANES_MAX),
            own_uid: rustix::process::geteuid().as_raw(),
        }
    }

    /// Why a lane of this user and size is not read, or None if there is room.
    pub fn obstacle(&self, owner: u32, bytes: u64) -> Option<&'static str> {
        let (lanes, used) = self.users.get(&owner).copied().unwrap_or_default();
        // The agent's user and root have a share that all others together cannot take.
        let is_privileged = owner == self.own_uid || owner == 0;
        let reserve = if is_privileged { 0 } else { self.lanes_max / 4 };
        if self.lanes + reserve >= self.lanes_max {
            Some("the node has too many lanes")
        } else if lanes >= LANES_PER_USER_MAX {
            Some("the user has too many lanes")
        } else if used + bytes > BYTES_PER_USER_MAX {
            Some("the lanes of the user are too large")
        } else {
            None
        }
    }

    pub fn admit(&mut self, file: &LaneFile) -> Result<(), &'static str> {
        if let Some(obstacle) = self.obstacle(file.owner(), file.file_bytes()) {
            return Err(obstacle);
        }
        let (lanes, bytes) = self.users.entry(file.owner()).or_default();
        *lanes += 1;
        *bytes += file.file_bytes();
        self.lanes += 1;
        Ok(())
    }

    /// The lane is not read any more.
    pub fn release(&mut self, file: &LaneFile) {
        self.lanes = self.lanes.saturating_sub(1);
        if let Some((lanes, bytes)) = self.users.get_mut(&file.owner()) {
            *lanes = lanes.saturating_sub(1);
            *bytes = bytes.saturating_sub(file.file_bytes());
            if *lanes == 0 {
                self.users.remove(&file.owner());
            }
        }
    }
}
