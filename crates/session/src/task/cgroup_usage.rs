//! What a task's own cgroups used, from the files of both versions.

use pegel_machine::{BlkioLine, CGROUP_UNLIMITED_BYTES, IoStatLine, MachineFiles, key_value};
use serde::{Deserialize, Serialize};

use super::own_cgroup::{CgroupVersion, TaskCgroup, TaskCgroups};

/// The most bytes of a file that are read; `io.stat` has a line for each device.
const FILE_BYTES_MAX: u64 = 256 << 10;

/// Counters since the groups were created, and present values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct CgroupUsage {
    pub memory: Option<u64>,
    pub memory_peak: Option<u64>,
    /// Of the group and those above it.
    #[serde(skip)]
    pub memory_limit: Option<u64>,
    pub oom_kills: Option<u64>,
    pub cpu_seconds: Option<f64>,
    pub user_seconds: Option<f64>,
    pub system_seconds: Option<f64>,
    pub read_bytes: Option<u64>,
    pub written_bytes: Option<u64>,
}

impl CgroupUsage {
    pub(super) fn read(machine: &MachineFiles, cgroups: &TaskCgroups) -> CgroupUsage {
        let mut usage = CgroupUsage::default();
        let reader = CgroupReader { machine };
        if let Some((group, folder)) = own(&cgroups.memory) {
            reader.memory(&mut usage, group, &folder);
        }
        if let Some((group, folder)) = own(&cgroups.cpu_time) {
            reader.cpu(&mut usage, group.version, &folder);
        }
        if let Some((group, folder)) = own(&cgroups.io) {
            reader.io(&mut usage, group.version, &folder);
        }
        usage
    }
}

/// Returns the number of OOM kills in the own memory cgroup.
pub(super) fn read_oom_kills(machine: &MachineFiles, cgroups: &TaskCgroups) -> Option<u64> {
    let (group, folder) = own(&cgroups.memory)?;
    CgroupReader { machine }.oom_kills(group, &folder)
}

fn own(group: &Option<TaskCgroup>) -> Option<(&TaskCgroup, String)> {
    let group = group.as_ref()?;
    Some((group, group.own_folder()?))
}

struct CgroupReader<'a> {
    machine: &'a MachineFiles,
}

impl CgroupReader<'_> {
    fn bytes(&self, folder: &str, file: &str) -> Vec<u8> {
        let bytes = self
            .machine
            .bytes(format!("{folder}/{file}"), FILE_BYTES_MAX);
        bytes.unwrap_or_default()
    }

    fn number(&self, folder: &str, file: &str) -> Option<u64> {
        self.machine.number(format!("{folder}/{file}"))
    }

    fn memory(&self, usage: &mut CgroupUsage, group: &TaskCgroup, folder: &str) {
        let (current, peak, limit) = match group.version {
            CgroupVersion::V1 => (
                "memory.usage_in_bytes",
                "memory.max_usage_in_bytes",
                "memory.limit_in_bytes",
            ),
            CgroupVersion::V2 => ("memory.current", "memory.peak", "memory.max"),
        };
        usage.memory = self.number(folder, current);
        usage.memory_peak = self.number(folder, peak);
        let limits = group.ancestors().into_iter();
        let limits = limits.filter_map(|(_, folder)| self.number(&folder, limit));
        usage.memory_limit = limits.filter(|limit| *limit < CGROUP_UNLIMITED_BYTES).min();
        usage.oom_kills = self.oom_kills(group, folder);
    }

    /// Version 2 counts the groups below too; version 1 counts where the killed process was.
    fn oom_kills(&self, group: &TaskCgroup, folder: &str) -> Option<u64> {
        match group.version {
            CgroupVersion::V2 => key_value(&self.bytes(folder, "memory.events"), "oom_kill"),
            CgroupVersion::V1 => {
                let folders = group.own_subtree(self.machine).into_iter();
                let kills = folders.filter_map(|folder| {
                    key_value(&self.bytes(&folder, "memory.oom_control"), "oom_kill")
                });
                kills.reduce(u64::saturating_add)
            }
        }
    }

    fn cpu(&self, usage: &mut CgroupUsage, version: CgroupVersion, folder: &str) {
        match version {
            CgroupVersion::V2 => {
                let text = self.bytes(folder, "cpu.stat");
                let seconds = |key| Some(key_value(&text, key)? as f64 / 1e6);
                usage.cpu_seconds = seconds("usage_usec");
                usage.user_seconds = seconds("user_usec");
                usage.system_seconds = seconds("system_usec");
            }
            CgroupVersion::V1 => {
                let nanos = self.number(folder, "cpuacct.usage");
                usage.cpu_seconds = nanos.map(|nanos| nanos as f64 / 1e9);
                let text = self.bytes(folder, "cpuacct.stat");
                let hz = rustix::param::clock_ticks_per_second().max(1) as f64;
                let seconds = |key| Some(key_value(&text, key)? as f64 / hz);
                usage.user_seconds = seconds("user");
                usage.system_seconds = seconds("system");
            }
        }
    }

    /// Sums over all devices.
    fn io(&self, usage: &mut CgroupUsage, version: CgroupVersion, folder: &str) {
        let (mut read, mut written) = (0_u64, 0_u64);
        match version {
            CgroupVersion::V2 => {
                let text = self.bytes(folder, "io.stat");
                for found in lines(&text).filter_map(IoStatLine::parse) {
                    read = read.saturating_add(found.read_bytes.unwrap_or(0));
                    written = written.saturating_add(found.written_bytes.unwrap_or(0));
                }
            }
            CgroupVersion::V1 => {
                let files = ["_recursive", ""];
                let files = files.map(|end| format!("blkio.throttle.io_service_bytes{end}"));
                let texts = files.map(|file| self.bytes(folder, &file));
                let text = texts.into_iter().find(|text| !text.is_empty());
                let Some(text) = text else {
                    return;
                };
                for found in lines(&text).filter_map(BlkioLine::parse) {
                    match found.kind {
                        b"Read" => read = read.saturating_add(found.value),
                        b"Write" => written = written.saturating_add(found.value),
                        _ => {}
                    }
                }
            }
        }
        (usage.read_bytes, usage.written_bytes) = (Some(read), Some(written));
    }
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&byte| byte == b'\n')
}
