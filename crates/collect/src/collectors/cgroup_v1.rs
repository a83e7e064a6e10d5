//! Reads a control group of version 1, for the collector `cgroup`: one directory in the hierarchy
//! of each controller.

use pegel_machine::{BlkioLine, CGROUP_UNLIMITED_BYTES, cpu_list_count, key_value_lines};

use super::cgroup::open_group;
use super::cgroup_families::*;
use crate::dynamic_series::SeriesWriter;
use crate::proc_parse::ProcParseError;
use crate::sysfs_dir::SysfsDir;

/// The kernel reports "no limit" as a number near 2^63; values from here on mean no limit.
const LIMIT_MAX: f64 = CGROUP_UNLIMITED_BYTES as f64;

/// The root directories of the controllers' hierarchies.
#[derive(Debug)]
pub(super) struct CgroupV1Controllers {
    memory: SysfsDir,
    cpuacct: Option<SysfsDir>,
    cpu: Option<SysfsDir>,
    cpuset: Option<SysfsDir>,
    blkio: Option<SysfsDir>,
    pids: Option<SysfsDir>,
}

impl CgroupV1Controllers {
    /// Returns `None` if version 1 is not mounted.
    pub(super) fn find(mount: &SysfsDir) -> Option<CgroupV1Controllers> {
        let memory = mount.subdir("memory")?;
        // In version 2, `memory` would be an ordinary group of this name.
        memory.bytes("memory.usage_in_bytes").ok()?;
        Some(CgroupV1Controllers {
            memory,
            cpuacct: mount.subdir("cpuacct"),
            cpu: mount.subdir("cpu"),
            cpuset: mount.subdir("cpuset"),
            blkio: mount.subdir("blkio"),
            pids: mount.subdir("pids"),
        })
    }

    /// Returns the hierarchy in which groups are searched.
    pub(super) fn memory_root(&self) -> &SysfsDir {
        &self.memory
    }
}

pub(super) fn walk(
    group: &str,
    controllers: &CgroupV1Controllers,
    user_hz: f64,
    put: &mut SeriesWriter<'_>,
) -> Result<(), ProcParseError> {
    // A controller without this group accounts to another group: skip it.
    let open_in = |root: &Option<SysfsDir>| root.as_ref().and_then(|root| open_group(root, group));
    let labels = [("cgroup", group)];
    if let Some(folder) = open_in(&controllers.cpuacct) {
        let seconds = folder.number("cpuacct.usage").map(|nanos| nanos / 1e9);
        put.set_if_some(&CPU, &labels, seconds)?;
        let text = folder.bytes("cpuacct.stat").unwrap_or_default();
        for (key, ticks) in key_value_lines(&text) {
            let seconds = ticks as f64 / user_hz;
            match key {
                "user" => put.set(&CPU_USER, &labels, seconds)?,
                "system" => put.set(&CPU_SYSTEM, &labels, seconds)?,
                _ => {}
            }
        }
    }
    if let Some(folder) = open_in(&controllers.cpu) {
        walk_cpu(&folder, &labels, put)?;
    }
    if let Some(folder) = open_in(&controllers.cpuset) {
        let list = folder.text("cpuset.effective_cpus");
        let list = list.or_else(|| folder.text("cpuset.cpus"));
        put.set_if_some(
            &CPUS,
            &labels,
            list.and_then(|list| cpu_list_count(&list))
                .map(|count| count as f64),
        )?;
    }
    if let Some(folder) = open_group(&controllers.memory, group) {
        walk_memory(group, &folder, put)?;
    }
    if let Some(folder) = open_in(&controllers.blkio) {
        walk_io(group, &folder, put)?;
    }
    if let Some(folder) = open_in(&controllers.pids) {
        put.set_if_some(&PIDS, &labels, folder.number("pids.current"))?;
        put.set_if_some(&PIDS_LIMIT, &labels, folder.number("pids.max"))?;
    }
    Ok(())
}

fn walk_cpu(
    folder: &SysfsDir,
    labels: &[(&str, &str)],
    put: &mut SeriesWriter<'_>,
) -> Result<(), ProcParseError> {
    let text = folder.bytes("cpu.stat").unwrap_or_default();
    for (key, value) in key_value_lines(&text) {
        match key {
            "nr_periods" => put.set(&CPU_PERIODS, labels, value as f64)?,
            "nr_throttled" => put.set(&CPU_THROTTLED, labels, value as f64)?,
            "throttled_time" => put.set(&CPU_THROTTLED_TIME, labels, value as f64 / 1e9)?,
            _ => {}
        }
    }
    // A quota of -1 means no limit.
    let quota = folder.number("cpu.cfs_quota_us");
    let period = folder.number("cpu.cfs_period_us");
    if let (Some(quota), Some(period)) = (quota, period)
        && quota > 0.0
        && period > 0.0
    {
        put.set(&CPU_LIMIT, labels, quota / period)?;
    }
    Ok(())
}

fn walk_memory(
    group: &str,
    folder: &SysfsDir,
    put: &mut SeriesWriter<'_>,
) -> Result<(), ProcParseError> {
    let labels = [("cgroup", group)];
    let number = |name| folder.number(name);
    let usage = number("memory.usage_in_bytes");
    put.set_if_some(&MEMORY, &labels, usage)?;
    put.set_if_some(&MEMORY_PEAK, &labels, number("memory.max_usage_in_bytes"))?;
    let limit = number("memory.limit_in_bytes").filter(|limit| *limit < LIMIT_MAX);
    put.set_if_some(&MEMORY_LIMIT, &labels, limit)?;
    let text = folder.bytes("memory.stat").unwrap_or_default();
    for (key, value) in key_value_lines(&text) {
        let value = value as f64;
        match key {
            "total_swap" => put.set(&SWAP, &labels, value)?,
            "total_pgfault" => put.set(&FAULTS, &labels, value)?,
            "total_pgmajfault" => put.set(&MAJOR_FAULTS, &labels, value)?,
            key => {
                if let Some((part, _)) = MEMORY_PARTS.iter().find(|(_, old)| *old == key) {
                    put.set_keyed(&MEMORY_PART, part, &labels, value)?;
                }
            }
        }
    }
    let event_labels = [("cgroup", group), ("event", "max")];
    put.set_if_some(&EVENTS, &event_labels, number("memory.failcnt"))?;
    let text = folder.bytes("memory.oom_control").unwrap_or_default();
    let kills = key_value_lines(&text).find(|(key, _)| *key == "oom_kill");
    put.set_if_some(&OOM_KILLS, &labels, kills.map(|(_, count)| count as f64))
}

fn walk_io(
    group: &str,
    folder: &SysfsDir,
    put: &mut SeriesWriter<'_>,
) -> Result<(), ProcParseError> {
    for (file, read, written) in [
        ("blkio.throttle.io_service_bytes", &READ, &WRITTEN),
        ("blkio.throttle.io_serviced", &READS, &WRITES),
    ] {
        let text = folder.bytes(file).unwrap_or_default();
        for line in text.split(|&byte| byte == b'\n') {
            let Some(found) = BlkioLine::parse(line) else {
                continue;
            };
            let family = match found.kind {
                b"Read" => read,
                b"Write" => written,
                _ => continue,
            };
            let labels = [("cgroup", group), ("device", found.device)];
            put.set(family, &labels, found.value as f64)?;
        }
    }
    Ok(())
}
