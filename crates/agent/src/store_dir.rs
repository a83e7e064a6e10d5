//! The default directory of the store, and the kind of its file system.

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use pegel_lane::private_directory;
use rustix::fs::Access;
use rustix::io::Errno;

use crate::config_sources::EnvironmentLookup;

/// The properties of a file system that matter to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileSystemKind {
    Local,
    /// Slow or shared. The name is for messages.
    Network(&'static str),
    /// Uses memory, not disk.
    Memory,
}

/// `f_type` of statfs(2) for network file systems.
const NETWORK_TYPES: &[(u32, &str)] = &[
    (0x6969, "NFS"),
    (0x517B, "SMB"),
    (0xFF53_4D42, "CIFS"),
    (0xFE53_4D42, "SMB"),
    (0x0BD0_0BD0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x1983_0326, "BeeGFS"),
    (0x6573_5546, "FUSE"),
    (0x00C3_6400, "Ceph"),
    (0x5346_414F, "AFS"),
    (0x0102_1997, "9P"),
    (0xAAD7_AAEA, "PanFS"),
    (0x2003_0528, "OrangeFS"),
    (0x7461_636F, "OCFS2"),
    (0x0116_1970, "GFS2"),
];
/// procfs, sysfs, the control groups, debugfs and tracefs.
const KERNEL_TYPES: &[u32] = &[
    0x9FA0,
    0x6265_6572,
    0x0027_E0EB,
    0x6367_7270,
    0x6462_6720,
    0x7472_6163,
];
const MEMORY_TYPES: &[u32] = &[0x0102_1994, 0x8584_58F6];

/// The file system of a path, or of its nearest existing ancestor.
pub fn file_system_kind(path: &Path) -> FileSystemKind {
    let found = path
        .ancestors()
        .find_map(|dir| rustix::fs::statfs(dir).ok());
    // The kernel's type has 32 bits, whatever width the C type has.
    found.map_or(FileSystemKind::Local, |found| kind_of(found.f_type as u32))
}

fn kind_of(kind: u32) -> FileSystemKind {
    if MEMORY_TYPES.contains(&kind) {
        return FileSystemKind::Memory;
    }
    let network = NETWORK_TYPES.iter().find(|(known, _)| *known == kind);
    network.map_or(FileSystemKind::Local, |(_, name)| {
        FileSystemKind::Network(name)
    })
}

/// The default directory of the store, and why it is not the usual one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DefaultStoreDir {
    pub path: PathBuf,
    pub remark: Option<String>,
}

/// Chooses the directory of the store without `--dir`.
pub(crate) fn default_store_dir(
    host: &str,
    environment: EnvironmentLookup<'_>,
    file_system: impl Fn(&Path) -> FileSystemKind,
) -> DefaultStoreDir {
    let absolute = |name: &str| -> Option<PathBuf> {
        environment(name)
            .map(|value: OsString| PathBuf::from(value))
            .filter(|path| path.is_absolute())
    };
    let state = absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")));
    let uid = rustix::process::geteuid().as_raw();
    let temporary = |why: String| {
        let dir = absolute("TMPDIR").unwrap_or_else(|| PathBuf::from("/tmp"));
        let (dir, obstacles) =
            private_directory::choose(private_directory::candidates(&dir, uid), uid);
        let path = dir.join(host);
        let mut reasons = vec![why];
        reasons.extend(obstacles);
        let remark = format!("{}: the store is in {}", reasons.join(", "), path.display());
        DefaultStoreDir {
            path,
            remark: Some(remark),
        }
    };
    let Some(state) = state else {
        return temporary("no home directory".to_owned());
    };
    let usual = state.join("pegel").join(host);
    match file_system(&usual) {
        FileSystemKind::Network(kind) => temporary(format!("{} is on {kind}", state.display())),
        _ => DefaultStoreDir {
            path: usual,
            remark: None,
        },
    }
}

/// Creates the store's directory, private to its owner. Below /tmp any user can create directories:
/// an existing one must be ours, and not writable for others. That also holds for root, whose agent
/// would otherwise write where another user directs it.
pub(crate) fn prepare_store_dir(dir: &Path) -> io::Result<()> {
    let uid = rustix::process::geteuid().as_raw();
    let is_temporary = |path: &&Path| private_directory::is_candidate(path, uid);
    if let Some(parent) = dir.parent().filter(is_temporary) {
        create_private(parent)?;
        // Any user who knows the uid could have placed a symlink here.
        check_private(parent, &fs::symlink_metadata(parent)?, uid)?;
    }
    create_private(dir)?;
    check_private(dir, &fs::metadata(dir)?, uid)
}

