use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FlockOperation, Mode, OFlags};

use crate::file::{LANE_ENDING, TEMPORARY_ENDING};
use crate::reader::{LaneFile, Limits, OpenError};

/// A directory of lanes, open.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    fd: OwnedFd,
}

/// A file in it whose name is that of a lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub name: String,
    /// Not yet renamed: its program is at work on it, or died then.
    pub is_temporary: bool,
}

#[derive(Debug, Default)]
pub struct Listing {
    pub found: Vec<Found>,
    /// Files with other names, which are left alone.
    pub others: usize,
    /// Whether there were more than asked for.
    pub is_cut: bool,
}

impl Directory {
    pub fn open(path: impl Into<PathBuf>) -> io::Result<Directory> {
        let path = path.into();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(CWD, &path, flags, Mode::empty())?;
        Ok(Directory { path, fd })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Says to programs that somebody reads here, as long as this is open: none of them removes lanes that others
    /// left. False when one of them is doing that at this moment.
    pub fn hold(&self) -> bool {
        rustix::fs::flock(&self.fd, FlockOperation::NonBlockingLockShared).is_ok()
    }

    /// The lanes that are there now, at most `most` of them.
    pub fn list(&self, most: usize) -> io::Result<Listing> {
        let mut listing = Listing::default();
        for file in Dir::read_from(&self.fd)? {
            let file = file?;
            let Ok(name) = file.file_name().to_str() else {
                listing.others += 1;
                continue;
            };
            if matches!(name, "." | "..") {
                continue;
            }
            match is_temporary(name) {
                Some(_) if listing.found.len() >= most => {
                    listing.is_cut = true;
                    break;
                }
                Some(is_temporary) => listing.found.push(Found {
                    name: name.to_owned(),
                    is_temporary,
                }),
                None => listing.others += 1,
            }
        }
        Ok(listing)
    }

    pub fn open_lane(&self, name: &str, limits: &Limits) -> Result<LaneFile, OpenError> {
        LaneFile::open(self.fd.as_fd(), name, limits)
    }

    /// Removes a lane's file; that it is gone already is no error.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        if is_temporary(name).is_none() {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        match rustix::fs::unlinkat(&self.fd, name, AtFlags::empty()) {
            Err(rustix::io::Errno::NOENT) => Ok(()),
            done => Ok(done?),
        }
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// None when it is not the name of a lane.
fn is_temporary(name: &str) -> Option<bool> {
    let (digits, is_temporary) = match name.strip_suffix(LANE_ENDING) {
        Some(digits) => (digits, false),
        None => (name.strip_suffix(TEMPORARY_ENDING)?, true),
    };
    parse_id(digits).map(|_| is_temporary)
}

/// 32 hexadecimal digits in lower case.
pub(crate) fn parse_id(digits: &str) -> Option<[u8; 16]> {
    let is_lower = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if digits.len() != 32 || !digits.bytes().all(is_lower) {
        return None;
    }
    Some(u128::from_str_radix(digits, 16).ok()?.to_be_bytes())
}
