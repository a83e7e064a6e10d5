//! One directory, one writer.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

/// Held as long as the store is open; the kernel lets go of it however the process ends.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

#[derive(Debug)]
pub(crate) enum LockError {
    /// By the process with this id, 0 if it did not say.
    Held(u32),
    Io(io::Error),
}

impl Lock {
    pub fn take(path: &Path) -> Result<Lock, LockError> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32)
            .open(path)
            .or_else(|error| match error.kind() {
                // Where no file can be made the directory itself is locked, so that history can still be read.
                ErrorKind::ReadOnlyFilesystem
                | ErrorKind::StorageFull
                | ErrorKind::QuotaExceeded => File::open(path.parent().unwrap_or(path)),
                _ => Err(error),
            })
            .map_err(LockError::Io)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut text = String::new();
                let _ = file.read_to_string(&mut text);
                return Err(LockError::Held(text.trim().parse().unwrap_or(0)));
            }
            Err(error) => return Err(LockError::Io(error.into())),
        }
        // The number is only for the message that a second agent prints: a full disk must not keep
        // the first one from starting.
        let _ = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", std::process::id()));
        Ok(Lock { _file: file })
    }
}
