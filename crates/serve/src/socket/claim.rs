//! Making sure that a path may be taken: its directory, its lock, and what lies there already.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use rustix::net::{SocketAddrUnix, sockopt};

use super::{SocketError, io_error, new_socket};
use crate::user_info::UserInfo;

/// Where a socket lies.
pub(super) fn directory(socket: &Path) -> &Path {
    match socket.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    }
}

/// Makes the directory if need be, but not the one above it.
pub(super) fn make_directory(socket: &Path) -> Result<(), SocketError> {
    let dir = directory(socket);
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(io_error(dir)(error)),
        _ => Ok(()),
    }
}

/// A default directory must be private; any other must at least not let strangers replace what is in it.
pub(super) fn check_directory(socket: &Path, private: bool) -> Result<(), SocketError> {
    let dir = directory(socket);
    // Only a default place is exposed to strangers who know it beforehand: there a link is refused.
    let found = if private {
        fs::symlink_metadata(dir)
    } else {
        fs::metadata(dir)
    };
    let found = found.map_err(io_error(dir))?;
    let (ours, root) = (
        found.uid() == rustix::process::geteuid().as_raw(),
        found.uid() == 0,
    );
    let writable = found.mode() & 0o022 != 0;
    let sticky = found.mode() & 0o1000 != 0;
    let problem = if !found.is_dir() {
        "is not a directory"
    } else if !ours && (private || !root) {
        "is not yours"
    } else if writable && (private || !sticky) {
        "can be written by others"
    } else {
        return Ok(());
    };
    Err(SocketError::Directory {
        path: dir.to_owned(),
        problem,
        owner: UserInfo::lookup(found.uid()),
    })
}

pub(super) fn acquire_lock(socket: &Path) -> Result<File, SocketError> {
    let mut path = socket.as_os_str().to_owned();
    path.push(".lock");
    let path = PathBuf::from(path);
    let opened = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
        .open(&path);
    let mut lock = match opened {
        Ok(lock) => lock,
        // What is there may be a link, or another user's.
        Err(error) => {
            if let Ok(found) = fs::symlink_metadata(&path) {
                check_lock(&path, &found)?;
            }
            return Err(io_error(&path)(error));
        }
    };
    check_lock(&path, &lock.metadata().map_err(io_error(&path))?)?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => {
            let mut written = String::new();
            let _ = lock.read_to_string(&mut written);
            let pid = server_pid(socket)
                .ok()
                .flatten()
                .or_else(|| written.trim().parse().ok());
            return Err(SocketError::Served {
                path: socket.to_owned(),
                pid,
            });
        }
        Err(error) => return Err(io_error(&path)(error.into())),
    }
    // For a second agent that comes before the socket is bound.
    lock.set_len(0)
        .and_then(|()| writeln!(lock, "{}", std::process::id()))
        .map_err(io_error(&path))?;
    Ok(lock)
}

/// A lock file must be ours alone: it is written to, and under a second name it could be anything.
fn check_lock(path: &Path, found: &fs::Metadata) -> Result<(), SocketError> {
    let owner = UserInfo::lookup(found.uid());
    let path = path.to_owned();
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(SocketError::Foreign { path, owner });
    }
    if !found.is_file() || found.nlink() != 1 {
        return Err(SocketError::NotLock { path, owner });
    }
    Ok(())
}

/// The error for a path that someone else owns.
fn foreign_owner_error(path: &Path) -> Option<SocketError> {
    let uid = fs::symlink_metadata(path).ok()?.uid();
    let ours = uid == rustix::process::geteuid().as_raw();
    (!ours).then(|| SocketError::Foreign {
        path: path.to_owned(),
        owner: UserInfo::lookup(uid),
    })
}

/// Whether a socket of ours is there; what is something else is in the way.
pub(super) fn check_existing(path: &Path) -> Result<bool, SocketError> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(io_error(path)(error)),
    };
    if !found.file_type().is_socket() {
        let owner = UserInfo::lookup(found.uid());
        return Err(SocketError::NotSocket {
            path: path.to_owned(),
            owner,
        });
    }
    match foreign_owner_error(path) {
        Some(error) => Err(error),
        None => Ok(true),
    }
}

/// Removes a socket that nobody serves any more.
pub(super) fn remove_stale(path: &Path) -> Result<(), SocketError> {
    if !check_existing(path)? {
        return Ok(());
    }
    match server_pid(path) {
        Err(Errno::CONNREFUSED) => fs::remove_file(path).map_err(io_error(path)),
        Err(Errno::NOENT) => Ok(()),
        // A full backlog is a living server too.
        Ok(pid) => Err(SocketError::Served {
            path: path.to_owned(),
            pid,
        }),
        Err(error) => Err(io_error(path)(error.into())),
    }
}

/// Connects without waiting and asks the kernel who listens; `None` when it cannot say.
fn server_pid(path: &Path) -> Result<Option<u32>, Errno> {
    let socket = new_socket()?;
    match rustix::net::connect(&socket, &SocketAddrUnix::new(path)?) {
        Ok(()) => {}
        Err(Errno::AGAIN) => return Ok(None),
        Err(error) => return Err(error),
    }
    let peer = sockopt::socket_peercred(&socket)?;
    Ok(u32::try_from(peer.pid.as_raw_nonzero().get()).ok())
}
