//! Mounted file systems. Options pass an allow-list, because some file systems have passwords
//! there.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde::Serialize;

use pegel_machine::redact;
use pegel_machine::{MachineFiles, MountInfo};
use pegel_supervisor::AbandonableThreads;

/// Maximum number of mounts that are read.
const MOUNTS_MAX: usize = 512;
/// Timeout for reading the sizes of all file systems together.
const SIZES_TIMEOUT: Duration = Duration::from_millis(500);

/// Pseudo and image file systems, which do not describe the machine.
#[rustfmt::skip]
const PSEUDO_FILESYSTEMS: &[&str] = &[
    "autofs", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "devtmpfs",
    "efivarfs", "fuse.gvfsd-fuse", "fuse.lxcfs", "fuse.portal", "fusectl", "hugetlbfs", "iso9660", "mqueue",
    "nsfs", "overlay", "proc", "pstore", "ramfs", "rpc_pipefs", "securityfs", "selinuxfs", "squashfs", "sysfs",
    "tracefs",
];

/// Options that affect how a file system behaves and never hold secrets.
#[rustfmt::skip]
const ALLOWED_OPTIONS: &[&str] = &[
    "acl", "async", "attr2", "cache", "checksum", "commit", "compress", "data", "dax", "dirsync", "discard",
    "flock", "hard", "inode64", "intr", "lazystatfs", "lazytime", "local_lock", "localflock", "logbsize",
    "logbufs", "mode", "nconnect", "noatime", "nobarrier", "nochecksum", "nodev", "nodiratime", "noexec",
    "noflock", "nolock", "noquota", "nosuid", "nr_inodes", "proto", "quota", "relatime", "retrans", "ro",
    "rsize", "rw", "sec", "size", "soft", "softreval", "ssd", "strictatime", "stripe", "sunit", "swidth",
    "sync", "timeo", "user_xattr", "vers", "wsize", "xattr",
];

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MountedFilesystem {
    pub path: String,
    pub kind: String,
    /// Without user, password and query.
    pub source: String,
    pub options: Vec<String>,
    /// Number of options that are not on the allow-list.
    pub options_left_out: usize,
    /// Size, for local file systems only: `statvfs` hangs when a network server is down.
    pub bytes: Option<u64>,
}

pub(crate) fn read(machine: &MachineFiles) -> Vec<MountedFilesystem> {
    let mut mounts = describe_all(machine.mounts());
    if machine.is_local() {
        read_sizes(&mut mounts);
    }
    mounts
}

/// Describes the mounts. Of several mounts on one path only the last, visible one is returned.
fn describe_all(mounts: Vec<MountInfo>) -> Vec<MountedFilesystem> {
    let mut paths = BTreeSet::new();
    let found = mounts.into_iter().rev().map(describe);
    let found = found.filter(|mount| paths.insert(mount.path.clone()));
    let mut mounts: Vec<MountedFilesystem> = found.take(MOUNTS_MAX).collect();
    mounts.sort_by(|a, b| a.path.cmp(&b.path));
    mounts.retain(|mount| {
        !PSEUDO_FILESYSTEMS.contains(&mount.kind.as_str()) && !is_transient(&mount.path)
    });
    mounts
}

/// Whether a path belongs to the kernel, to login sessions or to containers, whose mounts change
/// often.
fn is_transient(path: &str) -> bool {
    let prefixes = [
        "/dev/",
        "/proc/",
        "/run/",
        "/snap/",
        "/sys/",
        "/var/lib/containers/",
        "/var/lib/docker/",
        "/var/lib/kubelet/",
    ];
    path != "/dev/shm" && prefixes.iter().any(|prefix| path.starts_with(prefix))
}

/// Describes a mount with the options that are on the allow-list.
fn describe(mount: MountInfo) -> MountedFilesystem {
    let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut options: Vec<String> = Vec::new();
    for option in mount.options().map(lossy) {
        if !option.is_empty() && !options.contains(&option) {
            options.push(option);
        }
    }
    let count = options.len();
    options.retain(|option| ALLOWED_OPTIONS.contains(&option.split('=').next().unwrap_or(option)));
    MountedFilesystem {
        path: lossy(&mount.mountpoint),
        kind: lossy(&mount.fs_type),
        source: redact::redact_address(&lossy(&mount.source)),
        options_left_out: count - options.len(),
        options,
        bytes: None,
    }
}

