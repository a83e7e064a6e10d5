//! Limits on the lanes that are read at one time, in total and per user, so that one user cannot
//! displace another.

use std::collections::HashMap;

use pegel_lane::reader::LaneFile;

/// The most lanes that an agent reads, however many descriptors it has.
pub const LANES_MAX: usize = 16_384;
const LANES_PER_USER_MAX: usize = 4_096;
/// Bounds the time spent on the lanes of one user: each pass copies up to this many bytes.
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
    pub(super) fn new(lanes_max: usize) -> LaneQuota {
        LaneQuota {
            users: HashMap::new(),
            lanes: 0,
            lanes_max: lanes_max.min(LANES_MAX),
            own_uid: rustix::process::geteuid().as_raw(),
        }
    }

    /// Returns why a new lane of this user and size is not read, or `None` if it is within the
    /// limits. A user has at most half as many lanes as are left: however many one user creates,
    /// there is room for the first ones of others.
    pub(super) fn exceeded_limit(&self, owner: u32, bytes: u64) -> Option<&'static str> {
        self.check(owner, bytes, true)
    }

    fn check(&self, owner: u32, bytes: u64, is_new: bool) -> Option<&'static str> {
        let (lanes, used) = self.users.get(&owner).copied().unwrap_or_default();
        // A share is reserved for the agent's user and root.
        let is_privileged = owner == self.own_uid || owner == 0;
        let reserve = if is_privileged { 0 } else { self.lanes_max / 4 };
        let free = self.lanes_max.saturating_sub(self.lanes + reserve);
        if free == 0 {
            Some("the node has too many lanes")
        } else if !is_privileged && is_new && 2 * lanes >= free {
            Some("the user has its share of the node's lanes")
        } else if lanes >= LANES_PER_USER_MAX {
            Some("the user has too many lanes")
        } else if used + bytes > BYTES_PER_USER_MAX {
            Some("the lanes of the user are too large")
        } else {
            None
        }
    }

    /// Counts a lane as read. `is_new`: it was not read before a restart.
    pub(super) fn admit(&mut self, file: &LaneFile, is_new: bool) -> Result<(), &'static str> {
        if let Some(obstacle) = self.check(file.owner(), file.file_bytes(), is_new) {
            return Err(obstacle);
        }
        let (lanes, bytes) = self.users.entry(file.owner()).or_default();
        *lanes += 1;
        *bytes += file.file_bytes();
        self.lanes += 1;
        Ok(())
    }

    /// Releases a lane that is no longer read.
    pub(super) fn release(&mut self, file: &LaneFile) {
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
