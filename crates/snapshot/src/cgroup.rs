//! The resource limits of the agent's cgroup: for each resource the lowest limit among the cgroup
//! and its ancestors. Reads both cgroup v1 and v2.

use std::path::Path;

use serde::Serialize;

use pegel_machine::{
    CGROUP_MOUNT, CGROUP_UNLIMITED_BYTES, MachineFiles, cgroup_ancestors, cgroup_lines,
    cgroup_v1_mount,
};

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct CgroupLimits {
    /// `v1`, `v2` or `hybrid`.
    pub version: Option<&'static str>,
    pub path: Option<String>,
    pub memory_bytes: Option<u64>,
    pub memory_high_bytes: Option<u64>,
    pub swap_bytes: Option<u64>,
    /// CPU time quota, in processors.
    pub cpus: Option<f64>,
    /// Processors that may be used; `cpuset_memory` are the memory nodes.
    pub cpuset: Option<String>,
    pub cpuset_memory: Option<String>,
    pub processes: Option<u64>,
}

/// Returns the lowest memory limit of this process's cgroup and its parents, of the machine below
/// `root`.
pub fn cgroup_memory_limit(root: &Path) -> Option<u64> {
    read(&MachineFiles::at(root)).memory_bytes
}

pub(crate) fn read(machine: &MachineFiles) -> CgroupLimits {
    let text = machine.text("proc/self/cgroup").unwrap_or_default();
    let lines: Vec<(&str, &str)> = cgroup_lines(&text).collect();
    let unified = lines.iter().find(|(controllers, _)| controllers.is_empty());
    let is_v2 = machine.exists(format!("{CGROUP_MOUNT}/cgroup.controllers"));
    match unified {
        Some((_, path)) if is_v2 => v2(machine, path),
        _ if lines.is_empty() => CgroupLimits::default(),
        _ => CgroupLimits {
            version: Some(if unified.is_some() { "hybrid" } else { "v1" }),
            ..v1(machine, &lines)
        },
    }
}

/// Returns the lowest limit among the directories. `max` does not parse as a number and is no
/// limit.
fn lowest_limit(machine: &MachineFiles, folders: &[String], file: &str) -> Option<u64> {
    let limits = folders
        .iter()
        .filter_map(|folder| machine.number(format!("{folder}/{file}")));
    limits.filter(|limit| *limit < CGROUP_UNLIMITED_BYTES).min()
}

/// Returns the value in force: that of the nearest cgroup that has the file.
fn nearest_value(machine: &MachineFiles, folders: &[String], file: &str) -> Option<String> {
    folders
        .iter()
        .find_map(|folder| machine.text(format!("{folder}/{file}")))
}

fn v2(machine: &MachineFiles, path: &str) -> CgroupLimits {
    let folders = cgroup_ancestors(CGROUP_MOUNT, path);
    // `200000 100000`: a quota of 2 processors; `max 100000`: no limit.
    let cpus = folders.iter().filter_map(|folder| {
        let text = machine.text(format!("{folder}/cpu.max"))?;
        let (quota, period) = text.split_once(' ')?;
        cpus_from_quota(quota.parse().ok()?, period.parse().ok()?)
    });
    CgroupLimits {
        version: Some("v2"),
        path: Some(path.to_owned()),
        memory_bytes: lowest_limit(machine, &folders, "memory.max"),
        memory_high_bytes: lowest_limit(machine, &folders, "memory.high"),
        swap_bytes: lowest_limit(machine, &folders, "memory.swap.max"),
        cpus: cpus.min_by(f64::total_cmp),
        cpuset: nearest_value(machine, &folders, "cpuset.cpus.effective"),
        cpuset_memory: nearest_value(machine, &folders, "cpuset.mems.effective"),
        processes: lowest_limit(machine, &folders, "pids.max"),
    }
}

fn cpus_from_quota(quota: i64, period: i64) -> Option<f64> {
    (quota > 0 && period > 0).then(|| quota as f64 / period as f64)
}

