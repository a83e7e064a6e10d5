//! The limits of a task's cgroups and of those above them.

use pegel_machine::{CGROUP_UNLIMITED_BYTES, MachineFiles};
use serde_json::{Value, json};

use super::autopsy::object;
use super::own_cgroup::{CgroupVersion, TaskCgroup, TaskCgroups};

/// The most groups above the task's that are described.
const ANCESTORS_MAX: usize = 16;
/// The most characters of a path or value that are kept.
const TEXT_CHARS_MAX: usize = 512;

pub(super) fn limits(machine: &MachineFiles, cgroups: &TaskCgroups) -> Value {
    let reader = LimitReader { machine };
    object([
        ("memory", reader.each(&cgroups.memory, LimitReader::memory)),
        ("cpu", reader.each(&cgroups.cpu_limit, LimitReader::cpu)),
        ("pids", reader.each(&cgroups.pids, LimitReader::pids)),
        ("cpuset", reader.cpuset(&cgroups.cpuset)),
    ])
}

struct LimitReader<'a> {
    machine: &'a MachineFiles,
}

impl LimitReader<'_> {
    /// Returns the limits of a group and of those above it that have any, the nearest first.
    fn each(
        &self,
        group: &Option<TaskCgroup>,
        read: impl Fn(&Self, CgroupVersion, &str) -> Value,
    ) -> Value {
        let Some(group) = group else {
            return Value::Null;
        };
        let ancestors = group.ancestors().into_iter();
        let found = ancestors.filter_map(|(path, folder)| {
            let mut limits = read(self, group.version, &folder);
            let limits_of = limits.as_object_mut().filter(|limits| !limits.is_empty())?;
            limits_of.insert("cgroup".to_owned(), json!(shortened(&path)));
            Some(limits)
        });
        Value::Array(found.take(ANCESTORS_MAX).collect())
    }

    fn number(&self, folder: &str, file: &str) -> Option<u64> {
        self.machine.number(format!("{folder}/{file}"))
    }

    /// Returns a limit; `max`, and large numbers in version 1, are no limit.
    fn limit(&self, folder: &str, file: &str) -> Value {
        let limit = self.number(folder, file);
        json!(limit.filter(|limit| *limit < CGROUP_UNLIMITED_BYTES))
    }

    fn memory(&self, version: CgroupVersion, folder: &str) -> Value {
        let limits = match version {
            CgroupVersion::V2 => object([
                ("max_bytes", self.limit(folder, "memory.max")),
                ("high_bytes", self.limit(folder, "memory.high")),
                ("swap_max_bytes", self.limit(folder, "memory.swap.max")),
            ]),
            CgroupVersion::V1 => object([
                ("max_bytes", self.limit(folder, "memory.limit_in_bytes")),
                (
                    "high_bytes",
                    self.limit(folder, "memory.soft_limit_in_bytes"),
                ),
                (
                    "memory_and_swap_max_bytes",
                    self.limit(folder, "memory.memsw.limit_in_bytes"),
                ),
            ]),
        };
        self.with_current(
            limits,
            folder,
            match version {
                CgroupVersion::V2 => "memory.current",
                CgroupVersion::V1 => "memory.usage_in_bytes",
            },
            "current_bytes",
        )
    }

    fn cpu(&self, version: CgroupVersion, folder: &str) -> Value {
        let quota = match version {
            CgroupVersion::V2 => self.machine.text(format!("{folder}/cpu.max")),
            CgroupVersion::V1 => {
                let text = |file: &str| self.machine.text(format!("{folder}/{file}"));
                let quota = text("cpu.cfs_quota_us").filter(|quota| !quota.starts_with('-'));
                quota.and_then(|quota| Some(format!("{quota} {}", text("cpu.cfs_period_us")?)))
            }
        };
        let quota = quota.filter(|quota| !quota.starts_with("max"));
        object([(
            "quota_and_period_micros",
            json!(quota.as_deref().map(shortened)),
        )])
    }

    fn pids(&self, _: CgroupVersion, folder: &str) -> Value {
        let limits = object([("max", self.limit(folder, "pids.max"))]);
        self.with_current(limits, folder, "pids.current", "current")
    }

    /// Adds the present usage, if there are limits.
    fn with_current(&self, mut limits: Value, folder: &str, file: &str, key: &str) -> Value {
        if let Some(found) = limits.as_object_mut().filter(|found| !found.is_empty())
            && let Some(current) = self.number(folder, file)
        {
            found.insert(key.to_owned(), json!(current));
        }
        limits
    }

    /// Returns the processors and memory nodes in force.
    fn cpuset(&self, group: &Option<TaskCgroup>) -> Value {
        let Some(group) = group else {
            return Value::Null;
        };
        let folder = group.folder();
        let first = |files: &[&str]| {
            let mut texts = files
                .iter()
                .filter_map(|file| self.machine.text(format!("{folder}/{file}")));
            json!(texts.next().as_deref().map(shortened))
        };
        let cpus = [
            "cpuset.cpus.effective",
            "cpuset.effective_cpus",
            "cpuset.cpus",
        ];
        let nodes = [
            "cpuset.mems.effective",
            "cpuset.effective_mems",
            "cpuset.mems",
        ];
        object([("cpus", first(&cpus)), ("memory_nodes", first(&nodes))])
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(TEXT_CHARS_MAX).collect()
}
