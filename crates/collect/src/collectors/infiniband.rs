//! State, rate and counters of InfiniBand, RoCE and Omni-Path ports, from `/sys/class/infiniband`.
//!
//! Publishes the standard counters (`counters`) and the driver's (`hw_counters`). Runs on a thread of its own.
//! Counters that this file does not know are published under the kernel's name.

use std::path::PathBuf;

use crate::proc_parse::{ProcParseError, parse_u64};
use crate::sysfs_dir::SysfsDir;
use crate::sysfs_walk::{SeriesWriter, SysfsWalk, open_walk};
use crate::{CollectorEntry, CollectorOpenError, Context, Execution, OpenOutcome, Tier};

use super::infiniband_families::{
    ALL, COUNTERS, DEVICE_OTHER, HW_COUNTERS, HW_OTHER, INFO, InfinibandUnit, LIFESPAN, OTHER,
    PHYSICAL, RATE, STATE,
};

pub static ENTRY: CollectorEntry = CollectorEntry {
    name: "infiniband",
    tier: Tier::FiveSeconds,
    execution: Execution::Threaded,
    level: 3,
    families: ALL,
    open,
};

#[derive(Debug)]
struct InfinibandDevices {
    class: PathBuf,
}

fn open(context: &Context) -> Result<OpenOutcome, CollectorOpenError> {
    let class = context.host.sys.join("class/infiniband");
    open_walk(context, class.clone(), InfinibandDevices { class })
}

impl SysfsWalk for InfinibandDevices {
    fn walk(&mut self, put: &mut SeriesWriter<'_>) -> Result<(), ProcParseError> {
        let Some(class) = SysfsDir::open(&self.class) else {
            return Ok(());
        };
        for device in class.names() {
            let Some(folder) = class.subdir(&device) else {
                continue;
            };
            put.set_current_path(folder.path());
            walk_device(&device, &folder, put)?;
        }
        Ok(())
    }
}

fn walk_device(
    device: &str,
    folder: &SysfsDir,
    put: &mut SeriesWriter<'_>,
) -> Result<(), ProcParseError> {
    let text = |name| folder.text(name).unwrap_or_default();
    let (board, firmware, kind) = (text("board_id"), text("fw_ver"), text("hca_type"));
    let labels = [
        ("board_id", &*board),
        ("device", device),
        ("firmware_version", &*firmware),
        ("hca_type", &*kind),
    ];
    put.set(&INFO, &labels, 1.0)?;
    if let Some(counters) = folder.subdir("hw_counters") {
        for name in counters.names() {
            if let Some(value) = read_counter(&counters, &name) {
                put.set_keyed(&DEVICE_OTHER, &name, &[("device", device)], value)?;
            }
        }
    }
    let Some(ports) = folder.subdir("ports") else {
        return Ok(());
    };
    for (port, folder) in ports.numbered_subdirs("") {
        put.set_current_path(folder.path());
        walk_port(&[("device", device), ("port", &port)], &folder, put)?;
    }
    Ok(())
}

fn walk_port(
    labels: &[(&str, &str); 2],
    port: &SysfsDir,
    put: &mut SeriesWriter<'_>,
) -> Result<(), ProcParseError> {
    let state = |name| number_before(&port.text(name)?, ":");
    put.set_if_some(&STATE, labels, state("state"))?;
    put.set_if_some(&PHYSICAL, labels, state("phys_state"))?;
    // For example `100 Gb/sec (4X EDR)`.
    let rate = port.text("rate");
    let rate = rate.and_then(|text| number_before(&text, " Gb/sec"));
    put.set_if_some(&RATE, labels, rate.map(|gigabits| gigabits * 1e9 / 8.0))?;
    if let Some(counters) = port.subdir("counters") {
        walk_counters(labels, &counters, put)?;
    }
    if let Some(counters) = port.subdir("hw_counters") {
        walk_hw_counters(labels, &counters, put)?;
    }
    Ok(())
}

fn walk_counters(
    labels: &[(&str, &str); 2],
    folder: &SysfsDir,
    put: &mut SeriesWriter<'_>,
) -> Result<(), ProcParseError> {
    for name in folder.names() {
        let Some(value) = read_counter(folder, &name) else {
            continue;
        };
        match COUNTERS.iter().find(|(_, known, _)| *known == name) {
            Some((family, _, InfinibandUnit::One)) => put.set(family, labels, value)?,
            Some((family, _, InfinibandUnit::Words)) => put.set(family, labels, value * 4.0)?,
            None => put.set_keyed(&OTHER, &name, labels, value)?,
        }
    }
    Ok(())
}

fn walk_hw_counters(
    labels: &[(&str, &str); 2],
    folder: &SysfsDir,
    put: &mut SeriesWriter<'_>,
) -> Result<(), ProcParseError> {
    for name in folder.names() {
        let Some(value) = read_counter(folder, &name) else {
            continue;
        };
        if name == "lifespan" {
            // Maximum age of the counters in milliseconds; not a counter.
            put.set(&LIFESPAN, labels, value / 1e3)?;
            continue;
        }
        match HW_COUNTERS.iter().find(|(_, known)| *known == name) {
            Some((family, _)) => put.set(family, labels, value)?,
            None => put.set_keyed(&HW_OTHER, &name, labels, value)?,
        }
    }
    Ok(())
}

/// Reads a counter. A port without a performance management agent reports `N/A (no PMA)`, which gives `None`.
fn read_counter(folder: &SysfsDir, name: &str) -> Option<f64> {
    let bytes = folder.bytes(name).ok()?;
    parse_u64(bytes.trim_ascii()).map(|value| value as f64)
}

fn number_before(text: &str, mark: &str) -> Option<f64> {
    let (number, _) = text.split_once(mark)?;
    number.trim().parse().ok()
}
