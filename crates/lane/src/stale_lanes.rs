//! Removes stale lanes. An agent removes the lanes of ended programs; without one, they would
//! accumulate in shared memory. So a program that creates its first lane checks whether there are
//! too many.

use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Dir, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::lane_mapping::LANE_SUFFIX;
use crate::writer_directory::WriterDirectory;

/// The most lanes in a user's own directory that no agent reads.
pub const STALE_LANES_MAX: usize = 1024;
/// This many are kept, so that the next programs need not check again.
const STALE_LANES_KEPT: usize = 768;
/// If most of them are in use, checking all would take too long.
const CHECKED_MAX: usize = 512;

/// Removes the oldest lanes of ended programs, if there are too many and no agent reads them.
/// Allocates: must not be called by a child of `fork` within an update.
pub(crate) fn remove_stale_lanes(place: &WriterDirectory) {
    // Best effort: errors here must not affect the program.
    let _ = try_remove_stale_lanes(place);
}

fn try_remove_stale_lanes(place: &WriterDirectory) -> Result<(), Errno> {
    let (dir, stat) = place.open()?;
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    // The existing descriptor was opened with O_PATH only.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::openat(&dir, c".", flags, Mode::empty())?;
    if count_lanes(&dir)? <= STALE_LANES_MAX {
        return Ok(());
    }
    // Locked by an agent that reads here, and by another program that removes stale lanes.
    rustix::fs::flock(&dir, FlockOperation::NonBlockingLockExclusive)?;
    let mut lanes = lanes_by_age(&dir)?;
    let mut surplus = lanes.len().saturating_sub(STALE_LANES_KEPT);
    lanes.truncate(CHECKED_MAX);
    for (_, name) in lanes {
        if surplus == 0 {
            break;
        }
        if is_ended(&dir, &name) {
            rustix::fs::unlinkat(&dir, &*name, AtFlags::empty())?;
            surplus -= 1;
        }
    }
    Ok(())
}

fn is_lane(name: &CStr) -> bool {
    name.to_bytes().ends_with(LANE_SUFFIX.as_bytes())
}

fn count_lanes(dir: &OwnedFd) -> Result<usize, Errno> {
    let mut count = 0;
    for entry in Dir::read_from(dir)? {
        count += usize::from(is_lane(entry?.file_name()));
    }
    Ok(count)
}

/// When a lane was created, in seconds and nanoseconds, and its name.
type LaneByAge = ((i64, i64), CString);

/// Returns the lanes, the oldest first.
fn lanes_by_age(dir: &OwnedFd) -> Result<Vec<LaneByAge>, Errno> {
    let mut lanes = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if is_lane(name)
            && let Ok(stat) = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
        {
            let age = (stat.st_mtime, stat.st_mtime_nsec.cast_signed());
            lanes.push((age, name.to_owned()));
        }
    }
    lanes.sort_unstable();
    Ok(lanes)
}

/// Returns whether no process holds the lane: its mapping holds the lock until the program ends.
fn is_ended(dir: &OwnedFd, name: &CStr) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::openat(dir, name, flags, Mode::empty()) else {
        return false;
    };
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
}
