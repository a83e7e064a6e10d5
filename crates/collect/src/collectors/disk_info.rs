//! Facts about a block device, as series whose value is 1 or does not change.

use std::path::Path;
use std::sync::Arc;

use pegel_metric::{Family, Group, Kind, SeriesError, Slot};

use crate::scan::integer;
use crate::udev::Properties;

const fn family(name: &'static str, help: &'static str) -> Family {
    Family::new(name, Kind::Gauge, "", 2, help)
}

pub(super) static INFO: Family = family("node_disk_info", "What the device is; always 1.");
pub(super) static FILE_SYSTEM: Family = family(
    "node_disk_filesystem_info",
    "The file system on the device; always 1.",
);
pub(super) static DEVICE_MAPPER: Family = family(
    "node_disk_device_mapper_info",
    "What a mapped device stands for; always 1.",
);
pub(super) static WRITE_CACHE: Family = family(
    "node_disk_ata_write_cache",
    "1 if the device has a write cache.",
);
pub(super) static WRITE_CACHE_ENABLED: Family = family(
    "node_disk_ata_write_cache_enabled",
    "1 if the device's write cache is on.",
);
pub(super) static ROTATION: Family = family(
    "node_disk_ata_rotation_rate_rpm",
    "How fast the disk turns, in revolutions per minute; 0 if it does not.",
);

/// Labels and the properties that give them.
type Keys = &'static [(&'static str, &'static str)];
const INFO_KEYS: Keys = &[
    ("path", "ID_PATH"),
    ("wwn", "ID_WWN"),
    ("model", "ID_MODEL"),
    ("serial", "ID_SERIAL_SHORT"),
    ("revision", "ID_REVISION"),
];
const FILE_SYSTEM_KEYS: Keys = &[
    ("type", "ID_FS_TYPE"),
    ("usage", "ID_FS_USAGE"),
    ("uuid", "ID_FS_UUID"),
    ("version", "ID_FS_VERSION"),
];
/// Numbers that ATA devices have, and the properties that give them.
static ATA: [(&Family, &str); 3] = [
    (&WRITE_CACHE, "ID_ATA_WRITE_CACHE"),
    (&WRITE_CACHE_ENABLED, "ID_ATA_WRITE_CACHE_ENABLED"),
    (&ROTATION, "ID_ATA_ROTATION_RATE_RPM"),
];
const DEVICE_MAPPER_KEYS: Keys = &[
    ("name", "DM_NAME"),
    ("uuid", "DM_UUID"),
    ("vg_name", "DM_VG_NAME"),
    ("lv_name", "DM_LV_NAME"),
    ("lv_layer", "DM_LV_LAYER"),
];

#[derive(Debug, Default)]
pub(super) struct Info {
    values: Vec<(Slot, f64)>,
    is_known: bool,
}

impl Info {
    /// Asks udev, and declares what it knows.
    pub(super) fn ask(
        udev: &Path,
        major: u64,
        minor: u64,
        device: &str,
        out: &mut Group,
    ) -> Result<Info, SeriesError> {
        let found = Properties::of_block_device(udev, major, minor);
        let is_known = found.is_some();
        let properties = found.unwrap_or_default();
        let mut info = Info {
            values: Vec::new(),
            is_known,
        };
        let number = [
            ("major", &*major.to_string()),
            ("minor", &*minor.to_string()),
        ];
        info.declare(&INFO, &number, &properties, INFO_KEYS, device, out)?;
        if !properties.get("ID_FS_TYPE").is_empty() {
            info.declare(
                &FILE_SYSTEM,
                &[],
                &properties,
                FILE_SYSTEM_KEYS,
                device,
                out,
            )?;
        }
        if !properties.get("DM_NAME").is_empty() {
            info.declare(
                &DEVICE_MAPPER,
                &[],
                &properties,
                DEVICE_MAPPER_KEYS,
                device,
                out,
            )?;
        }
        if !properties.get("ID_ATA").is_empty() {
            info.declare_ata(&properties, device, out)?;
        }
        Ok(info)
    }

    fn declare(
        &mut self,
        family: &Family,
        known: &[(&str, &str)],
        properties: &Properties,
        keys: Keys,
        device: &str,
        out: &mut Group,
    ) -> Result<(), SeriesError> {
        let mut labels = vec![("device", device)];
        labels.extend_from_slice(known);
        labels.extend(
            keys.iter()
                .map(|(label, key)| (*label, properties.get(key))),
        );
        let slot = out.declare(&Arc::new(family.clone()), &labels)?;
        self.values.push((slot, 1.0));
        Ok(())
    }

    fn declare_ata(
        &mut self,
        properties: &Properties,
        device: &str,
        out: &mut Group,
    ) -> Result<(), SeriesError> {
        for (family, key) in ATA {
            if let Some(value) = integer(properties.get(key).as_bytes()) {
                let slot = out.declare(&Arc::new(family.clone()), &[("device", device)])?;
                self.values.push((slot, value as f64));
            }
        }
        Ok(())
    }

    pub(super) fn is_known(&self) -> bool {
        self.is_known
    }

    pub(super) fn set(&self, out: &mut Group) {
        for &(slot, value) in &self.values {
            out.set(slot, value);
        }
    }

    pub(super) fn retire(&self, out: &mut Group) {
        self.values.iter().for_each(|&(slot, _)| out.retire(slot));
    }
}
