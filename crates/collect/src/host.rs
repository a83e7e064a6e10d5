use std::path::{Path, PathBuf};

/// The machine that is looked at: where its files are, and the units of its kernel.
#[derive(Debug, Clone)]
pub struct Host {
    pub proc: PathBuf,
    pub sys: PathBuf,
    /// What udev knows about devices.
    pub udev: PathBuf,
    pub page_bytes: u64,
    /// Ticks per second in `/proc/stat` and `/proc/<pid>/stat`.
    pub user_hz: u64,
}

impl Host {
    /// This machine.
    pub fn local() -> Host {
        Host::at(Path::new("/"))
    }

    /// The machine whose file systems are mounted below `root` (`PEGEL_ROOT`).
    pub fn at(root: &Path) -> Host {
        Host {
            proc: root.join("proc"),
            sys: root.join("sys"),
            udev: root.join("run/udev/data"),
            page_bytes: rustix::param::page_size() as u64,
            user_hz: rustix::param::clock_ticks_per_second().max(1),
        }
    }
}
