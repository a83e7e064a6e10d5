//! Resolves paths as another process does, to find the file that its execve(2) is about to run.
//!
//! Opening such a path from here would follow `/proc/self`, absolute symlinks and `..` with the
//! root and the number of this process, and `RESOLVE_IN_ROOT` refuses the links of procfs
//! (`/proc/PID/fd/N`, `exe`, `cwd`, `root`). So the walk goes component by component from the root,
//! the directory or the descriptor of the other process. It only reads: the process does not
//! notice.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC};
use rustix::io::Errno;

use crate::executable_file::ExecutableFile;
use crate::process::ProcessStatus;

/// The number of symlinks that the kernel follows in one path.
const LINKS_MAX: usize = 40;
/// The number of nested script interpreters that the kernel follows.
const SCRIPTS_MAX: usize = 5;
/// The inode number of a procfs root.
const PROC_ROOT: u64 = 1;

/// Resolves paths with the root, working directory and descriptors of a thread.
#[derive(Debug)]
pub(crate) struct PathResolver {
    /// `/proc/TID` or `/proc/self`.
    thread: PathBuf,
    /// The target of `/proc/self` for the thread.
    process: PathBuf,
}

impl PathResolver {
    pub(crate) fn for_self() -> PathResolver {
        let own = PathBuf::from("/proc/self");
        PathResolver {
            thread: own.clone(),
            process: own,
        }
    }

    pub(crate) fn for_thread(thread: i32) -> PathResolver {
        let process = ProcessStatus::of(thread).process("Tgid").unwrap_or(thread);
        PathResolver {
            thread: PathBuf::from(format!("/proc/{thread}")),
            process: PathBuf::from(format!("/proc/{process}")),
        }
    }

    /// Opens the file at a path of the thread.
    pub(crate) fn open(&self, path: &Path) -> Option<ExecutableFile> {
        self.open_at(libc::AT_FDCWD, path)
    }

    /// Opens a path relative to one of the thread's descriptors; an empty path means the descriptor
    /// itself.
    pub(crate) fn open_at(&self, descriptor: i32, path: &Path) -> Option<ExecutableFile> {
        let base = match descriptor {
            _ if path.is_absolute() => self.thread.join("root"),
            libc::AT_FDCWD => self.thread.join("cwd"),
            descriptor => self.thread.join("fd").join(descriptor.to_string()),
        };
        let base = rustix::fs::openat(CWD, base, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        Some(ExecutableFile::from(self.walk(base.ok()?, path).ok()?))
    }

    /// Returns the program that is executed in the end: for a script, its interpreter.
    pub(crate) fn interpreter(&self, program: ExecutableFile) -> ExecutableFile {
        let mut program = program;
        for _ in 0..SCRIPTS_MAX {
            match program.shebang().and_then(|path| self.open(&path)) {
                Some(next) => program = next,
                None => return program,
            }
        }
        program
    }

    fn walk(&self, base: OwnedFd, path: &Path) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::openat(CWD, self.thread.join("root"), flags, Mode::empty())?;
        let mut at = base;
        // What is left of the path, the next component last.
        let mut rest = components(path);
        let mut links = 0;
        while let Some(name) = rest.pop() {
            if name == b".." && is_same_file(&at, &root)? {
                continue;
            }
            let next = open_component(&at, &name)?;
            if file_type(&next)? != FileType::Symlink {
                at = next;
                continue;
            }
            links += 1;
            if links > LINKS_MAX {
                return Err(Errno::LOOP);
            }
            match self.follow(&at, &name)? {
                SymlinkTarget::Object(object) => at = object,
                SymlinkTarget::Path(path) => {
                    if path.is_absolute() {
                        at = rustix::io::fcntl_dupfd_cloexec(&root, 0)?;
                    }
                    rest.extend(components(&path));
                }
            }
        }
        Ok(at)
    }

    /// Returns the target of a symlink. Links of procfs below its root have no target path: the
    /// kernel jumps to the object.
    fn follow(&self, directory: &OwnedFd, name: &[u8]) -> rustix::io::Result<SymlinkTarget> {
        let is_proc = rustix::fs::fstatfs(directory)?.f_type == PROC_SUPER_MAGIC;
        let is_proc_root = is_proc && rustix::fs::fstat(directory)?.st_ino == PROC_ROOT;
        let object = match name {
            b"self" if is_proc_root => Some(self.process.as_os_str()),
            b"thread-self" if is_proc_root => Some(self.thread.as_os_str()),
            name if is_proc && !is_proc_root => Some(OsStr::from_bytes(name)),
            _ => None,
        };
        if let Some(object) = object {
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            return rustix::fs::openat(directory, object, flags, Mode::empty())
                .map(SymlinkTarget::Object);
        }
        let text = rustix::fs::readlinkat(directory, name, Vec::new())?;
        Ok(SymlinkTarget::Path(PathBuf::from(OsStr::from_bytes(
            text.as_bytes(),
        ))))
    }
}

