//! The directory in which a process puts its lanes.

use std::ffi::{CStr, CString, OsString};
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

/// Where the system's agent reads.
pub const SYSTEM_DIRECTORY: &str = "/run/pegel/lanes";

/// Where the lanes of one user are when there is no agent of the system.
pub fn user_directory(uid: u32) -> PathBuf {
    PathBuf::from(format!("/dev/shm/pegel.{uid}"))
}

/// Where a process of this user and environment puts its lanes: `$PEGEL_LANES`, else the system's
/// directory if it is there, else the user's own in shared memory.
pub fn directory() -> PathBuf {
    choose().0
}

/// Whether `PEGEL_DISABLE` asks that nothing be counted.
pub fn is_disabled() -> bool {
    std::env::var_os("PEGEL_DISABLE").is_some_and(|value| !value.is_empty() && value != "0")
}

/// The path, and how much it can be trusted.
fn choose() -> (PathBuf, Trust) {
    // A program with more rights than its user must not be told where to write.
    let named = match is_privileged() {
        true => None,
        false => std::env::var_os("PEGEL_LANES").filter(|value| !value.is_empty()),
    };
    if let Some(named) = named {
        return (PathBuf::from(named), Trust::Named);
    }
    if Path::new(SYSTEM_DIRECTORY).is_dir() {
        return (PathBuf::from(SYSTEM_DIRECTORY), Trust::System);
    }
    let uid = rustix::process::geteuid().as_raw();
    (user_directory(uid), Trust::Shared)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trust {
    /// The user asked for it.
    Named,
    /// Only root can have made it.
    System,
    /// Anybody may have made it first, so that its owner and mode are looked at.
    Shared,
}

/// A directory, kept as a path: descriptors may be closed by the program at any time.
#[derive(Debug)]
pub(crate) struct Place {
    path: CString,
    trust: Trust,
}

impl Place {
    /// Chooses the directory, and makes it where that is the user's own affair.
    pub(crate) fn find() -> Option<Place> {
        let (path, trust) = choose();
        Place::new(path, trust)
    }

    pub(crate) fn new(path: PathBuf, trust: Trust) -> Option<Place> {
        if trust != Trust::System {
            use std::os::unix::fs::DirBuilderExt;
            // It may be there already; whether it is any good shows when it is opened.
            let _ = fs::DirBuilder::new().mode(0o700).create(&path);
        }
        let path = CString::new(OsString::from(path).into_vec()).ok()?;
        Some(Place { path, trust })
    }

    /// Opens the directory; allocates nothing.
    pub(crate) fn open(&self) -> Result<(OwnedFd, Stat), Errno> {
        open(&self.path, self.trust)
    }
}

fn open(path: &CStr, trust: Trust) -> Result<(OwnedFd, Stat), Errno> {
    // With O_PATH: the system's directory can be written by everybody, but read by its agent alone.
    let mut flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    if trust == Trust::Shared {
        flags |= OFlags::NOFOLLOW;
    }
    let dir = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&dir)?;
    let is_own = stat.st_uid == rustix::process::geteuid().as_raw();
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return Err(Errno::NOTDIR);
    }
    if trust == Trust::Shared && !(is_own && stat.st_mode & 0o077 == 0) {
        return Err(Errno::PERM);
    }
    Ok((dir, stat))
}

fn is_privileged() -> bool {
    // SAFETY: reads a number that the kernel gave this process at its start.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use pegel_testkit::TempDir;

    use super::*;

    #[test]
    fn a_shared_place_is_made_private_and_checked() {
        let dir = TempDir::new();
        let path = dir.join("pegel.1");
        let place = Place::new(path.clone(), Trust::Shared).expect("a path");
        place.open().expect("made just now");
        let mode = fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);

        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("ours");
        assert_eq!(place.open().err(), Some(Errno::PERM));
    }

    #[test]
    fn a_link_in_a_shared_place_is_not_followed() {
        let dir = TempDir::new();
        fs::create_dir(dir.join("real")).expect("a directory");
        symlink(dir.join("real"), dir.join("link")).expect("a link");
        let shared = Place::new(dir.join("link"), Trust::Shared).expect("a path");
        assert!(shared.open().is_err());
        let named = Place::new(dir.join("link"), Trust::Named).expect("a path");
        named.open().expect("the user may name a link");
    }

    #[test]
    fn what_is_no_directory_is_refused() {
        let dir = TempDir::new();
        fs::write(dir.join("file"), "").expect("a file");
        for name in ["file", "no/such/place"] {
            let place = Place::new(dir.join(name), Trust::Named).expect("a path");
            assert!(place.open().is_err(), "{name}");
        }
    }
}
