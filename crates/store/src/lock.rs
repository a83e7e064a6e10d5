//! The lock that gives a directory one writer, and the check that the directory is still the one
//! that was locked.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FlockOperation, Timespec, Timestamps, UTIME_NOW, flock, utimensat};

use crate::files::FILE_MODE;

/// Held as long as the store is open; the kernel releases it however the process ends.
#[derive(Debug)]
pub(crate) struct StoreLock {
    file: File,
    /// The lock file, or the directory itself where no file could be created.
    path: PathBuf,
}

/// A store's directory as it was when it was locked. If the lock is gone, the directory may belong
/// to another agent: nothing is written there, and no push is acknowledged.
#[derive(Debug)]
pub(crate) struct LockedDir {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl LockedDir {
    /// Fails if the lock file, or the directory with it, is no longer at its path.
    pub(crate) fn check(&self) -> io::Result<()> {
        let found = std::fs::metadata(&self.path);
        if found.is_ok_and(|found| (found.dev(), found.ino()) == (self.device, self.inode)) {
            return Ok(());
        }
        let message = format!(
            "{} was removed or replaced while the agent used the store; restart the agent",
            self.path.display()
        );
        Err(io::Error::new(ErrorKind::NotFound, message))
    }

    /// Updates the timestamps of the lock, best effort: cleaners of temporary directories remove
    /// files that look unused.
    pub(crate) fn refresh(&self) {
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_NOW,
        };
        let times = Timestamps {
            last_access: now,
            last_modification: now,
        };
        let _ = utimensat(CWD, &self.path, &times, AtFlags::SYMLINK_NOFOLLOW);
    }
}

#[derive(Debug)]
pub(crate) enum LockError {
    /// The id of the process that holds the lock, 0 if unknown.
    AlreadyLocked(u32),
    Io(io::Error),
}

impl StoreLock {
    pub(crate) fn acquire(path: &Path) -> Result<StoreLock, LockError> {
        let mut path = path.to_owned();
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(FILE_MODE)
            .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32)
            .open(&path)
            .or_else(|error| match error.kind() {
                // Where no file can be created the directory itself is locked, so that history
                // stays readable.
                ErrorKind::ReadOnlyFilesystem
                | ErrorKind::StorageFull
                | ErrorKind::QuotaExceeded => {
                    path.pop();
                    File::open(&path)
                }
                _ => Err(error),
            })
            .map_err(LockError::Io)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut text = String::new();
                let _ = file.read_to_string(&mut text);
                return Err(LockError::AlreadyLocked(text.trim().parse().unwrap_or(0)));
            }
            Err(error) => return Err(LockError::Io(error.into())),
        }
        // The process id only serves the error message of a second agent: a full disk must not keep
        // the first one from starting.
        let _ = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", std::process::id()));
        Ok(StoreLock { file, path })
    }

    pub(crate) fn locked_dir(&self) -> io::Result<LockedDir> {
        let found = self.file.metadata()?;
        Ok(LockedDir {
            path: self.path.clone(),
            device: found.dev(),
            inode: found.ino(),
        })
    }
}