/// The target of a symlink.
enum SymlinkTarget {
    Object(OwnedFd),
    Path(PathBuf),
}

/// Opens one component without following a symlink.
fn open_component(directory: &OwnedFd, name: &[u8]) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // As a directory first: O_PATH alone does not trigger an automount.
    match rustix::fs::openat(directory, name, flags | OFlags::DIRECTORY, Mode::empty()) {
        Err(Errno::NOTDIR) => rustix::fs::openat(directory, name, flags, Mode::empty()),
        opened => opened,
    }
}

/// The components of a path, the first one last.
fn components(path: &Path) -> Vec<Vec<u8>> {
    let names = path.as_os_str().as_bytes().rsplit(|byte| *byte == b'/');
    names
        .filter(|name| !name.is_empty())
        .map(<[u8]>::to_vec)
        .collect()
}

fn file_type(file: &OwnedFd) -> rustix::io::Result<FileType> {
    Ok(FileType::from_raw_mode(rustix::fs::fstat(file)?.st_mode))
}

fn is_same_file(a: &OwnedFd, b: &OwnedFd) -> rustix::io::Result<bool> {
    let (a, b) = (rustix::fs::fstat(a)?, rustix::fs::fstat(b)?);
    Ok((a.st_dev, a.st_ino) == (b.st_dev, b.st_ino))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::{MetadataExt, symlink};

    use pegel_testkit::TempDir;

    use super::*;

    /// The inode that a path leads to; None when it leads nowhere.
    fn inode(path: &str) -> Option<u64> {
        PathResolver::for_self()
            .open(Path::new(path))
            .map(|program| program.inode())
    }

    #[test]
    fn paths_lead_where_the_kernel_leads_them() {
        let dir = TempDir::new();
        let file = File::create(dir.join("file")).expect("created");
        let expected = file.metadata().expect("there").ino();
        fs::create_dir(dir.join("sub")).expect("made");
        symlink("../file", dir.join("sub/relative")).expect("made");
        symlink(dir.join("sub/relative"), dir.join("absolute")).expect("made");
        let number = file.as_raw_fd();
        symlink(format!("/proc/self/fd/{number}"), dir.join("descriptor")).expect("made");
        let here = dir.path().display();
        for path in [
            format!("{here}/file"),
            format!("{here}//sub/./../file"),
            format!("{here}/sub/relative"),
            format!("{here}/absolute"),
            format!("{here}/descriptor"),
            format!("/../../{here}/file"),
            format!("/proc/self/fd/{number}"),
            format!("/proc/thread-self/fd/{number}"),
            format!("/proc/{}/fd/{number}", std::process::id()),
            format!("/proc/self/root/{here}/absolute"),
            format!("/dev/fd/{number}"),
        ] {
            assert_eq!(inode(&path), Some(expected), "{path}");
        }
        // Also after the name is removed.
        fs::remove_file(dir.join("file")).expect("removed");
        assert_eq!(inode(&format!("{here}/file")), None);
        assert_eq!(inode(&format!("/proc/self/fd/{number}")), Some(expected));
    }

    #[test]
    fn a_descriptor_can_be_meant_itself_or_as_a_directory() {
        let dir = TempDir::new();
        let file = File::create(dir.join("file")).expect("created");
        let directory = File::open(dir.path()).expect("a directory");
        let expected = file.metadata().expect("there").ino();
        for (descriptor, path) in [(file.as_raw_fd(), ""), (directory.as_raw_fd(), "file")] {
            let found = PathResolver::for_self().open_at(descriptor, Path::new(path));
            assert_eq!(found.map(|program| program.inode()), Some(expected));
        }
    }

    #[test]
    fn symlinks_in_a_circle_end() {
        let dir = TempDir::new();
        symlink("b", dir.join("a")).expect("made");
        symlink("a", dir.join("b")).expect("made");
        assert_eq!(inode(&dir.join("a").display().to_string()), None);
    }
}
