//! UNIX sockets at a path. Every user can connect; the kernel identifies the sender, and the peer
//! policy decides whether it may write.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use super::StatsdBindError;

/// A socket whose file is removed on drop.
#[derive(Debug)]
pub(crate) struct SocketFile {
    pub path: PathBuf,
    inode: u64,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Remove only our own file: another one may have been created at the path.
        if inode(&self.path) == Some(self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

pub(super) fn bind_datagram(path: &Path) -> Result<(OwnedFd, SocketFile), StatsdBindError> {
    remove_stale_socket(path, || UnixDatagram::unbound()?.connect(path))?;
    let socket = UnixDatagram::bind(path).map_err(path_io_error(path))?;
    rustix::net::sockopt::set_socket_passcred(&socket, true)
        .map_err(|error| path_io_error(path)(error.into()))?;
    Ok((socket.into(), publish_socket(path)?))
}

pub(super) fn bind_stream(path: &Path) -> Result<(UnixListener, SocketFile), StatsdBindError> {
    remove_stale_socket(path, || UnixStream::connect(path).map(drop))?;
    let listener = UnixListener::bind(path).map_err(path_io_error(path))?;
    listener
        .set_nonblocking(true)
        .map_err(path_io_error(path))?;
    Ok((listener, publish_socket(path)?))
}

/// Removes the socket of an agent that was killed; anything else at the path is left in place.
fn remove_stale_socket(
    path: &Path,
    connect: impl FnOnce() -> io::Result<()>,
) -> Result<(), StatsdBindError> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(path_io_error(path)(error)),
    };
    let busy = |problem| StatsdBindError::Path {
        path: path.to_owned(),
        problem,
    };
    if !found.file_type().is_socket() {
        return Err(busy("the path exists and is not a socket"));
    }
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(busy("the socket at this path belongs to another user"));
    }
    match connect() {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(path_io_error(path))
        }
        _ => Err(busy("another process listens on this socket")),
    }
}

fn publish_socket(path: &Path) -> Result<SocketFile, StatsdBindError> {
    fs::set_permissions(path, fs::Permissions::from_mode(0o666)).map_err(path_io_error(path))?;
    let inode = inode(path).ok_or_else(|| path_io_error(path)(io::ErrorKind::NotFound.into()))?;
    Ok(SocketFile {
        path: path.to_owned(),
        inode,
    })
}

fn inode(path: &Path) -> Option<u64> {
    fs::symlink_metadata(path).ok().map(|found| found.ino())
}

fn path_io_error(path: &Path) -> impl Fn(io::Error) -> StatsdBindError + '_ {
    |source| StatsdBindError::PathIo {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use pegel_testkit::TempDir;

    use super::*;

    #[test]
    fn what_was_left_behind_is_replaced_and_what_is_alive_is_not() {
        let dir = TempDir::new();
        let path = dir.path().join("s.sock");
        drop(UnixDatagram::bind(&path).expect("a free path"));
        let (socket, owned) = bind_datagram(&path).expect("no process listens there");
        let error = bind_datagram(&path).expect_err("we do");
        assert!(
            error
                .to_string()
                .contains("another process listens on this socket"),
            "{error}"
        );
        UnixDatagram::unbound()
            .and_then(|s| s.send_to(b"x", &path))
            .expect("it is taken");
        drop((socket, owned));
        assert!(!path.exists());
        fs::write(&path, "text").expect("a file");
        let error = bind_stream(&path).expect_err("the path is a regular file");
        assert!(error.to_string().contains("is not a socket"), "{error}");
        assert!(path.exists());
    }
}
