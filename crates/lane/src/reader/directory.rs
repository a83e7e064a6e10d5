//! Directories of lanes: listing in portions, locking, removing files.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FlockOperation, Mode, OFlags};

use crate::lane_mapping::{LANE_SUFFIX, TEMPORARY_SUFFIX};
use crate::reader::{LaneFile, LaneLimits, LaneOpenError};

/// An open directory of lanes.
#[derive(Debug)]
pub struct LaneDirectoryHandle {
    path: PathBuf,
    fd: OwnedFd,
}

/// A file whose name is that of a lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedLane {
    pub name: String,
    /// Not renamed to its final name yet: its program is creating it, or died meanwhile.
    pub is_temporary: bool,
}

#[derive(Debug, Default)]
pub struct LaneListing {
    pub lanes: Vec<ListedLane>,
    /// The number of files with other names, which are left in place.
    pub others: usize,
    /// Whether there may be more entries than requested.
    pub has_more: bool,
}

impl LaneDirectoryHandle {
    pub fn open(path: impl Into<PathBuf>) -> io::Result<LaneDirectoryHandle> {
        let path = path.into();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(CWD, &path, flags, Mode::empty())?;
        Ok(LaneDirectoryHandle { path, fd })
    }

    /// Opens a directory that this user may not list: only lanes whose name is known can be opened.
    pub fn open_unlisted(path: impl Into<PathBuf>) -> io::Result<LaneDirectoryHandle> {
        let path = path.into();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(CWD, &path, flags, Mode::empty())?;
        Ok(LaneDirectoryHandle { path, fd })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Locks the directory as long as this is open: programs then do not remove stale lanes.
    /// Returns false if one of them is doing that now.
    pub fn lock_for_reading(&self) -> bool {
        rustix::fs::flock(&self.fd, FlockOperation::NonBlockingLockShared).is_ok()
    }

    /// Starts reading the directory from its beginning.
    pub fn scan(&self) -> io::Result<LaneDirectoryScan> {
        Ok(LaneDirectoryScan(Dir::read_from(&self.fd)?))
    }

    /// Returns the lanes among the first `most` entries of the directory.
    pub fn list(&self, most: usize) -> io::Result<LaneListing> {
        self.scan()?.next_portion(most)
    }

    /// Returns the owner of a file of the directory, without opening it.
    pub fn owner_of(&self, name: &str) -> io::Result<u32> {
        let found = rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(found.st_uid)
    }

    pub fn open_lane(&self, name: &str, limits: &LaneLimits) -> Result<LaneFile, LaneOpenError> {
        LaneFile::open(self.fd.as_fd(), name, limits)
    }

    /// Removes a lane's file, or an empty directory of such a name; a missing file is not an error.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        if is_temporary(name).is_none() {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        match rustix::fs::unlinkat(&self.fd, name, AtFlags::empty()) {
            Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(rustix::io::Errno::ISDIR) => {
                Ok(rustix::fs::unlinkat(&self.fd, name, AtFlags::REMOVEDIR)?)
            }
            done => Ok(done?),
        }
    }
}

/// A directory that is read in portions, so that very many files take several calls and hide none.
#[derive(Debug)]
pub struct LaneDirectoryScan(Dir);

impl LaneDirectoryScan {
    /// Reads the next `most` entries.
    pub fn next_portion(&mut self, most: usize) -> io::Result<LaneListing> {
        let mut listing = LaneListing::default();
        for _ in 0..most {
            let Some(file) = self.0.next() else {
                return Ok(listing);
            };
            let file = file?;
            let Ok(name) = file.file_name().to_str() else {
                listing.others += 1;
                continue;
            };
            match is_temporary(name) {
                Some(is_temporary) => listing.lanes.push(ListedLane {
                    name: name.to_owned(),
                    is_temporary,
                }),
                None if matches!(name, "." | "..") => {}
                None => listing.others += 1,
            }
        }
        listing.has_more = true;
        Ok(listing)
    }
}

impl AsFd for LaneDirectoryHandle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Returns the file name of the lane with this id.
pub fn lane_file_name(id: [u8; 16]) -> String {
    format!("{:032x}{LANE_SUFFIX}", u128::from_be_bytes(id))
}

/// Returns `None` if it is not the name of a lane.
fn is_temporary(name: &str) -> Option<bool> {
    let (digits, is_temporary) = match name.strip_suffix(LANE_SUFFIX) {
        Some(digits) => (digits, false),
        None => (name.strip_suffix(TEMPORARY_SUFFIX)?, true),
    };
    parse_id(digits).map(|_| is_temporary)
}

/// Parses 32 hexadecimal digits in lower case.
pub(crate) fn parse_id(digits: &str) -> Option<[u8; 16]> {
    let is_lower = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if digits.len() != 32 || !digits.bytes().all(is_lower) {
        return None;
    }
    Some(u128::from_str_radix(digits, 16).ok()?.to_be_bytes())
}
