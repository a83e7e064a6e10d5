//! What is mounted where. Options pass an allow-list, because some file systems have passwords there.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::machine_files::MachineFiles;
use crate::redact;

/// More mounts than this are counted, not listed.
const MOUNTS_MAX: usize = 512;
/// How long all file systems together may take to say their sizes.
const SIZES_TIMEOUT: Duration = Duration::from_millis(500);

/// The kernel's own file systems say nothing about the machine.
const PSEUDO_FILESYSTEMS: &[&str] = &[
    "autofs",
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "devtmpfs",
    "efivarfs",
    "fuse.gvfsd-fuse",
    "fuse.lxcfs",
    "fuse.portal",
    "fusectl",
    "hugetlbfs",
    "iso9660",
    "mqueue",
    "nsfs",
    "overlay",
    "proc",
    "pstore",
    "ramfs",
    "rpc_pipefs",
    "securityfs",
    "selinuxfs",
    "squashfs",
    "sysfs",
    "tracefs",
];

/// Options that say how a file system behaves.
const ALLOWED_OPTIONS: &[&str] = &[
    "acl",
    "async",
    "attr2",
    "cache",
    "checksum",
    "commit",
    "compress",
    "data",
    "dax",
    "dirsync",
    "discard",
    "flock",
    "hard",
    "inode64",
    "intr",
    "lazystatfs",
    "lazytime",
    "local_lock",
    "localflock",
    "logbsize",
    "logbufs",
    "mode",
    "nconnect",
    "noatime",
    "nobarrier",
    "nochecksum",
    "nodev",
    "nodiratime",
    "noexec",
    "noflock",
    "nolock",
    "noquota",
    "nosuid",
    "nr_inodes",
    "proto",
    "quota",
    "relatime",
    "retrans",
    "ro",
    "rsize",
    "rw",
    "sec",
    "size",
    "soft",
    "softreval",
    "ssd",
    "strictatime",
    "stripe",
    "sunit",
    "swidth",
    "sync",
    "timeo",
    "user_xattr",
    "vers",
    "wsize",
    "xattr",
];

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MountedFilesystem {
    pub path: String,
    pub kind: String,
    /// Without user, password and query.
    pub source: String,
    pub options: Vec<String>,
    /// How many options are not shown.
    pub options_left_out: usize,
    /// Only of local file systems: a dead server must not be waited for.
    pub bytes: Option<u64>,
}

pub(crate) fn read(machine: &MachineFiles) -> Vec<MountedFilesystem> {
    let text = machine
        .bytes("proc/self/mountinfo", 1 << 20)
        .unwrap_or_default();
    let mut mounts = parse(&String::from_utf8_lossy(&text));
    if machine.is_local() {
        read_sizes(&mut mounts);
    }
    mounts
}

/// Each place once, with what was mounted there last.
fn parse(text: &str) -> Vec<MountedFilesystem> {
    let mut places = BTreeSet::new();
    let found = text.lines().rev().filter_map(parse_mount);
    let found = found.filter(|mount| places.insert(mount.path.clone()));
    let mut mounts: Vec<MountedFilesystem> = found.take(MOUNTS_MAX).collect();
    mounts.sort_by(|a, b| a.path.cmp(&b.path));
    mounts.retain(|mount| {
        !PSEUDO_FILESYSTEMS.contains(&mount.kind.as_str()) && !is_transient(&mount.path)
    });
    mounts
}

/// Places of the kernel, of sessions and of containers, where mounts come and go.
fn is_transient(path: &str) -> bool {
    let starts = [
        "/dev/",
        "/proc/",
        "/run/",
        "/snap/",
        "/sys/",
        "/var/lib/containers/",
        "/var/lib/docker/",
        "/var/lib/kubelet/",
    ];
    path != "/dev/shm" && starts.iter().any(|start| path.starts_with(start))
}

