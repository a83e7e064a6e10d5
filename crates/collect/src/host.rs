use std::io;
use std::path::{Path, PathBuf};

/// Where the loader finds it, then where container and other systems put it out of its sight.
const NVML_PATHS: [&str; 4] = [
    "libnvidia-ml.so.1",
    "/usr/local/nvidia/lib64/libnvidia-ml.so.1",
    "/run/opengl-driver/lib/libnvidia-ml.so.1",
    "/usr/lib/wsl/lib/libnvidia-ml.so.1",
];

/// The machine that is looked at: where its files are, and the units of its kernel.
#[derive(Debug, Clone)]
pub struct Host {
    /// Where its `/etc` and the like are.
    pub root: PathBuf,
    pub proc: PathBuf,
    pub sys: PathBuf,
    /// What udev knows about devices.
    pub udev: PathBuf,
    pub page_bytes: u64,
    /// Ticks per second in `/proc/stat` and `/proc/<pid>/stat`.
    pub user_hz: u64,
    /// Where the library of the NVIDIA driver may be, in the order in which it is looked for. None
    /// on a machine made of files: the library would speak of this one.
    pub nvml: Vec<PathBuf>,
    /// How a mounted file system is asked.
    pub statvfs: StatVfs,
}

/// Asks the file system that is mounted at a path. It may hang.
pub type StatVfs = fn(&Path) -> io::Result<FilesystemSpace>;

/// Room and inodes of a file system.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FilesystemSpace {
    pub block_bytes: u64,
    pub blocks: u64,
    pub blocks_free: u64,
    /// To programs without privileges.
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
    /// This machine.
    pub fn local() -> Host {
        Host::at(Path::new("/"))
    }

    /// The machine whose file systems are mounted below `root` (`PEGEL_ROOT`).
    pub fn at(root: &Path) -> Host {
        Host {
            root: root.to_owned(),
            proc: root.join("proc"),
            sys: root.join("sys"),
            udev: root.join("run/udev/data"),
            page_bytes: rustix::param::page_size() as u64,
            user_hz: rustix::param::clock_ticks_per_second().max(1),
            nvml: match root == Path::new("/") {
                true => NVML_PATHS.iter().map(PathBuf::from).collect(),
                false => Vec::new(),
            },
            statvfs,
        }
    }
}