/// Checks whether [`prepare_store_dir`] would succeed and the directory could be written. Creates
/// nothing.
pub(crate) fn check_store_dir(dir: &Path) -> io::Result<()> {
    let uid = rustix::process::geteuid().as_raw();
    let Some(nearest) = dir.ancestors().find(|path| path.exists()) else {
        return Err(io::ErrorKind::NotFound.into());
    };
    if nearest == dir {
        check_private(dir, &fs::metadata(dir)?, uid)?;
    }
    check_writable(dir, nearest)
}

/// Checks whether files could be written in a directory that is created if it is missing, such as
/// that of the archive. Creates nothing.
pub(crate) fn check_file_dir(dir: &Path) -> io::Result<()> {
    let Some(nearest) = dir.ancestors().find(|path| path.exists()) else {
        return Err(io::ErrorKind::NotFound.into());
    };
    if !fs::metadata(nearest)?.is_dir() {
        let message = format!("{} is not a directory", nearest.display());
        return Err(io::Error::new(io::ErrorKind::NotADirectory, message));
    }
    check_writable(dir, nearest)
}

/// Checks whether `nearest`, `dir` or its nearest ancestor that exists, accepts new entries.
fn check_writable(dir: &Path, nearest: &Path) -> io::Result<()> {
    // These accept no files, though permissions do not prevent it for root.
    let found = rustix::fs::statfs(nearest).ok();
    if let Some(found) = found
        && KERNEL_TYPES.contains(&(found.f_type as u32))
    {
        let message = format!(
            "cannot store files in {}: it is a file system of the kernel",
            dir.display()
        );
        return Err(io::Error::new(io::ErrorKind::Unsupported, message));
    }
    match rustix::fs::access(nearest, Access::WRITE_OK | Access::EXEC_OK) {
        // The agent also starts on a disk that is currently read-only.
        Ok(()) | Err(Errno::ROFS) => Ok(()),
        Err(error) if nearest == dir => {
            let message = format!("cannot write in {}: {error}", dir.display());
            Err(io::Error::new(io::Error::from(error).kind(), message))
        }
        Err(error) => {
            let message = format!(
                "cannot create {} in {}: {error}",
                dir.display(),
                nearest.display()
            );
            Err(io::Error::new(io::Error::from(error).kind(), message))
        }
    }
}

