//! State, rate and counters of InfiniBand, RoCE and Omni-Path ports, from `/sys/class/infiniband`.
//!
//! Publishes the standard counters (`counters`) and the driver's (`hw_counters`). Runs on a thread
//! of its own. Counters that this file does not know are published under the kernel's name.

use pegel_metric::Family;

use super::infiniband_families::{
    DEVICE_OTHER, FAMILIES, HW_OTHER, INFO, LIFESPAN, OTHER, PHYSICAL, RATE, SOURCES, STATE,
};
use crate::dynamic_series::SeriesWriter;
use crate::proc_parse::{ProcParseError, parse_u64};
use crate::sysfs_dir::SysfsDir;
use crate::sysfs_walk::{SysfsWalk, open_walk};
use crate::{CollectorEntry, Tier};

pub static ENTRY: CollectorEntry =
    CollectorEntry::threaded("infiniband", Tier::FiveSeconds, FAMILIES, |context| {
        open_walk(context, "sys/class/infiniband", InfinibandDevices)
    });

#[derive(Debug)]
struct InfinibandDevices;

impl SysfsWalk for InfinibandDevices {
    fn walk(&mut self, class: &SysfsDir, put: &mut SeriesWriter<'_>) -> Result<(), ProcParseError> {
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
    for (directory, other) in [("counters", &OTHER), ("hw_counters", &HW_OTHER)] {
        if let Some(counters) = port.subdir(directory) {
            walk_counters(labels, directory, &counters, other, put)?;
        }
    }
    Ok(())
}

/// Publishes the counters of a directory; those that the table does not know as `other`.
fn walk_counters(
    labels: &[(&str, &str); 2],
    directory: &str,
    counters: &SysfsDir,
    other: &Family,
    put: &mut SeriesWriter<'_>,
) -> Result<(), ProcParseError> {
    for name in counters.names() {
        let Some(value) = read_counter(counters, &name) else {
            continue;
        };
        let is_source = |(_, (of, file, _)): &&(&Family, (&str, &str, f64))| {
            (*of, *file) == (directory, &*name)
        };
        match SOURCES.iter().find(is_source) {
            Some((family, (_, _, factor))) => put.set(family, labels, value * factor)?,
            // Maximum age of the counters in milliseconds; not a counter.
            None if (directory, &*name) == ("hw_counters", "lifespan") => {
                put.set(&LIFESPAN, labels, value / 1e3)?;
            }
            None => put.set_keyed(other, &name, labels, value)?,
        }
    }
    Ok(())
}

/// Reads a counter. A port without a performance management agent reports `N/A (no PMA)`, which
/// gives `None`.
fn read_counter(folder: &SysfsDir, name: &str) -> Option<f64> {
    let bytes = folder.bytes(name).ok()?;
    parse_u64(bytes.trim_ascii()).map(|value| value as f64)
}

fn number_before(text: &str, mark: &str) -> Option<f64> {
    let (number, _) = text.split_once(mark)?;
    number.trim().parse().ok()
}
