//! Inspects an executable before it runs: whether it gains privileges, and whether libraries can be
//! preloaded into it.
//!
//! The kernel ignores the set-user-ID bit of a traced program. Such a program must not be traced,
//! so that it runs as it would without Pegel.

use std::ffi::OsStr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, StatVfsMountFlags};

/// The number of bytes that the kernel reads to recognise a format (BINPRM_BUF_SIZE).
const START_BYTES: usize = 256;

/// An open executable file (O_PATH).
#[derive(Debug)]
pub(crate) struct ExecutableFile {
    file: OwnedFd,
}

impl From<OwnedFd> for ExecutableFile {
    fn from(file: OwnedFd) -> ExecutableFile {
        ExecutableFile { file }
    }
}

impl ExecutableFile {
    /// Returns whether executing the file changes privileges: set-user-ID, set-group-ID or file
    /// capabilities.
    pub(crate) fn changes_privileges(&self) -> bool {
        let Ok(stat) = rustix::fs::fstat(&self.file) else {
            return false;
        };
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return false;
        }
        let is_honoured = rustix::fs::fstatvfs(&self.file)
            .is_ok_and(|mount| !mount.f_flag.contains(StatVfsMountFlags::NOSUID));
        let is_set_id = stat.st_mode & 0o4000 != 0 || stat.st_mode & 0o2010 == 0o2010;
        is_honoured && (is_set_id || self.has_capabilities())
    }

    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }

    fn has_capabilities(&self) -> bool {
        let mut value = [0; 64];
        rustix::fs::getxattr(self.path(), c"security.capability", &mut value).is_ok()
    }

    /// Returns the first bytes, if the file is readable.
    fn first_bytes(&self) -> Option<Vec<u8>> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = rustix::fs::openat(CWD, self.path(), flags, Mode::empty()).ok()?;
        let mut start = vec![0; START_BYTES];
        let length = rustix::io::pread(&file, &mut start, 0).ok()?;
        start.truncate(length);
        Some(start)
    }

    /// Returns the interpreter of a script.
    pub(crate) fn shebang(&self) -> Option<PathBuf> {
        shebang(&self.first_bytes()?)
    }

    #[cfg(test)]
    pub(crate) fn inode(&self) -> u64 {
        rustix::fs::fstat(&self.file).expect("open").st_ino
    }

    /// Returns whether the program is statically linked, so that nothing can be preloaded into it.
    /// None if it is not a 64-bit little-endian ELF file.
    pub(crate) fn is_static(&self) -> Option<bool> {
        let file = std::fs::File::open(self.path()).ok()?;
        let mut bytes = vec![0; 4096];
        let length = rustix::io::pread(&file, &mut bytes, 0).ok()?;
        bytes.truncate(length);
        is_static(&bytes)
    }
}

/// Returns the interpreter named in the first line of a script.
fn shebang(start: &[u8]) -> Option<PathBuf> {
    let line = start.strip_prefix(b"#!")?;
    let line = line.split(|byte| *byte == b'\n').next()?;
    let path = line
        .split(|byte| matches!(byte, b' ' | b'\t' | 0))
        .find(|word| !word.is_empty())?;
    Some(PathBuf::from(OsStr::from_bytes(path)))
}

/// Searches the program headers of a 64-bit ELF file for a PT_INTERP segment.
fn is_static(bytes: &[u8]) -> Option<bool> {
    const LOADER_SEGMENT: u32 = 3;
    let u16_at =
        |at: usize| -> Option<u16> { Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?)) };
    let u32_at =
        |at: usize| -> Option<u32> { Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?)) };
    let u64_at =
        |at: usize| -> Option<u64> { Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?)) };
    bytes.strip_prefix(b"\x7fELF\x02\x01")?;
    let first = usize::try_from(u64_at(32)?).ok()?;
    let (size, count) = (usize::from(u16_at(54)?), usize::from(u16_at(56)?));
    for index in 0..count {
        let at = first.checked_add(index.checked_mul(size)?)?;
        // A table beyond the bytes that were read is not that of an ordinary program.
        if u32_at(at)? == LOADER_SEGMENT {
            return Some(false);
        }
    }
    Some(true)
}