fn create_private(dir: &Path) -> io::Result<()> {
    match DirBuilder::new().recursive(true).mode(0o700).create(dir) {
        // A dangling symlink or not a directory: reported by the check.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

fn check_private(dir: &Path, found: &fs::Metadata, uid: u32) -> io::Result<()> {
    match private_directory::not_private_reason(found, uid) {
        None => Ok(()),
        Some(reason) => {
            let message = format!("{} {reason}", dir.display());
            Err(io::Error::new(io::ErrorKind::PermissionDenied, message))
        }
    }
}

/// The host name of this machine.
pub(crate) fn host_name() -> String {
    let name = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    // It becomes part of a path.
    let name: String = name
        .chars()
        .map(|c| if c == '/' || c == '\0' { '_' } else { c })
        .collect();
    match name.as_str() {
        "" | "." | ".." => "localhost".to_owned(),
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    fn variables(set: &'static [(&str, &str)]) -> impl Fn(&str) -> Option<OsString> {
        |name| {
            set.iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| OsString::from(value))
        }
    }

    #[test]
    fn the_usual_place_is_the_users_state() {
        let local = |_: &Path| FileSystemKind::Local;
        let home = variables(&[("HOME", "/home/ada")]);
        let expected = PathBuf::from("/home/ada/.local/state/pegel/n1");
        assert_eq!(
            default_store_dir("n1", &home, local),
            DefaultStoreDir {
                path: expected,
                remark: None
            }
        );
        let state = variables(&[("HOME", "/home/ada"), ("XDG_STATE_HOME", "/s")]);
        assert_eq!(
            default_store_dir("n1", &state, local).path,
            Path::new("/s/pegel/n1")
        );
        let relative = variables(&[("HOME", "/home/ada"), ("XDG_STATE_HOME", "s")]);
        assert!(
            default_store_dir("n1", &relative, local)
                .path
                .starts_with("/home/ada")
        );
    }

    #[test]
    fn a_network_home_is_left_for_a_local_place() {
        let uid = rustix::process::geteuid().as_raw();
        let nfs = |_: &Path| FileSystemKind::Network("NFS");
        let home = variables(&[("HOME", "/home/ada")]);
        let found = default_store_dir("n1", &home, nfs);
        assert_eq!(found.path, PathBuf::from(format!("/tmp/pegel-{uid}/n1")));
        let remark = found.remark.expect("said");
        assert!(
            remark.starts_with("/home/ada/.local/state is on NFS: the store is in /tmp/"),
            "{remark}"
        );
        let scratch = variables(&[("HOME", "/home/ada"), ("TMPDIR", "/scratch")]);
        assert!(
            default_store_dir("n1", &scratch, nfs)
                .path
                .starts_with("/scratch")
        );
        assert!(
            default_store_dir("n1", &variables(&[]), nfs)
                .remark
                .expect("said")
                .contains("no home")
        );
    }

    #[test]
    fn kinds_of_file_systems() {
        assert_eq!(kind_of(0x6969), FileSystemKind::Network("NFS"));
        assert_eq!(kind_of(0x0BD0_0BD0), FileSystemKind::Network("Lustre"));
        assert_eq!(kind_of(0x0102_1994), FileSystemKind::Memory);
        assert_eq!(kind_of(0xEF53), FileSystemKind::Local);
        assert_eq!(
            file_system_kind(Path::new("/proc/nothing/here")),
            file_system_kind(Path::new("/proc"))
        );
    }

    #[test]
    fn a_place_that_accepts_no_files_is_refused() {
        for path in ["/proc/pegel", "/proc/1/pegel/archive"] {
            let (path, expected) = (Path::new(path), "a file system of the kernel");
            for checked in [check_store_dir(path), check_file_dir(path)] {
                let error = checked.expect_err("refused").to_string();
                assert!(error.contains(expected), "{error}");
            }
        }
        let file = std::env::temp_dir().join(format!("pegel-not-dir-{}", std::process::id()));
        fs::write(&file, "").expect("written");
        let error = check_file_dir(&file.join("a")).expect_err("below a file");
        assert_eq!(error.kind(), io::ErrorKind::NotADirectory);
        fs::remove_file(&file).expect("removed");
        check_file_dir(&file).expect("can be created");
    }

    #[test]
    fn the_directory_is_private() {
        let parent = std::env::temp_dir().join(format!("pegel-place-{}", std::process::id()));
        let dir = parent.join("a/b");
        prepare_store_dir(&dir).expect("made");
        assert_eq!(fs::metadata(&dir).expect("there").mode() & 0o777, 0o700);
        prepare_store_dir(&dir).expect("made before");
        fs::write(dir.join("file"), "").expect("written");
        assert!(prepare_store_dir(&dir.join("file")).is_err());
        fs::remove_dir_all(&parent).expect("removed");
    }

    #[test]
    fn a_directory_that_others_prepared_is_refused() {
        let uid = rustix::process::geteuid().as_raw();
        let base = std::env::temp_dir().join(format!("pegel-squat-{}", std::process::id()));
        let temporary = base.join(format!("pegel-{uid}"));
        let refused = |dir: &Path| prepare_store_dir(dir).expect_err("refused").to_string();
        let set_mode = |path: &Path, mode| {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
            fs::set_permissions(path, mode).expect("set");
        };
        prepare_store_dir(&temporary.join("n1")).expect("made");
        set_mode(&temporary, 0o777);
        assert!(refused(&temporary.join("n1")).contains("can be written by every user"));
        set_mode(&temporary, 0o700);
        set_mode(&temporary.join("n1"), 0o1777);
        assert!(refused(&temporary.join("n1")).contains("can be written by every user"));
        set_mode(&temporary.join("n1"), 0o770);
        assert!(refused(&temporary.join("n1")).contains("can be written by group"));
        set_mode(&temporary.join("n1"), 0o755);
        prepare_store_dir(&temporary.join("n1")).expect("others may read its names");
        fs::rename(&temporary, base.join("elsewhere")).expect("moved");
        std::os::unix::fs::symlink(base.join("elsewhere"), &temporary).expect("linked");
        assert!(refused(&temporary.join("n2")).contains("is not a directory"));
        assert!(!base.join("elsewhere/n2").exists());
        if uid == 0 {
            let theirs = base.join("theirs");
            prepare_store_dir(&theirs).expect("made");
            std::os::unix::fs::chown(&theirs, Some(12345), None).expect("given away");
            assert!(refused(&theirs).contains("belongs to user 12345"));
        }
        fs::remove_dir_all(&base).expect("removed");
    }
}
