//! Space and inodes of each mounted file system, from `/proc/self/mountinfo` and statvfs(2).
//!
//! statvfs(2) blocks on a mount whose server is down. So each pass probes the mounts on a worker
//! thread; a mount that does not respond within `MOUNT_TIMEOUT` keeps that thread, and another
//! thread continues with the remaining mounts (see `mount_prober`). A blocked mount is reported by
//! name and is not probed again until its call returns.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use pegel_machine::MountInfo;
use pegel_metric::SampleGroup;
use pegel_plain_file::read_plain;

use super::mount_prober::{HUNG_MAX, MOUNT_TIMEOUT, MountProber, StatvfsOutcome};
use crate::dynamic_series::{DynamicSeries, SeriesWriter};
use crate::families::families;
use crate::proc_parse::{ProcParseError, label_value};
use crate::{
    CollectError, Collector, CollectorEntry, Context, CurrentOperation, OpenOutcome, OpenResult,
    Tier,
};

families! {
    SIZE Gauge 2 "node_filesystem_size_bytes" "bytes" "Size of the file system, in bytes.";
    FREE Gauge 2 "node_filesystem_free_bytes" "bytes" "Free space of the file system, in bytes.";
    AVAIL Gauge 2 "node_filesystem_avail_bytes" "bytes" "Space available to unprivileged users, in bytes.";
    FILES Gauge 2 "node_filesystem_files" "" "Total number of inodes.";
    FILES_FREE Gauge 2 "node_filesystem_files_free" "" "Number of free inodes.";
    READONLY Gauge 2 "node_filesystem_readonly" "" "1 if the file system is mounted read-only, otherwise 0.";
    ERROR Gauge 2 "node_filesystem_device_error" "" "1 if statvfs failed or does not respond, otherwise 0.";
}

pub static ENTRY: CollectorEntry =
    CollectorEntry::threaded("filesystem", Tier::FiveSeconds, FAMILIES, open);

/// More than any node mounts; hosts with autofs or many containers come close.
const MOUNTS_MAX: usize = 2_048;
/// Upper bound on the size of `mountinfo`; a longer file is truncated and rejected as malformed.
const MOUNTINFO_BYTES_MAX: u64 = 16 << 20;

#[derive(Debug)]
struct FilesystemCollector {
    mountinfo: PathBuf,
    /// `mountinfo` of process 1, if the agent runs on the machine that it describes.
    init_mountinfo: Option<PathBuf>,
    root: PathBuf,
    operation: CurrentOperation,
    prober: MountProber,
    series: DynamicSeries,
    failure: Option<String>,
}

/// A mount that is probed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct FilesystemMount {
    /// The mount point as the kernel has it; it need not be UTF-8.
    point: Vec<u8>,
    device: String,
    fstype: String,
    is_readonly: bool,
}

fn open(context: &Context) -> OpenResult {
    let host = &context.host;
    // With another root, the mounts of that machine are those of its process 1, not of this
    // process.
    let init_mountinfo = host.proc.join("1/mountinfo");
    let mountinfo = if host.root == Path::new("/") || !init_mountinfo.exists() {
        host.proc.join("self/mountinfo")
    } else {
        init_mountinfo
    };
    if !mountinfo.exists() {
        return OpenOutcome::absent(mountinfo);
    }
    let init_mountinfo = (host.root == Path::new("/")).then(|| host.proc.join("1/mountinfo"));
    OpenOutcome::active(FilesystemCollector {
        mountinfo,
        init_mountinfo,
        root: host.root.clone(),
        operation: context.operation.clone(),
        prober: MountProber::new(host.statvfs, MOUNT_TIMEOUT),
        series: DynamicSeries::default(),
        failure: None,
    })
}

impl Collector for FilesystemCollector {
    /// Never returns an error: a reopened collector would not know which mounts are blocked.
    fn collect(&mut self, out: &mut SampleGroup) -> Result<(), CollectError> {
        self.operation.set(&self.mountinfo.to_string_lossy());
        let found = read_plain(&self.mountinfo, MOUNTINFO_BYTES_MAX)
            .map_err(|error| error.to_string())
            .and_then(|text| {
                let mut mounts = parse_mounts(&text).map_err(|what| what.to_owned())?;
                self.use_init_readonly_flags(&mut mounts);
                self.update(&mounts, out)
                    .map_err(|fault| fault.at_path(&self.mountinfo).to_string())
            });
        self.failure = found.unwrap_or_else(|error| {
            self.series.begin_pass(out).end_pass();
            Some(format!("cannot read {}: {error}", self.mountinfo.display()))
        });
        self.operation.set("");
        Ok(())
    }

    fn partial_failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }
}

impl FilesystemCollector {
    /// Uses the read-only flags of process 1. systemd's `ProtectSystem` may mount everything
    /// read-only for the agent's service alone, which does not describe the node.
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

