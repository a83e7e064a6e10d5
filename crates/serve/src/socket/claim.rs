//! Checks whether a socket path may be taken: its directory, its lock file, and an existing file at
//! the path.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use rustix::net::{SocketAddrUnix, sockopt};

use super::{SocketError, io_error, new_socket};
use pegel_config::UserInfo;

/// The directory of a socket.
pub(super) fn directory(socket: &Path) -> &Path {
    match socket.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    }
}

/// Creates the directory if necessary, but not its parent.
pub(super) fn make_directory(socket: &Path) -> Result<(), SocketError> {
    let dir = directory(socket);
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(io_error(dir)(error)),
        _ => Ok(()),
    }
}

/// Checks the directory: a default one must be private; any other must not let other users replace
/// files in it.
pub(super) fn check_directory(socket: &Path, private: bool) -> Result<(), SocketError> {
    let dir = directory(socket);
    // Only a default path is known to other users in advance: a symlink there is refused.
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
        "is not owned by the agent's user"
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
        // The file may be a symlink, or belong to another user.
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
    // For a second agent that starts before the socket is bound.
    lock.set_len(0)
        .and_then(|()| writeln!(lock, "{}", std::process::id()))
        .map_err(io_error(&path))?;
    Ok(lock)
}

/// Checks that the lock file belongs to this user and has one name: it is written to, and a second
/// link could name any file.
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

/// The error for a path that another user owns; `None` if it is ours.
fn foreign_owner_error(path: &Path) -> Option<SocketError> {
    let uid = fs::symlink_metadata(path).ok()?.uid();
    let ours = uid == rustix::process::geteuid().as_raw();
    (!ours).then(|| SocketError::Foreign {
        path: path.to_owned(),
        owner: UserInfo::lookup(uid),
    })
}

/// Whether a socket of this user exists at the path. Anything else at the path is an error.
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

/// Removes a socket that no process serves.
pub(super) fn remove_stale(path: &Path) -> Result<(), SocketError> {
    if !check_existing(path)? {
        return Ok(());
    }
    match server_pid(path) {
        Err(Errno::CONNREFUSED) => fs::remove_file(path).map_err(io_error(path)),
        Err(Errno::NOENT) => Ok(()),
        // A full backlog also means a live server.
        Ok(pid) => Err(SocketError::Served {
            path: path.to_owned(),
            pid,
        }),
        Err(error) => Err(io_error(path)(error.into())),
    }
}

/// Connects without blocking and reads the pid of the listener; `None` if the backlog is full.
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
