//! The directory in which a process creates its lanes.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::private_directory;

/// The directory that the system's agent reads.
pub const SYSTEM_DIRECTORY: &str = "/run/pegel/lanes";

/// The number of candidate directories of a user.
const USER_DIRECTORIES: u32 = 5;

/// Returns the directories for lanes of one user without a system agent, best first. Every user can
/// create files in `/dev/shm`: if another user took a name, programs use the next one. An agent
/// reads all of them that belong to its user.
pub fn user_directories(uid: u32) -> impl Iterator<Item = PathBuf> {
    (0..USER_DIRECTORIES).filter_map(move |number| {
        let mut path = [0; PATH_BYTES];
        let path = user_directory(uid, number, &mut path)?;
        Some(PathBuf::from(OsStr::from_bytes(path.to_bytes())))
    })
}

/// Must not allocate: a child of `fork` calls it from within an update.
fn user_directory(uid: u32, number: u32, path: &mut [u8; PATH_BYTES]) -> Option<&CStr> {
    let mut rest = &mut path[..PATH_BYTES - 1];
    // The rest of the array is the zero byte that ends a path.
    let written = match number {
        0 => write!(rest, "{SHARED_MEMORY_PREFIX}{uid}"),
        number if number + 1 < USER_DIRECTORIES => {
            write!(rest, "{SHARED_MEMORY_PREFIX}{uid}.{number}")
        }
        // Created by the system, so that no other user can take it; not every user has one.
        _ => write!(rest, "/run/user/{uid}/pegel.lanes"),
    };
    written.ok()?;
    CStr::from_bytes_until_nul(path).ok()
}

/// Returns the directory in which an agent of this user reads lanes of other users that it permits.
pub fn guests_directory(uid: u32) -> PathBuf {
    PathBuf::from(format!("{SHARED_MEMORY_PREFIX}{uid}.guests"))
}

/// Returns the directory in which a process of this user and environment creates its lanes:
/// `$PEGEL_LANES`, else the system's directory if it exists, else the user's own in shared memory.
pub fn lane_directory() -> PathBuf {
    match (configured_directory(), Path::new(SYSTEM_DIRECTORY).is_dir()) {
        (Some(path), _) => path,
        (None, true) => PathBuf::from(SYSTEM_DIRECTORY),
        (None, false) => {
            let uid = rustix::process::geteuid().as_raw();
            let usable = user_directories(uid)
                .find(|path| private_directory::unusable_reason(path, uid).is_none());
            usable.unwrap_or_else(|| PathBuf::from(format!("{SHARED_MEMORY_PREFIX}{uid}")))
        }
    }
}

/// Returns whether `PEGEL_DISABLE` turns counting off.
pub fn is_disabled() -> bool {
    std::env::var_os("PEGEL_DISABLE").is_some_and(|value| !value.is_empty() && value != "0")
}

/// The directory of the lanes. Kept as a path: the program may close descriptors at any time.
#[derive(Debug)]
pub(crate) enum WriterDirectory {
    /// Set by the user.
    Configured(CString),
    /// Only root can have created it.
    System,
    /// The user's own in shared memory. Resolved each time: a daemon may have changed its user
    /// since.
    Shared,
}

impl WriterDirectory {
    /// Chooses the directory, and creates it if it is the user's own.
    pub(crate) fn choose() -> Option<WriterDirectory> {
        if let Some(path) = configured_directory() {
            // The agent of a job creates the directory and removes it at the end; a process that
            // outlives the job must not create it again.
            let is_of_job = std::env::var_os("PEGEL_JOB_ID").is_some();
            return match is_of_job {
                true => WriterDirectory::existing(path),
                false => WriterDirectory::in_path(path),
            };
        }
        Some(if Path::new(SYSTEM_DIRECTORY).is_dir() {
            WriterDirectory::System
        } else {
            WriterDirectory::Shared
        })
    }

    pub(crate) fn in_path(path: PathBuf) -> Option<WriterDirectory> {
        use std::os::unix::fs::DirBuilderExt;
        // It may exist already; whether it is usable is checked when it is opened.
        let _ = fs::DirBuilder::new().mode(0o700).create(&path);
        WriterDirectory::existing(path)
    }

    fn existing(path: PathBuf) -> Option<WriterDirectory> {
        let path = CString::new(OsString::from(path).into_vec()).ok()?;
        Some(WriterDirectory::Configured(path))
    }