/// Bounds the threads that wait for a file system: every snapshot would add one.
static STATVFS_THREADS: AbandonableThreads = AbandonableThreads::new("statvfs", 4);

/// Reads the sizes of local file systems on a separate thread, which is abandoned if `statvfs`
/// hangs. Without a free thread, no sizes are read.
fn read_sizes(mounts: &mut [MountedFilesystem]) {
    let is_local =
        |mount: &MountedFilesystem| mount.source.starts_with("/dev/") || mount.kind == "tmpfs";
    let is_local = |mount: &MountedFilesystem| is_local(mount) && !mount.kind.starts_with("fuse");
    let paths = mounts.iter().filter(|mount| is_local(mount));
    let paths: Vec<PathBuf> = paths.map(|mount| PathBuf::from(&mount.path)).collect();
    let (send, receive) = mpsc::channel();
    let started = STATVFS_THREADS.start(move || {
        for path in paths {
            let size = rustix::fs::statvfs(&path).map(|found| found.f_frsize * found.f_blocks);
            let has_timed_out = send.send((path, size.ok())).is_err();
            if has_timed_out {
                return;
            }
        }
    });
    if let Err(error) = started {
        tracing::debug!(%error, "cannot read the sizes of file systems");
        return;
    }
    let deadline = Instant::now() + SIZES_TIMEOUT;
    let left = || deadline.saturating_duration_since(Instant::now());
    while let Ok((path, size)) = receive.recv_timeout(left()) {
        let mount = mounts
            .iter_mut()
            .find(|mount| path.as_os_str() == mount.path.as_str());
        if let Some(mount) = mount {
            mount.bytes = size;
        }
    }
}

#[cfg(test)]
mod tests {
    use pegel_machine::parse_mountinfo;

    use super::*;

    #[test]
    fn passwords_in_options_and_sources_are_left_out() {
        let text = "60 27 0:50 / /mnt/share rw,relatime - cifs //ada:PLANTED@filer/share \
                    rw,vers=3.1.1,username=ada,password=PLANTED,sec=ntlmssp\n\
                    61 27 0:51 / /mnt/blob rw - fuse.blobfuse2 https://x.example/c?sig=PLANTED rw,size=1\n";
        let mounts = describe_all(parse_mountinfo(text.as_bytes()));
        assert_eq!(mounts[1].source, "//filer/share");
        assert_eq!(
            mounts[1].options,
            ["rw", "relatime", "vers=3.1.1", "sec=ntlmssp"]
        );
        assert_eq!(mounts[1].options_left_out, 2);
        assert_eq!(mounts[0].source, "https://x.example/c");
        assert!(!format!("{mounts:?}").contains("PLANTED"));
    }

    #[test]
    fn each_path_is_listed_once() {
        let text = "62 27 259:1 /data /mnt/my\\040disk ro - xfs /dev/nvme0n1p1 ro\n\
                    63 27 259:2 / /mnt/my\\040disk rw shared:1 - ext4 /dev/nvme0n1p2 rw\n\
                    22 27 0:21 / /proc rw - proc proc rw\nbroken\n";
        let mounts = describe_all(parse_mountinfo(text.as_bytes()));
        assert_eq!(mounts.len(), 1, "{mounts:?}");
        assert_eq!(
            (mounts[0].path.as_str(), mounts[0].kind.as_str()),
            ("/mnt/my disk", "ext4")
        );
    }

    #[test]
    fn local_file_systems_have_a_size() {
        let root = read(&MachineFiles::at("/"))
            .into_iter()
            .find(|mount| mount.path == "/");
        if let Some(root) = root.filter(|root| root.source.starts_with("/dev/")) {
            assert!(root.bytes.is_some_and(|bytes| bytes > 1 << 20), "{root:?}");
        }
    }
}
