//! Room and inodes of each mounted file system: `/proc/self/mountinfo` and statvfs(2).
//!
//! A mount whose server is dead hangs whoever asks for it. So each pass asks on a thread of its own,
//! and a mount that does not answer within [`PATIENCE`] keeps that thread while another one goes on
//! with the rest. Until it answers it is not asked again and is reported as failed by its name.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use pegel_config::read_plain;
use pegel_metric::{Family, Group, Kind};

use super::mount_prober::{HUNG_MAX, MOUNT_TIMEOUT, MountProber, StatvfsOutcome};
use crate::scan::{Fault, Words, label};
use crate::sheet::Sheet;
use crate::{CollectError, Collector, Context, Entry, Note, OpenError, Opened, Pace, Tier};

const fn gauge(name: &'static str, unit: &'static str, help: &'static str) -> Family {
    Family::new(name, Kind::Gauge, unit, 2, help)
}

static SIZE: Family = gauge("node_filesystem_size_bytes", "bytes", "Size in bytes.");
static FREE: Family = gauge("node_filesystem_free_bytes", "bytes", "Free room in bytes.");
static AVAIL: Family = gauge(
    "node_filesystem_avail_bytes",
    "bytes",
    "Room in bytes that programs without privileges may use.",
);
static FILES: Family = gauge("node_filesystem_files", "", "Inodes that there can be.");
static FILES_FREE: Family = gauge("node_filesystem_files_free", "", "Free inodes.");
static READONLY: Family = gauge(
    "node_filesystem_readonly",
    "",
    "1 if the mount is read-only, else 0.",
);
static ERROR: Family = gauge(
    "node_filesystem_device_error",
    "",
    "1 if the mount cannot be asked or does not answer, else 0.",
);

pub static ENTRY: Entry = Entry {
    name: "filesystem",
    tier: Tier::FiveSeconds,
    pace: Pace::Aside,
    level: 2,
    families: &[&SIZE, &FREE, &AVAIL, &FILES, &FILES_FREE, &READONLY, &ERROR],
    open,
};

/// No node mounts more; autofs and container hosts come near.
const MOUNTS_MAX: usize = 2_048;
/// What is longer is cut, and then not understood.
const MOUNTINFO_BYTES_MAX: u64 = 16 << 20;

#[derive(Debug)]
struct FilesystemCollector {
    mountinfo: PathBuf,
    /// As the node's first process sees it, where that may differ.
    init_mountinfo: Option<PathBuf>,
    root: PathBuf,
    operation: Note,
    prober: MountProber,
    series: Sheet,
    failure: Option<String>,
}

/// A mount that is asked.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct FilesystemMount {
    /// As bytes, because that is what it is asked by.
    point: Vec<u8>,
    device: String,
    fstype: String,
    is_readonly: bool,
}

fn open(context: &Context) -> Result<Opened, OpenError> {
    let host = &context.host;
    // What is mounted elsewhere is seen by that machine's first process, not by this one.
    let of_first = host.proc.join("1/mountinfo");
    let mountinfo = match host.root == Path::new("/") || !of_first.exists() {
        true => host.proc.join("self/mountinfo"),
        false => of_first,
    };
    if !mountinfo.exists() {
        return Ok(Opened::Absent {
            looked_for: mountinfo,
        });
    }
    let of_first = (host.root == Path::new("/")).then(|| host.proc.join("1/mountinfo"));
    Ok(Opened::Active(Box::new(FilesystemCollector {
        mountinfo,
        init_mountinfo: of_first,
        root: host.root.clone(),
        operation: context.note.clone(),
        prober: MountProber::new(host.statvfs, MOUNT_TIMEOUT),
        series: Sheet::new(),
        failure: None,
    })))
}

