//! Properties of a block device from the udev database, published as constant series. Part of the
//! collector `disk`.

use std::path::Path;
use std::sync::Arc;

use pegel_machine::UdevProperties;
use pegel_metric::{Family, SampleGroup, SeriesError, Slot};

use super::disk::{DEVICE_MAPPER, FILE_SYSTEM, INFO, ROTATION, WRITE_CACHE, WRITE_CACHE_ENABLED};
use crate::proc_parse::parse_u64;

/// Labels and the udev properties they come from.
type LabelKeys = &'static [(&'static str, &'static str)];
const INFO_KEYS: LabelKeys = &[
    ("path", "ID_PATH"),
    ("wwn", "ID_WWN"),
    ("model", "ID_MODEL"),
    ("serial", "ID_SERIAL_SHORT"),
    ("revision", "ID_REVISION"),
];
const FILE_SYSTEM_KEYS: LabelKeys = &[
    ("type", "ID_FS_TYPE"),
    ("usage", "ID_FS_USAGE"),
    ("uuid", "ID_FS_UUID"),
    ("version", "ID_FS_VERSION"),
];
/// Values of ATA devices and the udev properties they come from.
static ATA: [(&Family, &str); 3] = [
    (&WRITE_CACHE, "ID_ATA_WRITE_CACHE"),
    (&WRITE_CACHE_ENABLED, "ID_ATA_WRITE_CACHE_ENABLED"),
    (&ROTATION, "ID_ATA_ROTATION_RATE_RPM"),
];
const DEVICE_MAPPER_KEYS: LabelKeys = &[
    ("name", "DM_NAME"),
    ("uuid", "DM_UUID"),
    ("vg_name", "DM_VG_NAME"),
    ("lv_name", "DM_LV_NAME"),
    ("lv_layer", "DM_LV_LAYER"),
];

#[derive(Debug, Default)]
pub(super) struct UdevDiskInfo {
    values: Vec<(Slot, f64)>,
    has_udev_data: bool,
}

impl UdevDiskInfo {
    /// Reads the udev properties of a device and declares their series.
    pub(super) fn read_udev(
        udev: &Path,
        major: u64,
        minor: u64,
        device: &str,
        out: &mut SampleGroup,
    ) -> Result<UdevDiskInfo, SeriesError> {
        let found = UdevProperties::of_block_device(udev, major, minor);
        let is_known = found.is_some();
        let properties = found.unwrap_or_default();
        let mut info = UdevDiskInfo {
            values: Vec::new(),
            has_udev_data: is_known,
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
        properties: &UdevProperties,
        keys: LabelKeys,
        device: &str,
        out: &mut SampleGroup,
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
        properties: &UdevProperties,
        device: &str,
        out: &mut SampleGroup,
    ) -> Result<(), SeriesError> {
        for (family, key) in ATA {
            if let Some(value) = parse_u64(properties.get(key).as_bytes()) {
                let slot = out.declare(&Arc::new(family.clone()), &[("device", device)])?;
                self.values.push((slot, value as f64));
            }
        }
        Ok(())
    }

    pub(super) fn has_udev_data(&self) -> bool {
        self.has_udev_data
    }

    pub(super) fn set(&self, out: &mut SampleGroup) {
        for &(slot, value) in &self.values {
            out.set(slot, value);
        }
    }

    pub(super) fn retire(&self, out: &mut SampleGroup) {
        self.values.iter().for_each(|&(slot, _)| out.retire(slot));
    }
}