    /// Probes the mounts and sets their series. Returns a message if mounts are blocked.
    fn update(
        &mut self,
        mounts: &[FilesystemMount],
        out: &mut SampleGroup,
    ) -> Result<Option<String>, ProcParseError> {
        let paths = mounts.iter().map(|mount| path_below(&self.root, mount));
        let answers = self.prober.statvfs_all(paths.collect(), &self.operation);
        let mut put = self.series.begin_pass(out);
        for (mount, answer) in mounts.iter().zip(&answers) {
            set_mount(mount, answer, &mut put)?;
        }
        put.end_pass();
        Ok(hung_mounts_message(mounts, &answers))
    }
}

fn set_mount(
    mount: &FilesystemMount,
    answer: &StatvfsOutcome,
    put: &mut SeriesWriter<'_>,
) -> Result<(), ProcParseError> {
    let point = label_value(&mount.point);
    let labels = [
        ("device", &*mount.device),
        ("fstype", &*mount.fstype),
        ("mountpoint", &*point),
    ];
    let volume = match answer {
        StatvfsOutcome::Space(volume) => volume,
        StatvfsOutcome::Skipped => return Ok(()),
        StatvfsOutcome::Failed | StatvfsOutcome::Hung => {
            return put.set(&ERROR, &labels, 1.0);
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
        put.set(family, &labels, value)?;
    }
    Ok(())
}

/// Returns the failure message of the collector. Only blocked mounts count: a mount whose statvfs
/// fails has responded, and its `device_error` shows the failure.
fn hung_mounts_message(mounts: &[FilesystemMount], answers: &[StatvfsOutcome]) -> Option<String> {
    let is_hung =
        |&(_, answer): &(&FilesystemMount, &StatvfsOutcome)| matches!(answer, StatvfsOutcome::Hung);
    let hung = mounts.iter().zip(answers).filter(is_hung);
    let names: Vec<String> = hung
        .map(|(mount, _)| label_value(&mount.point).into_owned())
        .collect();
    let is_any_skipped = answers
        .iter()
        .any(|answer| matches!(answer, StatvfsOutcome::Skipped));
    match (names.as_slice(), is_any_skipped) {
        ([], false) => None,
        ([], true) => Some("some mounts were not probed in time".to_owned()),
        ([name], false) => Some(format!("mount {name} does not respond")),
        (names, false) => Some(format!("mounts {} do not respond", names.join(", "))),
        (names, true) => Some(format!(
            "mounts {} do not respond; the others are not probed while {HUNG_MAX} probes are blocked",
            names.join(", ")
        )),
    }
}

fn path_below(root: &Path, mount: &FilesystemMount) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    let relative = mount.point.strip_prefix(b"/").unwrap_or(&mount.point);
    root.join(std::ffi::OsStr::from_bytes(relative))
}

/// Parses the mounts to probe, without duplicates.
fn parse_mounts(text: &[u8]) -> Result<Vec<FilesystemMount>, &'static str> {
    let (mut mounts, mut seen) = (Vec::new(), BTreeSet::new());
    for line in text.split(|&byte| byte == b'\n') {
        if line.is_empty() {
            continue;
        }
        let mount = MountInfo::parse(line).ok_or("malformed line in the mount table")?;
        let mount = FilesystemMount {
            is_readonly: mount.has_option("ro"),
            device: label_value(&mount.source).into_owned(),
            fstype: label_value(&mount.fs_type).into_owned(),
            point: mount.mountpoint,
        };
        if EXCLUDED_TYPES.contains(&&*mount.fstype) || is_excluded_point(&mount.point) {
            continue;
        }
        let name = (
            mount.device.clone(),
            mount.fstype.clone(),
            mount.point.clone(),
        );
        if seen.insert(name) {
            if mounts.len() == MOUNTS_MAX {
                return Err("more than 2048 mounts");
            }
            mounts.push(mount);
        }
    }
    Ok(mounts)
}

/// The types that node_exporter excludes by default: they hold no data.
#[rustfmt::skip]
const EXCLUDED_TYPES: [&str; 24] = [
    "autofs", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "devtmpfs", "fusectl",
    "hugetlbfs", "iso9660", "mqueue", "nsfs", "overlay", "proc", "procfs", "pstore", "rpc_pipefs", "securityfs",
    "selinuxfs", "squashfs", "sysfs", "tracefs",
];

/// Returns whether node_exporter excludes the mount point by default: kernel file systems,
/// credentials, containers.
fn is_excluded_point(point: &[u8]) -> bool {
    let is_at_or_below = |place: &[u8]| {
        point
            .strip_prefix(place)
            .is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
    };
    let is_below = |place: &[u8]| {
        point
            .strip_prefix(place)
            .is_some_and(|rest| !rest.is_empty())
    };
    is_at_or_below(b"/dev")
        || is_at_or_below(b"/proc")
        || is_at_or_below(b"/sys")
        || is_below(b"/run/credentials/")
        || is_below(b"/var/lib/docker/")
        || is_below(b"/var/lib/containers/storage/")
}

#[cfg(test)]
mod tests;
