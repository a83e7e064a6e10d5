//! The machine that is sampled: its file trees, the units of its kernel, and the calls that tests
//! replace.

use std::io;
use std::path::{Path, PathBuf};

/// The name that the loader resolves, then the locations used by containers and other systems that
/// the loader does not search.
const NVML_PATHS: [&str; 4] = [
    "libnvidia-ml.so.1",
    "/usr/local/nvidia/lib64/libnvidia-ml.so.1",
    "/run/opengl-driver/lib/libnvidia-ml.so.1",
    "/usr/lib/wsl/lib/libnvidia-ml.so.1",
];

/// The sampled machine: the locations of its files, and the units of its kernel.
#[derive(Debug, Clone)]
pub struct Host {
    /// The root directory, with `/etc` and others.
    pub root: PathBuf,
    pub proc: PathBuf,
    pub sys: PathBuf,
    /// The device database of udev.
    pub udev: PathBuf,
    pub page_bytes: u64,
    /// Ticks per second in `/proc/stat` and `/proc/<pid>/stat`.
    pub user_hz: u64,
    /// Candidate paths of the NVIDIA driver's library, in search order. Empty for a fixture tree:
    /// the library would report the GPUs of the local machine.
    pub nvml: Vec<PathBuf>,
    /// The call that queries a mounted file system.
    pub statvfs: StatVfs,
}

/// Queries the file system that is mounted at a path. May hang.
pub type StatVfs = fn(&Path) -> io::Result<FilesystemSpace>;

/// Space and inodes of a file system.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FilesystemSpace {
    pub block_bytes: u64,
    pub blocks: u64,
    pub blocks_free: u64,
    /// Available to unprivileged programs.
    pub blocks_available: u64,
    pub files: u64,
    pub files_free: u64,
}

fn statvfs(path: &Path) -> io::Result<FilesystemSpace> {
    let found = rustix::fs::statvfs(path)?;
    Ok(FilesystemSpace {
        block_bytes: found.f_frsize,
        blocks: found.f_blocks,
        blocks_free: found.f_bfree,
        blocks_available: found.f_bavail,
        files: found.f_files,
        files_free: found.f_ffree,
    })
}

impl Host {
    /// Returns the local machine.
    pub fn local() -> Host {
        Host::at(Path::new("/"))
    }

    /// Returns the machine whose file systems are mounted below `root` (`PEGEL_ROOT`).
    pub fn at(root: &Path) -> Host {
        Host {
            root: root.to_owned(),
            proc: root.join("proc"),
            sys: root.join("sys"),
            udev: root.join("run/udev/data"),
            page_bytes: rustix::param::page_size() as u64,
            user_hz: rustix::param::clock_ticks_per_second().max(1),
            nvml: if root == Path::new("/") {
                NVML_PATHS.iter().map(PathBuf::from).collect()
            } else {
                Vec::new()
            },
            statvfs,
        }
    }
}
