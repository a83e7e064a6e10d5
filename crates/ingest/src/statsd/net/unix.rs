//! UNIX sockets at a path. Everyone may send to them; the kernel says who did, and the door who may.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use super::BindError;

/// A socket that takes its file away when it goes.
#[derive(Debug)]
pub(crate) struct UnixPath {
    pub path: PathBuf,
    inode: u64,
}

impl Drop for UnixPath {
    fn drop(&mut self) {
        // Only our own: somebody may have put another there.
        if inode(&self.path) == Some(self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

pub(super) fn datagram(path: &Path) -> Result<(OwnedFd, UnixPath), BindError> {
    make_way(path, || UnixDatagram::unbound()?.connect(path))?;
    let socket = UnixDatagram::bind(path).map_err(failed(path))?;
    rustix::net::sockopt::set_socket_passcred(&socket, true)
        .map_err(|error| failed(path)(error.into()))?;
    Ok((socket.into(), published(path)?))
}

pub(super) fn stream(path: &Path) -> Result<(UnixListener, UnixPath), BindError> {
    make_way(path, || UnixStream::connect(path).map(drop))?;
    let listener = UnixListener::bind(path).map_err(failed(path))?;
    listener.set_nonblocking(true).map_err(failed(path))?;
    Ok((listener, published(path)?))
}

/// What an agent that was killed left behind is taken away; whatever else is there is left alone.
fn make_way(path: &Path, connect: impl FnOnce() -> io::Result<()>) -> Result<(), BindError> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(path)(error)),
    };
    let busy = |problem| BindError::Path {
        path: path.to_owned(),
        problem,
    };
    if !found.file_type().is_socket() {
        return Err(busy("something that is no socket is there"));
    }
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(busy("the socket of another user is there"));
    }
    match connect() {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(failed(path))
        }
        _ => Err(busy("another process listens there")),
    }
}

fn published(path: &Path) -> Result<UnixPath, BindError> {
    fs::set_permissions(path, fs::Permissions::from_mode(0o666)).map_err(failed(path))?;
    let inode = inode(path).ok_or_else(|| failed(path)(io::ErrorKind::NotFound.into()))?;
    Ok(UnixPath {
        path: path.to_owned(),
        inode,
    })
}

fn inode(path: &Path) -> Option<u64> {
    fs::symlink_metadata(path).ok().map(|found| found.ino())
}

fn failed(path: &Path) -> impl Fn(io::Error) -> BindError + '_ {
    |source| BindError::PathIo {
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
        let (socket, owned) = datagram(&path).expect("nobody listens there");
        let error = datagram(&path).expect_err("we do");
        assert!(
            error.to_string().contains("another process listens there"),
            "{error}"
        );
        UnixDatagram::unbound()
            .and_then(|s| s.send_to(b"x", &path))
            .expect("it is taken");
        drop((socket, owned));
        assert!(!path.exists());
        fs::write(&path, "text").expect("a file");
        let error = stream(&path).expect_err("a file is there");
        assert!(error.to_string().contains("no socket"), "{error}");
        assert!(path.exists());
    }
}