/// `62 27 259:1 /data /mnt/my\040disk ro,relatime shared:1 - xfs /dev/nvme0n1p1 ro,attr2`
fn parse_mount(line: &str) -> Option<MountedFilesystem> {
    let (place, what) = line.split_once(" - ")?;
    let mut place = place.split(' ').skip(4);
    let path = unescape_octal(place.next()?);
    let own = place.next()?;
    let mut what = what.split(' ');
    let (kind, source, shared) = (what.next()?, unescape_octal(what.next()?), what.next()?);
    let mut options: Vec<&str> = Vec::new();
    for option in own.split(',').chain(shared.split(',')) {
        if !option.is_empty() && !options.contains(&option) {
            options.push(option);
        }
    }
    let count = options.len();
    options.retain(|option| ALLOWED_OPTIONS.contains(&option.split('=').next().unwrap_or(option)));
    Some(MountedFilesystem {
        path,
        kind: kind.to_owned(),
        source: redact::redact_address(&source),
        options_left_out: count - options.len(),
        options: options.into_iter().map(str::to_owned).collect(),
        bytes: None,
    })
}

/// The kernel writes blanks and the like as `\040`.
fn unescape_octal(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let code = after.get(..3).and_then(|digits| {
            let digits = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(digits, 8).ok()
        });
        (rest, _) = match (first, code) {
            (b'\\', Some(code)) => (&after[3..], bytes.push(code)),
            _ => (after, bytes.push(*first)),
        };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Asks local file systems for their sizes, on a thread that may be left behind.
fn read_sizes(mounts: &mut [MountedFilesystem]) {
    let is_local =
        |mount: &MountedFilesystem| mount.source.starts_with("/dev/") || mount.kind == "tmpfs";
    let is_local = |mount: &MountedFilesystem| is_local(mount) && !mount.kind.starts_with("fuse");
    let paths = mounts.iter().filter(|mount| is_local(mount));
    let paths: Vec<PathBuf> = paths.map(|mount| PathBuf::from(&mount.path)).collect();
    let (send, receive) = mpsc::channel();
    let asking = std::thread::Builder::new().name("statvfs".into());
    let asked = asking.spawn(move || {
        for path in paths {
            let size = rustix::fs::statvfs(&path).map(|found| found.f_frsize * found.f_blocks);
            let is_alone = send.send((path, size.ok())).is_err();
            if is_alone {
                return;
            }
        }
    });
    if asked.is_err() {
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
    use super::*;

    #[test]
    fn passwords_in_options_and_sources_are_left_out() {
        let text = "60 27 0:50 / /mnt/share rw,relatime - cifs //ada:PLANTED@filer/share \
                    rw,vers=3.1.1,username=ada,password=PLANTED,sec=ntlmssp\n\
                    61 27 0:51 / /mnt/blob rw - fuse.blobfuse2 https://x.example/c?sig=PLANTED rw,size=1\n";
        let mounts = parse(text);
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
    fn each_place_is_there_once() {
        let text = "62 27 259:1 /data /mnt/my\\040disk ro - xfs /dev/nvme0n1p1 ro\n\
                    63 27 259:2 / /mnt/my\\040disk rw shared:1 - ext4 /dev/nvme0n1p2 rw\n\
                    22 27 0:21 / /proc rw - proc proc rw\nbroken\n";
        let mounts = parse(text);
        assert_eq!(mounts.len(), 1, "{mounts:?}");
        assert_eq!(
            (mounts[0].path.as_str(), mounts[0].kind.as_str()),
            ("/mnt/my disk", "ext4")
        );
    }

    #[test]
    fn local_file_systems_say_their_size() {
        let root = read(&MachineFiles::at("/"))
            .into_iter()
            .find(|mount| mount.path == "/");
        if let Some(root) = root.filter(|root| root.source.starts_with("/dev/")) {
            assert!(root.bytes.is_some_and(|bytes| bytes > 1 << 20), "{root:?}");
        }
    }
}