/// Returns the file that a shell would run for a command.
pub(crate) fn find_in_path(command: &OsStr) -> Option<PathBuf> {
    if is_path(command) {
        return Some(PathBuf::from(command));
    }
    path_candidates(command).into_iter().find(|path| {
        let is_file = path.metadata().is_ok_and(|found| found.is_file());
        let access = rustix::fs::Access::EXEC_OK;
        is_file && rustix::fs::accessat(CWD, path, access, AtFlags::EACCESS).is_ok()
    })
}

/// Returns whether no readable directory of PATH contains the command.
pub(crate) fn is_missing_from_path(command: &OsStr) -> bool {
    let is_there = |path: &PathBuf| path.symlink_metadata().is_ok();
    !is_path(command) && !path_candidates(command).iter().any(is_there)
}

fn is_path(command: &OsStr) -> bool {
    command.as_bytes().contains(&b'/')
}

/// Returns the path of the command in each directory of PATH.
fn path_candidates(command: &OsStr) -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let places = std::env::split_paths(&path).map(|dir| dir.join(command));
    places.collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use pegel_testkit::TempDir;

    use super::*;
    use crate::path_resolver::PathResolver;

    fn file(dir: &TempDir, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = dir.join(name);
        fs::write(&path, text).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("ours");
        path
    }

    fn changes_rights(path: &Path) -> bool {
        let resolver = PathResolver::for_self();
        let program = resolver.open(path).expect("there");
        resolver.interpreter(program).changes_privileges()
    }

    #[test]
    fn set_id_bits_are_seen_also_behind_scripts() {
        let dir = TempDir::new();
        let plain = file(&dir, "plain", "x", 0o755);
        let set_uid = file(&dir, "set_uid", "x", 0o4755);
        let set_gid = file(&dir, "set_gid", "x", 0o2755);
        // Without the group's execute bit it means mandatory locking, not privileges.
        let locked = file(&dir, "locked", "x", 0o2745);
        let mount = rustix::fs::statvfs(dir.path()).expect("mounted");
        if mount.f_flag.contains(StatVfsMountFlags::NOSUID) {
            assert!(!changes_rights(&set_uid));
            return;
        }
        assert!(!changes_rights(&plain) && !changes_rights(&locked));
        assert!(changes_rights(&set_uid) && changes_rights(&set_gid));
        let line = format!("#! {} -x\n", set_uid.display());
        let script = file(&dir, "script", &line, 0o755);
        let line = format!("#!{}\n", script.display());
        let outer = file(&dir, "outer", &line, 0o755);
        assert!(changes_rights(&script) && changes_rights(&outer));
        // The set-user-ID bit of a script has no effect.
        let script = file(&dir, "script2", "#!/bin/sh\n", 0o4755);
        assert!(!changes_rights(&script));
    }

    #[test]
    fn a_script_that_names_itself_ends() {
        let dir = TempDir::new();
        let path = dir.join("loop");
        let line = format!("#!{}\n", path.display());
        file(&dir, "loop", &line, 0o755);
        assert!(!changes_rights(&path));
    }

    #[test]
    fn first_lines_are_read_as_the_kernel_does() {
        let path = |line: &str| shebang(line.as_bytes()).map(|path| path.display().to_string());
        assert_eq!(path("#!/bin/sh\nx").as_deref(), Some("/bin/sh"));
        assert_eq!(
            path("#!  /usr/bin/env -S python3\n").as_deref(),
            Some("/usr/bin/env")
        );
        assert_eq!(path("#!\n/bin/sh"), None);
        assert_eq!(path("# !/bin/sh"), None);
        assert_eq!(path(""), None);
    }

    #[test]
    fn loaders_are_found() {
        let shell = PathResolver::for_self()
            .open(Path::new("/bin/sh"))
            .expect("there");
        assert_eq!(shell.is_static(), Some(false));
        assert_eq!(is_static(b"#!/bin/sh"), None);
        assert_eq!(is_static(b"\x7fELF\x02\x01"), None);
        let mut none = vec![0; 64];
        none[..6].copy_from_slice(b"\x7fELF\x02\x01");
        assert_eq!(is_static(&none), Some(true));
    }

    #[test]
    fn commands_are_found_as_by_a_shell() {
        assert!(find_in_path("sh".as_ref()).is_some_and(|path| path.is_absolute()));
        assert_eq!(find_in_path("./x".as_ref()), Some(PathBuf::from("./x")));
        assert_eq!(find_in_path("no-such-command-here".as_ref()), None);
    }
}