impl Collector for FilesystemCollector {
    /// Never fails as a whole: opened anew, it would not know which mounts are stuck.
    fn collect(&mut self, out: &mut Group) -> Result<(), CollectError> {
        self.operation.set(&self.mountinfo.to_string_lossy());
        let found = read_plain(&self.mountinfo, MOUNTINFO_BYTES_MAX)
            .map_err(|error| error.to_string())
            .and_then(|text| {
                let mut mounts = parse_mounts(&text).map_err(|what| what.to_owned())?;
                self.use_init_readonly_flags(&mut mounts);
                self.update(&mounts, out)
                    .map_err(|fault| fault.at(&self.mountinfo).to_string())
            });
        self.failure = found.unwrap_or_else(|error| {
            self.series.begin();
            self.series.end(out);
            Some(format!("cannot read {}: {error}", self.mountinfo.display()))
        });
        self.operation.set("");
        Ok(())
    }

    fn trouble(&self) -> Option<&str> {
        self.failure.as_deref()
    }
}

impl FilesystemCollector {
    /// A service may have been given everything read-only (systemd's `ProtectSystem`), which says nothing about
    /// the node: where the first process may write, the file system is not read-only.
    fn use_init_readonly_flags(&self, mounts: &mut [FilesystemMount]) {
        if !mounts.iter().any(|mount| mount.is_readonly) {
            return;
        }
        let read = |path: &PathBuf| read_plain(path, MOUNTINFO_BYTES_MAX).ok();
        let text = self.init_mountinfo.as_ref().and_then(read);
        let others = text.and_then(|text| parse_mounts(&text).ok());
        for mount in mounts.iter_mut().filter(|mount| mount.is_readonly) {
            let is_same = |other: &&FilesystemMount| {
                (&other.point, &other.device, &other.fstype)
                    == (&mount.point, &mount.device, &mount.fstype)
            };
            let other = others.iter().flatten().find(is_same);
            mount.is_readonly = other.is_none_or(|other| other.is_readonly);
        }
    }

    /// Returns what is wrong with some of them.
    fn update(
        &mut self,
        mounts: &[FilesystemMount],
        out: &mut Group,
    ) -> Result<Option<String>, Fault> {
        let paths = mounts.iter().map(|mount| path_below(&self.root, mount));
        let answers = self.prober.statvfs_all(paths.collect(), &self.operation);
        self.series.begin();
        for (mount, answer) in mounts.iter().zip(&answers) {
            set_mount(&mut self.series, mount, answer, out)?;
        }
        self.series.end(out);
        Ok(hung_mounts_message(mounts, &answers))
    }
}

fn set_mount(
    sheet: &mut Sheet,
    mount: &FilesystemMount,
    answer: &StatvfsOutcome,
    out: &mut Group,
) -> Result<(), Fault> {
    let point = label(&mount.point);
    let labels = [
        ("device", &*mount.device),
        ("fstype", &*mount.fstype),
        ("mountpoint", &*point),
    ];
    let volume = match answer {
        StatvfsOutcome::Space(volume) => volume,
        StatvfsOutcome::Skipped => return Ok(()),
        StatvfsOutcome::Failed | StatvfsOutcome::Hung => {
            return sheet.set(out, &ERROR, &labels, 1.0);
        }
    };
    let block = volume.block_bytes as f64;
    for (family, value) in [
        (&SIZE, volume.blocks as f64 * block),
        (&FREE, volume.blocks_free as f64 * block),
        (&AVAIL, volume.blocks_available as f64 * block),
        (&FILES, volume.files as f64),
        (&FILES_FREE, volume.files_free as f64),
        (&READONLY, f64::from(u8::from(mount.is_readonly))),
        (&ERROR, 0.0),
    ] {
        sheet.set(out, family, &labels, value)?;
    }
    Ok(())
}

/// Only mounts that hang make the collector failed: one that says no has answered, and its
/// `device_error` shows it.
fn hung_mounts_message(mounts: &[FilesystemMount], answers: &[StatvfsOutcome]) -> Option<String> {
    let is_stuck =
        |&(_, answer): &(&FilesystemMount, &StatvfsOutcome)| matches!(answer, StatvfsOutcome::Hung);
    let stuck = mounts.iter().zip(answers).filter(is_stuck);
    let names: Vec<String> = stuck
        .map(|(mount, _)| label(&mount.point).into_owned())
        .collect();
    let is_missing = answers
        .iter()
        .any(|answer| matches!(answer, StatvfsOutcome::Skipped));
    match (names.as_slice(), is_missing) {
        ([], false) => None,
        ([], true) => Some("some mounts could not be asked in time".to_owned()),
        ([name], false) => Some(format!("the mount {name} does not answer")),
        (names, false) => Some(format!("the mounts {} do not answer", names.join(", "))),
        (names, true) => Some(format!(
            "the mounts {} do not answer; from {HUNG_MAX} on the others are not asked",
            names.join(", ")
        )),
    }
}