    /// Opens the directory; must not allocate.
    pub(crate) fn open(&self) -> Result<(OwnedFd, Stat), Errno> {
        match self {
            WriterDirectory::Configured(path) => open(path),
            WriterDirectory::System => open(SYSTEM_DIRECTORY_C),
            WriterDirectory::Shared => {
                let uid = rustix::process::geteuid().as_raw();
                let mut last = Errno::NAMETOOLONG;
                for number in 0..USER_DIRECTORIES {
                    let mut path = [0; PATH_BYTES];
                    let path = user_directory(uid, number, &mut path).ok_or(last)?;
                    match open_private(path) {
                        Ok(opened) => return Ok(opened),
                        Err(error) => last = error,
                    }
                }
                Err(last)
            }
        }
    }
}

const PATH_BYTES: usize = 40;
const SHARED_MEMORY_PREFIX: &str = "/dev/shm/pegel.";
const SYSTEM_DIRECTORY_C: &CStr = c"/run/pegel/lanes";

/// Any user may have created it first, so its owner and mode are checked.
fn open_private(path: &CStr) -> Result<(OwnedFd, Stat), Errno> {
    let _ = rustix::fs::mkdirat(CWD, path, Mode::RWXU);
    let (dir, stat) = open_with(path, OFlags::NOFOLLOW)?;
    let is_own = stat.st_uid == rustix::process::geteuid().as_raw();
    if !is_own || stat.st_mode & 0o077 != 0 {
        return Err(Errno::PERM);
    }
    Ok((dir, stat))
}

fn open(path: &CStr) -> Result<(OwnedFd, Stat), Errno> {
    open_with(path, OFlags::empty())
}

fn open_with(path: &CStr, more: OFlags) -> Result<(OwnedFd, Stat), Errno> {
    // With O_PATH: the system's directory can be written by every user, but read by its agent only.
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC | more;
    let dir = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&dir)?;
    Ok((dir, stat))
}

/// Returns `$PEGEL_LANES`, unless the program runs with elevated privileges (AT_SECURE): its user
/// must not choose where it writes.
fn configured_directory() -> Option<PathBuf> {
    if is_privileged() {
        return None;
    }
    let named = std::env::var_os("PEGEL_LANES").filter(|value| !value.is_empty());
    named.map(PathBuf::from)
}

/// Returns whether the kernel started this program with elevated privileges (AT_SECURE).
pub(crate) fn is_privileged() -> bool {
    // SAFETY: reads a value that the kernel passed to this process at its start.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use pegel_testkit::{OtherUser, TempDir};

    use super::*;

    fn c_path(path: PathBuf) -> CString {
        CString::new(OsString::from(path).into_vec()).expect("no zero byte")
    }

    #[test]
    fn a_shared_place_is_made_private_and_checked() {
        let dir = TempDir::new();
        let path = dir.join("pegel.1");
        open_private(&c_path(path.clone())).expect("just created");
        let mode = fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);

        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("ours");
        assert_eq!(open_private(&c_path(path)).err(), Some(Errno::PERM));
    }

    #[test]
    fn a_link_in_a_shared_place_is_not_followed() {
        let dir = TempDir::new();
        fs::create_dir(dir.join("real")).expect("a directory");
        symlink(dir.join("real"), dir.join("link")).expect("a link");
        assert!(open_private(&c_path(dir.join("link"))).is_err());
        let named = WriterDirectory::in_path(dir.join("link")).expect("a path");
        named.open().expect("the user may configure a link");
    }

    #[test]
    fn what_is_no_directory_is_refused() {
        let dir = TempDir::new();
        fs::write(dir.join("file"), "").expect("a file");
        for name in ["file", "no/such/place"] {
            let place = WriterDirectory::in_path(dir.join(name)).expect("a path");
            assert!(place.open().is_err(), "{name}");
        }
    }

    #[test]
    fn a_process_that_became_another_user_writes_to_that_users_place() {
        let Some(stranger) = OtherUser::new() else {
            return;
        };
        let stat = stranger.run_as(|| WriterDirectory::Shared.open().map(|(_, stat)| stat));
        let stat = stat.expect("the other user's own");
        assert_eq!((stat.st_uid, stat.st_mode & 0o777), (OtherUser::UID, 0o700));
        // Only when it is empty, as it was before.
        for path in user_directories(OtherUser::UID) {
            let _ = fs::remove_dir(path);
        }
    }
}