fn v1(machine: &MachineFiles, lines: &[(&str, &str)]) -> CgroupLimits {
    let of = |controller: &str| {
        let (mount, path) = cgroup_v1_mount(machine, lines, controller)?;
        Some((cgroup_ancestors(&mount, &path), path))
    };
    let folders = |controller: &str| {
        of(controller)
            .map(|(folders, _)| folders)
            .unwrap_or_default()
    };
    let (memory, cpu, cpuset) = (folders("memory"), folders("cpu"), folders("cpuset"));
    let cpus = cpu.iter().filter_map(|folder| {
        let number = |file: &str| machine.text(format!("{folder}/{file}"))?.parse().ok();
        cpus_from_quota(number("cpu.cfs_quota_us")?, number("cpu.cfs_period_us")?)
    });
    CgroupLimits {
        version: None,
        path: of("memory").or_else(|| of("cpu")).map(|(_, path)| path),
        memory_bytes: lowest_limit(machine, &memory, "memory.limit_in_bytes"),
        memory_high_bytes: lowest_limit(machine, &memory, "memory.soft_limit_in_bytes"),
        // Cgroup v1 limits only the sum of memory and swap.
        swap_bytes: None,
        cpus: cpus.min_by(f64::total_cmp),
        cpuset: nearest_value(machine, &cpuset, "cpuset.effective_cpus")
            .or_else(|| nearest_value(machine, &cpuset, "cpuset.cpus")),
        cpuset_memory: nearest_value(machine, &cpuset, "cpuset.effective_mems")
            .or_else(|| nearest_value(machine, &cpuset, "cpuset.mems")),
        processes: lowest_limit(machine, &folders("pids"), "pids.max"),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use pegel_testkit::TempDir;

    use super::*;

    fn machine(files: &[(&str, &str)]) -> (TempDir, MachineFiles) {
        let dir = TempDir::new();
        for (path, text) in files {
            let path = dir.join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, text).expect("written");
        }
        let machine = MachineFiles::at(dir.path());
        (dir, machine)
    }

    #[test]
    fn the_lowest_limit_on_the_way_up_holds() {
        let (_dir, machine) = machine(&[
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/cgroup.controllers", "cpu memory\n"),
            ("sys/fs/cgroup/cpuset.cpus.effective", "0-63\n"),
            ("sys/fs/cgroup/a/memory.max", "1000\n"),
            ("sys/fs/cgroup/a/cpu.max", "250000 100000\n"),
            ("sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("sys/fs/cgroup/a/b/cpu.max", "max 100000\n"),
            ("sys/fs/cgroup/a/b/pids.max", "50\n"),
        ]);
        let found = read(&machine);
        assert_eq!(
            (found.version, found.path.as_deref()),
            (Some("v2"), Some("/a/b"))
        );
        assert_eq!((found.memory_bytes, found.cpus), (Some(1000), Some(2.5)));
        assert_eq!(
            (found.processes, found.cpuset.as_deref()),
            (Some(50), Some("0-63"))
        );
    }

    #[test]
    fn the_older_hierarchies_are_read_too() {
        let (_dir, machine) = machine(&[
            (
                "proc/self/cgroup",
                "4:memory:/job_7\n2:cpu,cpuacct:/job_7\n1:name=systemd:/\n",
            ),
            (
                "sys/fs/cgroup/memory/memory.limit_in_bytes",
                "9223372036854771712\n",
            ),
            ("sys/fs/cgroup/memory/job_7/memory.limit_in_bytes", "4096\n"),
            ("sys/fs/cgroup/cpu,cpuacct/job_7/cpu.cfs_quota_us", "-1\n"),
            ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "50000\n"),
            ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
        ]);
        let found = read(&machine);
        assert_eq!(
            (found.version, found.path.as_deref()),
            (Some("v1"), Some("/job_7"))
        );
        assert_eq!((found.memory_bytes, found.cpus), (Some(4096), Some(0.5)));
        let (_dir, empty) = self::machine(&[]);
        assert_eq!(read(&empty), CgroupLimits::default());
    }
}
