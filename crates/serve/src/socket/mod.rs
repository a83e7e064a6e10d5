//! The UNIX socket for programs and commands: its path, and how an agent takes ownership of it.
//!
//! One agent per path: it holds an exclusive `flock` on `<socket>.lock` until it exits, so that two
//! agents that start together cannot both replace the same stale socket. The lock file is never
//! removed; removing it would reopen that race. A file that belongs to another user, or that is not
//! a socket, is never touched.

mod claim;

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use pegel_lane::private_directory;
use rustix::fs::{Access, Mode, fchmod};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use claim::{acquire_lock, check_directory, check_existing, make_directory, remove_stale};
use pegel_config::UserInfo;

/// The socket of a system-wide agent.
pub const SYSTEM_SOCKET: &str = "/run/pegel/push.sock";
const BACKLOG: i32 = 128;

const SOCKET_NAME: &str = "push.sock";

/// The sockets of agents of this user and of the system, most specific first. Directories that do
/// not belong to the user are left out: an agent there would be another user's.
pub fn default_socket_paths() -> Vec<PathBuf> {
    let uid = rustix::process::geteuid().as_raw();
    let own = default_directories(runtime_dir().as_deref(), uid);
    own.filter(|dir| private_directory::unusable_reason(dir, uid).is_none())
        .map(|dir| dir.join(SOCKET_NAME))
        .chain([PathBuf::from(SYSTEM_SOCKET)])
        .collect()
}

/// The default socket of an agent, and a remark if a preferred directory cannot be used.
pub fn default_socket() -> (PathBuf, Option<String>) {
    let uid = rustix::process::geteuid().as_raw();
    let directories = default_directories(runtime_dir().as_deref(), uid);
    let (dir, obstacles) = private_directory::choose(directories, uid);
    let path = dir.join(SOCKET_NAME);
    let remark = (!obstacles.is_empty())
        .then(|| format!("{}: the socket is {}", obstacles.join(", "), path.display()));
    (path, remark)
}

fn runtime_dir() -> Option<PathBuf> {
    std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from)
}

/// The directories for default sockets. A runtime directory that does not exist (a job without a
/// login session) is skipped; clients with one also find agents without.
fn default_directories(
    runtime_dir: Option<&Path>,
    uid: u32,
) -> impl Iterator<Item = PathBuf> + use<> {
    let runtime_dir = runtime_dir.filter(|dir| dir.is_absolute() && dir.is_dir());
    let runtime_dir = runtime_dir.map(|dir| dir.join("pegel"));
    runtime_dir
        .into_iter()
        .chain(private_directory::candidates(Path::new("/tmp"), uid))
}

#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    #[error("an agent{} already serves {path}; stop it, or start a second agent with its own --dir and --socket", with_pid(.pid))]
    Served { path: PathBuf, pid: Option<u32> },
    #[error("{path} belongs to {owner} and was left in place; choose another path with --socket")]
    Foreign { path: PathBuf, owner: UserInfo },
    #[error(
        "{path} is not a socket (it belongs to {owner}) and was left in place; move it away, or choose another path with --socket"
    )]
    NotSocket { path: PathBuf, owner: UserInfo },
    #[error(
        "{path} is a link or not a regular file (it belongs to {owner}) and was left in place; remove it, or choose another path with --socket"
    )]
    NotLock { path: PathBuf, owner: UserInfo },
    #[error(
        "the directory {path} {problem} (it belongs to {owner}); repair it, or choose another path with --socket"
    )]
    Directory {
        path: PathBuf,
        problem: &'static str,
        owner: UserInfo,
    },
    #[error(
        "{path} is too long for a socket (at most 107 bytes); choose a shorter path with --socket"
    )]
    Long { path: PathBuf },
    #[error("cannot use the socket {path}")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

fn with_pid(pid: &Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (pid {pid})"))
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> SocketError {
    let path = path.to_owned();
    |source| SocketError::Io { path, source }
}

/// A bound socket. Removed when dropped, if the file is still ours.
#[derive(Debug)]
pub(crate) struct OwnedSocket {
    path: PathBuf,
    device: u64,
    inode: u64,
    /// Released when closed, after the socket file is removed.
    _lock: File,
}

impl OwnedSocket {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for OwnedSocket {
    fn drop(&mut self) {
        let ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|found| (found.dev(), found.ino()) == (self.device, self.inode));
        if ours && let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the socket");
        }
    }
}

