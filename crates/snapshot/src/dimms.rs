//! Memory modules. Sources in order of preference: the firmware's tables, which only root may read;
//! the properties that udev derived from them; the kernel's error counters (EDAC), which have sizes
//! and locations.

use serde::Serialize;

use crate::smbios;
use pegel_machine::{MachineFiles, UdevProperties};

/// Maximum size of the tables. Those of large servers have some 100 KiB.
const TABLES_BYTES: u64 = 1 << 20;
/// Maximum number of modules.
const DIMMS_MAX: u64 = 1024;

/// A memory module. Serial numbers and asset tags are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Dimm {
    pub locator: Option<String>,
    pub bank: Option<String>,
    pub bytes: u64,
    /// `DDR5`, `HBM2`, …
    pub kind: Option<String>,
    pub manufacturer: Option<String>,
    pub part: Option<String>,
    /// Rated speed, in mega-transfers per second.
    pub speed_mts: Option<u64>,
    /// Configured speed, in mega-transfers per second.
    pub configured_mts: Option<u64>,
    pub ranks: Option<u64>,
}

#[derive(Debug, Default)]
pub(crate) struct MemoryModules {
    pub from: Option<&'static str>,
    pub ecc: Option<String>,
    /// Number of slots, used or not.
    pub slots: Option<u64>,
    pub dimms: Vec<Dimm>,
}

pub(crate) fn read(machine: &MachineFiles) -> MemoryModules {
    if let Some(tables) = machine.bytes("sys/firmware/dmi/tables/DMI", TABLES_BYTES) {
        return smbios::parse_memory_modules(&tables);
    }
    if let Some(text) = machine.text("run/udev/data/+dmi:id") {
        let modules = from_udev(&text);
        if !modules.dimms.is_empty() {
            return modules;
        }
    }
    from_edac(machine)
}

/// Reads the properties of systemd's `dmi_memory_id`, which parses the same tables as root.
fn from_udev(text: &str) -> MemoryModules {
    let properties = UdevProperties::parse(text);
    let value = |key: &str| {
        let value = properties.get(key).trim();
        (!value.is_empty()).then(|| value.to_owned())
    };
    let mut dimms = Vec::new();
    let slots = value("MEMORY_ARRAY_NUM_DEVICES").and_then(|count| count.parse().ok());
    for index in 0..slots.unwrap_or(0_u64).min(DIMMS_MAX) {
        let of = |key: &str| value(&format!("MEMORY_DEVICE_{index}_{key}"));
        let number = |key: &str| of(key).and_then(|text| text.parse::<u64>().ok());
        let Some(bytes) = number("SIZE").filter(|bytes| *bytes > 0) else {
            continue;
        };
        dimms.push(Dimm {
            locator: of("LOCATOR"),
            bank: of("BANK_LOCATOR"),
            bytes,
            kind: of("TYPE"),
            manufacturer: of("MANUFACTURER"),
            part: of("PART_NUMBER"),
            speed_mts: number("SPEED_MTS"),
            configured_mts: number("CONFIGURED_SPEED_MTS"),
            ranks: number("RANK"),
        });
    }
    MemoryModules {
        from: Some("udev"),
        ecc: value("MEMORY_ARRAY_EC_TYPE"),
        slots,
        dimms,
    }
}

fn from_edac(machine: &MachineFiles) -> MemoryModules {
    const FOLDER: &str = "sys/devices/system/edac/mc";
    let mut dimms = Vec::new();
    for controller in machine.names(FOLDER) {
        for name in machine.names(format!("{FOLDER}/{controller}")) {
            if !name.starts_with("dimm") && !name.starts_with("rank") {
                continue;
            }
            let of = |file: &str| machine.text(format!("{FOLDER}/{controller}/{name}/{file}"));
            let Some(mib) = of("size").and_then(|text| text.parse::<u64>().ok()) else {
                continue;
            };
            dimms.push(Dimm {
                locator: of("dimm_label"),
                bank: of("dimm_location"),
                bytes: mib.saturating_mul(1 << 20),
                kind: of("dimm_mem_type"),
                ..Dimm::default()
            });
        }
    }
    MemoryModules {
        from: (!dimms.is_empty()).then_some("edac"),
        dimms,
        ..MemoryModules::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_read_from_udev_properties() {
        let text = "I:1\nE:MEMORY_ARRAY_NUM_DEVICES=2\nE:MEMORY_ARRAY_EC_TYPE=Multi-bit ECC\n\
                    E:MEMORY_DEVICE_0_PRESENT=0\nE:MEMORY_DEVICE_1_LOCATOR=DIMM 1\n\
                    E:MEMORY_DEVICE_1_SIZE=34359738368\nE:MEMORY_DEVICE_1_TYPE=DDR5\n\
                    E:MEMORY_DEVICE_1_SPEED_MTS=4800\nE:MEMORY_DEVICE_1_SERIAL_NUMBER=PLANTED\n";
        let modules = from_udev(text);
        assert_eq!((modules.slots, modules.dimms.len()), (Some(2), 1));
        let dimm = &modules.dimms[0];
        assert_eq!(dimm.locator.as_deref(), Some("DIMM 1"));
        assert_eq!((dimm.bytes, dimm.speed_mts), (32 << 30, Some(4800)));
        assert!(!format!("{modules:?}").contains("PLANTED"));
        let many = "E:MEMORY_ARRAY_NUM_DEVICES=18446744073709551615\n";
        assert_eq!(from_udev(many).dimms, []);
    }
}
