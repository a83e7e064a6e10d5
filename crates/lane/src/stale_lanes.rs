//! Lanes that nobody reads. An agent removes those of programs that ended; where none runs, they would pile up in
//! shared memory. So a program that makes its first lane looks whether there are too many.

use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Dir, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::lane_mapping::LANE_SUFFIX;
use crate::writer_directory::WriterDirectory;

/// How many lanes may lie in a directory of one's own while no agent reads it.
pub const STALE_LANES_MAX: usize = 1024;
/// So many stay, so that the next programs need not look again.
const STALE_LANES_KEPT: usize = 768;
/// Where most of them are in use, looking at all would take too long.
const CHECKED_MAX: usize = 512;

/// Removes the oldest lanes of programs that ended, where there are too many and no agent is there to read them.
/// Not for children of `fork` in the middle of an update: it allocates.
pub(crate) fn remove_stale_lanes(place: &WriterDirectory) {
    // Whatever goes wrong here, the program is not to be bothered with it.
    let _ = try_remove_stale_lanes(place);
}

fn try_remove_stale_lanes(place: &WriterDirectory) -> Result<(), Errno> {
    let (dir, stat) = place.open()?;
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    // That one was opened for its path alone.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::openat(&dir, c".", flags, Mode::empty())?;
    if count_lanes(&dir)? <= STALE_LANES_MAX {
        return Ok(());
    }
    // An agent that reads here holds it, and so does another program that sweeps.
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

/// When a lane was made, in seconds and nanoseconds, and its name.
type LaneByAge = ((i64, i64), CString);

/// The oldest first.
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

/// The mapping of a program holds the lock until its end.
fn is_ended(dir: &OwnedFd, name: &CStr) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::openat(dir, name, flags, Mode::empty()) else {
        return false;
    };
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
}