/// Takes `path` for this agent. The listener is non-blocking. If `is_shared`, every user may
/// connect: the guard checks the credentials of each connection.
pub(crate) fn bind_socket(
    path: &Path,
    is_shared: bool,
) -> Result<(UnixListener, OwnedSocket), SocketError> {
    check_length(path)?;
    make_directory(path)?;
    check_directory(path, is_default(path))?;
    let lock = acquire_lock(path)?;
    remove_stale(path)?;
    let listener = listen(path, is_shared).map_err(|error| match error {
        // Another process bound the path without taking the lock.
        Errno::ADDRINUSE => SocketError::Served {
            path: path.to_owned(),
            pid: None,
        },
        error => SocketError::Io {
            path: path.to_owned(),
            source: error.into(),
        },
    })?;
    let found = fs::symlink_metadata(path).map_err(io_error(path))?;
    let owned = OwnedSocket {
        path: path.to_owned(),
        device: found.dev(),
        inode: found.ino(),
        _lock: lock,
    };
    Ok((listener, owned))
}

/// Checks whether an agent of this user could take `path`. An agent that serves it now is not an
/// error.
pub fn check_socket(path: &Path) -> Result<(), SocketError> {
    check_socket_path(path)?;
    if claim::directory(path).exists() {
        check_directory(path, is_default(path))
    } else {
        // The agent would create it.
        Ok(())
    }
}

/// Checks whether this user could create a socket at `path`, or replace the existing one.
pub fn check_socket_path(path: &Path) -> Result<(), SocketError> {
    check_length(path)?;
    check_existing(path)?;
    let dir = claim::directory(path);
    // A missing directory is created, but not its parent.
    let place = match dir.parent() {
        Some(above) if !dir.exists() && !above.as_os_str().is_empty() => above,
        Some(_) if !dir.exists() => Path::new("."),
        _ => dir,
    };
    let wanted = Access::WRITE_OK | Access::EXEC_OK;
    rustix::fs::access(place, wanted).map_err(|error| io_error(dir)(error.into()))
}

fn check_length(path: &Path) -> Result<(), SocketError> {
    if path.as_os_str().len() <= 107 {
        Ok(())
    } else {
        Err(SocketError::Long {
            path: path.to_owned(),
        })
    }
}

fn is_default(path: &Path) -> bool {
    let uid = rustix::process::geteuid().as_raw();
    let mut directories = default_directories(runtime_dir().as_deref(), uid);
    let is_own = directories.any(|dir| dir.join(SOCKET_NAME) == path);
    is_own || path == Path::new(SYSTEM_SOCKET)
}

fn listen(path: &Path, is_shared: bool) -> Result<UnixListener, Errno> {
    let socket = new_socket()?;
    // On Linux, the file that `bind` creates takes its mode from the socket: it is never accessible
    // to others, not even briefly.
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    if is_shared {
        rustix::fs::chmod(path, Mode::from_raw_mode(0o666))?;
    }
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(UnixListener::from(socket))
}

