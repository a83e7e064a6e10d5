//! Reads files of the examined machine and the capabilities of this process.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use pegel_plain_file::read_plain;

/// The largest accepted file; larger than any kernel file that is read here.
const BYTES_MAX: u64 = 16 << 20;

/// Capabilities by their numbers, see capabilities(7).
pub const SYS_PTRACE: u32 = 19;
pub const SYS_ADMIN: u32 = 21;
pub const PERFMON: u32 = 38;
pub const BPF: u32 = 39;

/// The machine's files below `PEGEL_ROOT`, else below `/`.
#[derive(Debug, Clone)]
pub struct HostFiles {
    root: PathBuf,
}

impl HostFiles {
    pub fn at(root: PathBuf) -> HostFiles {
        HostFiles { root }
    }

    /// Returns whether the root is `/`. Facts from system calls are valid only then.
    pub fn is_local(&self) -> bool {
        self.root == Path::new("/")
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    pub fn exists(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// Reads a file and trims surrounding white space.
    pub fn read(&self, path: &str) -> io::Result<String> {
        let bytes = read_plain(&self.path(path), BYTES_MAX)?;
        let text = String::from_utf8(bytes).map_err(|_| io::ErrorKind::InvalidData)?;
        Ok(text.trim().to_owned())
    }

    pub fn number(&self, path: &str) -> Option<i64> {
        self.read(path).ok()?.parse().ok()
    }

    /// Returns the paths of a directory's entries.
    pub fn list(&self, path: &str) -> io::Result<Vec<PathBuf>> {
        let entries = fs::read_dir(self.path(path))?;
        Ok(entries.flatten().map(|entry| entry.path()).collect())
    }
}

/// The user and the effective capabilities of this process.
#[derive(Debug, Clone, Copy, Default)]
pub struct ProcessCapabilities {
    pub uid: u32,
    capabilities: u64,
}

impl ProcessCapabilities {
    pub fn current() -> ProcessCapabilities {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        ProcessCapabilities::new(rustix::process::geteuid().as_raw(), &status)
    }

    pub fn new(uid: u32, status: &str) -> ProcessCapabilities {
        let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let effective = effective.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        ProcessCapabilities {
            uid,
            capabilities: effective.unwrap_or(0),
        }
    }

    pub fn has(&self, capability: u32) -> bool {
        self.capabilities & (1 << capability) != 0
    }
}

/// One mounted file system, from a line of `/proc/self/mountinfo`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountInfo {
    pub mountpoint: String,
    pub fs_type: String,
    /// Options of the mount, then those of the file system.
    pub options: Vec<String>,
}

pub fn parse_mountinfo(mountinfo: &str) -> Vec<MountInfo> {
    mountinfo
        .lines()
        .filter_map(|line| {
            let (mount, file_system) = line.split_once(" - ")?;
            let mut mount = mount.split(' ').skip(4);
            let (mountpoint, mount_options) = (mount.next()?, mount.next()?);
            let mut file_system = file_system.split(' ');
            let fs_type = file_system.next()?;
            let fs_options = file_system.nth(1).unwrap_or_default();
            let options = mount_options.split(',').chain(fs_options.split(','));
            Some(MountInfo {
                mountpoint: mountpoint.to_owned(),
                fs_type: fs_type.to_owned(),
                options: options.map(str::to_owned).collect(),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_bits() {
        let process = ProcessCapabilities::new(7, "Name:\tx\nCapEff:\t000000c000000000\n");
        assert!(process.has(PERFMON) && process.has(BPF) && !process.has(SYS_PTRACE));
        assert!(!ProcessCapabilities::new(7, "").has(BPF));
    }

    #[test]
    fn mounts_have_a_mountpoint_a_type_and_options() {
        let text =
            "22 1 0:21 / /proc rw,nosuid shared:3 - proc proc rw,hidepid=invisible\nrubbish\n";
        let mounts = parse_mountinfo(text);
        assert_eq!(mounts.len(), 1);
        assert_eq!(
            (mounts[0].mountpoint.as_str(), mounts[0].fs_type.as_str()),
            ("/proc", "proc")
        );
        assert!(mounts[0].options.contains(&"hidepid=invisible".to_owned()));
    }
}