fn path_below(root: &Path, mount: &FilesystemMount) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    let relative = mount.point.strip_prefix(b"/").unwrap_or(&mount.point);
    root.join(std::ffi::OsStr::from_bytes(relative))
}

/// All mounts that are looked at, each once.
fn parse_mounts(text: &[u8]) -> Result<Vec<FilesystemMount>, &'static str> {
    let (mut mounts, mut seen) = (Vec::new(), BTreeSet::new());
    for line in text.split(|&byte| byte == b'\n') {
        if line.is_empty() {
            continue;
        }
        let mount = parse(line).ok_or("a line is not a mount")?;
        if is_excluded_type(&mount.fstype) || is_excluded_point(&mount.point) {
            continue;
        }
        let name = (
            mount.device.clone(),
            mount.fstype.clone(),
            mount.point.clone(),
        );
        if seen.insert(name) {
            if mounts.len() == MOUNTS_MAX {
                return Err("there are more than 2048 mounts");
            }
            mounts.push(mount);
        }
    }
    Ok(mounts)
}

/// `36 35 98:0 /root /mnt/point rw,noatime shared:1 - ext3 /dev/root rw,errors=continue`: between
/// the options of the mount and the dash there may be any number of words.
fn parse(line: &[u8]) -> Option<FilesystemMount> {
    let mut words = Words(line);
    let point = words.nth(4)?;
    let options = words.next()?;
    words.find(|word| *word == b"-")?;
    let (fstype, device, of_super) = (words.next()?, words.next()?, words.next()?);
    let is_readonly = |options: &[u8]| options.split(|&byte| byte == b',').any(|o| o == b"ro");
    Some(FilesystemMount {
        point: unescape(point),
        device: label(&unescape(device)).into_owned(),
        fstype: label(&unescape(fstype)).into_owned(),
        is_readonly: is_readonly(options) || is_readonly(of_super),
    })
}

/// The kernel writes blanks, newlines and backslashes as `\` and three octal digits.
fn unescape(word: &[u8]) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::new(), word);
    while let [first, after @ ..] = rest {
        match rest {
            [
                b'\\',
                a @ b'0'..=b'3',
                b @ b'0'..=b'7',
                c @ b'0'..=b'7',
                after @ ..,
            ] => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = after;
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    bytes
}

/// The kinds that node_exporter leaves out: they hold no data.
fn is_excluded_type(fstype: &str) -> bool {
    matches!(
        fstype,
        "autofs"
            | "binfmt_misc"
            | "bpf"
            | "cgroup"
            | "cgroup2"
            | "configfs"
            | "debugfs"
            | "devpts"
            | "devtmpfs"
            | "fusectl"
            | "hugetlbfs"
            | "iso9660"
            | "mqueue"
            | "nsfs"
            | "overlay"
            | "proc"
            | "procfs"
            | "pstore"
            | "rpc_pipefs"
            | "securityfs"
            | "selinuxfs"
            | "squashfs"
            | "sysfs"
            | "tracefs"
    )
}

/// The places that node_exporter leaves out: kernel file systems, credentials, containers.
fn is_excluded_point(point: &[u8]) -> bool {
    let is_at = |place: &[u8]| {
        point
            .strip_prefix(place)
            .is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
    };
    let is_below = |place: &[u8]| {
        point
            .strip_prefix(place)
            .is_some_and(|rest| !rest.is_empty())
    };
    is_at(b"/dev")
        || is_at(b"/proc")
        || is_at(b"/sys")
        || is_below(b"/run/credentials/")
        || is_below(b"/var/lib/docker/")
        || is_below(b"/var/lib/containers/storage/")
}

#[cfg(test)]
mod tests;
