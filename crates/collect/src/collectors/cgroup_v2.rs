//! Reads a control group of version 2, for the collector `cgroup`: one directory with the files of
//! all controllers.

use pegel_machine::{IoStatLine, PressureLine, cpu_list_count, key_value_lines};
use pegel_metric::Family;

use super::cgroup_families::*;
use crate::dynamic_series::SeriesWriter;
use crate::proc_parse::ProcParseError;
use crate::sysfs_dir::SysfsDir;

pub(super) fn walk(
    group: &str,
    folder: &SysfsDir,
    put: &mut SeriesWriter<'_>,
) -> Result<(), ProcParseError> {
    let labels = [("cgroup", group)];
    walk_cpu(folder, &labels, put)?;
    walk_memory(group, folder, put)?;
    walk_io(group, folder, put)?;
    put.set_if_some(&PIDS, &labels, folder.number("pids.current"))?;
    put.set_if_some(&PIDS_PEAK, &labels, folder.number("pids.peak"))?;
    // `max` means no limit and is not a number.
    put.set_if_some(&PIDS_LIMIT, &labels, folder.number("pids.max"))?;
    for (file, waiting, stalled) in [
        ("cpu.pressure", &CPU_WAITING, &CPU_STALLED),
        ("memory.pressure", &MEMORY_WAITING, &MEMORY_STALLED),
        ("io.pressure", &IO_WAITING, &IO_STALLED),
    ] {
        let text = folder.bytes(file).unwrap_or_default();
        for line in text.split(|&byte| byte == b'\n') {
            let Some(found) = PressureLine::parse(line) else {
                continue;
            };
            let family = if found.is_full { stalled } else { waiting };
            let seconds = found.total_micros.map(|micros| micros as f64 / 1e6);
            put.set_if_some(family, &labels, seconds)?;
        }
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
        let (family, value): (&Family, f64) = match key {
            "usage_usec" => (&CPU, value as f64 / 1e6),
            "user_usec" => (&CPU_USER, value as f64 / 1e6),
            "system_usec" => (&CPU_SYSTEM, value as f64 / 1e6),
            "nr_periods" => (&CPU_PERIODS, value as f64),
            "nr_throttled" => (&CPU_THROTTLED, value as f64),
            "throttled_usec" => (&CPU_THROTTLED_TIME, value as f64 / 1e6),
            _ => continue,
        };
        put.set(family, labels, value)?;
    }
    let limit = folder.text("cpu.max").and_then(|text| {
        let (quota, period) = text.split_once(' ')?;
        Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?)
    });
    put.set_if_some(&CPU_LIMIT, labels, limit.filter(|limit| limit.is_finite()))?;
    let cpus = folder.text("cpuset.cpus.effective");
    put.set_if_some(
        &CPUS,
        labels,
        cpus.and_then(|list| cpu_list_count(&list))
            .map(|count| count as f64),
    )
}

fn walk_memory(
    group: &str,
    folder: &SysfsDir,
    put: &mut SeriesWriter<'_>,
) -> Result<(), ProcParseError> {
    let labels = [("cgroup", group)];
    put.set_if_some(&MEMORY, &labels, folder.number("memory.current"))?;
    put.set_if_some(&MEMORY_PEAK, &labels, folder.number("memory.peak"))?;
    put.set_if_some(&MEMORY_LIMIT, &labels, folder.number("memory.max"))?;
    put.set_if_some(&SWAP, &labels, folder.number("memory.swap.current"))?;
    let text = folder.bytes("memory.stat").unwrap_or_default();
    for (key, value) in key_value_lines(&text) {
        let value = value as f64;
        match key {
            "pgfault" => put.set(&FAULTS, &labels, value)?,
            "pgmajfault" => put.set(&MAJOR_FAULTS, &labels, value)?,
            key if MEMORY_PARTS.iter().any(|(part, _)| *part == key) => {
                put.set_keyed(&MEMORY_PART, key, &labels, value)?;
            }
            _ => {}
        }
    }
    let text = folder.bytes("memory.events").unwrap_or_default();
    for (key, value) in key_value_lines(&text) {
        match key {
            "oom_kill" => put.set(&OOM_KILLS, &labels, value as f64)?,
            event => {
                let labels = [("cgroup", group), ("event", event)];
                put.set(&EVENTS, &labels, value as f64)?;
            }
        }
    }
    Ok(())
}

fn walk_io(
    group: &str,
    folder: &SysfsDir,
    put: &mut SeriesWriter<'_>,
) -> Result<(), ProcParseError> {
    let text = folder.bytes("io.stat").unwrap_or_default();
    for line in text.split(|&byte| byte == b'\n') {
        let Some(found) = IoStatLine::parse(line) else {
            continue;
        };
        let labels = [("cgroup", group), ("device", found.device)];
        for (family, value) in [
            (&READ, found.read_bytes),
            (&WRITTEN, found.written_bytes),
            (&READS, found.reads),
            (&WRITES, found.writes),
        ] {
            put.set_if_some(family, &labels, value.map(|value| value as f64))?;
        }
    }
    Ok(())
}