fn new_socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use pegel_testkit::TempDir;

    use super::*;

    fn refused(path: &Path) -> String {
        bind_socket(path, false).expect_err("refused").to_string()
    }

    #[test]
    fn the_users_socket_lies_in_the_runtime_directory_if_there_is_one() {
        let dir = TempDir::new();
        let directories =
            |runtime: Option<&Path>| -> Vec<PathBuf> { default_directories(runtime, 7).collect() };
        let tmp = ["", ".1", ".2", ".3"].map(|end| PathBuf::from(format!("/tmp/pegel-7{end}")));
        assert_eq!(directories(None), tmp);
        assert_eq!(directories(Some(&dir.join("missing"))), tmp);
        assert_eq!(directories(Some(Path::new("relative"))), tmp);
        let all = directories(Some(dir.path()));
        assert_eq!((&all[0], &all[1..]), (&dir.join("pegel"), &tmp[..]));
        let last = default_socket_paths().pop();
        assert_eq!(last.as_deref(), Some(Path::new("/run/pegel/push.sock")));
    }

    #[test]
    fn the_socket_is_private_and_removed_at_the_end() {
        let dir = TempDir::new();
        let path = dir.join("sub/push.sock");
        let (_listener, owned) = bind_socket(&path, false).expect("bound");
        let mode = |path: &Path| fs::symlink_metadata(path).expect("there").mode() & 0o7777;
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(&dir.join("sub")), 0o700);
        drop(owned);
        assert!(!path.exists());
        let _shared = bind_socket(&path, true).expect("bound");
        assert_eq!(mode(&path), 0o666, "the guard checks each caller");
    }

    #[test]
    fn a_socket_that_someone_replaced_is_not_removed() {
        let dir = TempDir::new();
        let path = dir.join("push.sock");
        let (_listener, owned) = bind_socket(&path, false).expect("bound");
        // Kept under another name, so that its inode is not reused.
        fs::rename(&path, dir.join("old")).expect("moved");
        fs::write(&path, "new").expect("written");
        drop(owned);
        assert_eq!(fs::read_to_string(&path).expect("still there"), "new");
    }

    #[test]
    fn a_second_agent_is_refused_with_the_pid_of_the_first() {
        let dir = TempDir::new();
        let path = dir.join("push.sock");
        let first = bind_socket(&path, false).expect("bound");
        let expected = format!(
            "an agent (pid {}) already serves {}",
            std::process::id(),
            path.display()
        );
        assert!(refused(&path).starts_with(&expected), "{}", refused(&path));
        assert!(path.exists());
        drop(first);
        bind_socket(&path, false).expect("free again");
    }

    #[test]
    fn an_agent_that_has_only_the_lock_yet_is_named_too() {
        let dir = TempDir::new();
        let path = dir.join("push.sock");
        let _lock = acquire_lock(&path).expect("locked");
        let expected = format!("an agent (pid {})", std::process::id());
        assert!(refused(&path).starts_with(&expected), "{}", refused(&path));
    }

    #[test]
    fn a_living_server_without_the_lock_is_left_alone() {
        let dir = TempDir::new();
        let path = dir.join("push.sock");
        let _other = UnixListener::bind(&path).expect("bound");
        assert!(refused(&path).contains(&format!("(pid {})", std::process::id())));
        assert!(path.exists());
    }

    #[test]
    fn a_stale_socket_is_replaced() {
        let dir = TempDir::new();
        let path = dir.join("push.sock");
        drop(UnixListener::bind(&path).expect("bound"));
        assert!(path.exists(), "left behind as by a kill");
        bind_socket(&path, false).expect("replaced");
    }

    #[test]
    fn what_is_no_socket_is_left_alone() {
        let dir = TempDir::new();
        let path = dir.join("push.sock");
        fs::write(&path, "precious").expect("written");
        let message = refused(&path);
        let owner = UserInfo::lookup(rustix::process::geteuid().as_raw());
        assert!(
            message.contains(&format!("is not a socket (it belongs to {owner})")),
            "{message}"
        );
        assert_eq!(fs::read_to_string(&path).expect("still there"), "precious");
        fs::remove_file(&path).expect("removed");
        symlink("/dev/null", &path).expect("linked");
        assert!(refused(&path).contains("is not a socket"));
    }

    #[test]
    fn a_lock_that_is_a_link_or_has_two_names_is_left_alone() {
        let dir = TempDir::new();
        let (path, lock) = (dir.join("push.sock"), dir.join("push.sock.lock"));
        let precious = dir.join("precious");
        fs::write(&precious, "precious").expect("written");
        for place in [
            |from: &Path, to: &Path| symlink(from, to),
            |from: &Path, to: &Path| fs::hard_link(from, to),
        ] {
            place(&precious, &lock).expect("linked");
            let message = refused(&path);
            assert!(
                message.contains("is a link or not a regular file"),
                "{message}"
            );
            assert_eq!(
                fs::read_to_string(&precious).expect("untouched"),
                "precious"
            );
            fs::remove_file(&lock).expect("removed");
        }
        fs::create_dir(&lock).expect("made");
        assert!(refused(&path).contains("is a link or not a regular file"));
        assert!(!path.exists());
    }

    #[test]
    fn a_directory_that_others_may_write_is_refused() {
        let dir = TempDir::new();
        let open = dir.join("open");
        fs::create_dir(&open).expect("made");
        let set_mode =
            |mode| fs::set_permissions(&open, fs::Permissions::from_mode(mode)).expect("set");
        set_mode(0o777);
        let message = refused(&open.join("push.sock"));
        assert!(message.contains("can be written by others"), "{message}");
        set_mode(0o1777);
        bind_socket(&open.join("push.sock"), false).expect("sticky is as good as /tmp");
        assert!(
            check_directory(&open.join("push.sock"), true).is_err(),
            "a default one is private"
        );
        symlink(&open, dir.join("link")).expect("linked");
        let error = check_directory(&dir.join("link/push.sock"), true).expect_err("a link");
        assert!(error.to_string().contains("is not a directory"), "{error}");
    }

    #[test]
    fn a_directory_of_someone_else_is_named_with_its_owner() {
        if rustix::process::geteuid().is_root() {
            let dir = TempDir::new();
            std::os::unix::fs::chown(dir.path(), Some(12345), None).expect("given away");
            let message = refused(&dir.join("push.sock"));
            assert!(
                message.contains("is not owned by the agent's user (it belongs to uid 12345)"),
                "{message}"
            );
        } else {
            let error = check_directory(Path::new("/usr/push.sock"), true).expect_err("root's");
            assert!(
                error
                    .to_string()
                    .contains("is not owned by the agent's user (it belongs to root (uid 0))"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_path_that_is_too_long_says_so() {
        let path = PathBuf::from(format!("/tmp/{}", "x".repeat(120)));
        assert!(refused(&path).contains("too long for a socket"));
    }
}
