//! Vendor and model of the node, its board and its firmware, from `/sys/class/dmi/id`. Serial
//! numbers, asset tags and the machine's unique ID are not published.

use crate::dynamic_series::SeriesWriter;
use crate::families::families;
use crate::proc_parse::ProcParseError;
use crate::sysfs_dir::SysfsDir;
use crate::sysfs_walk::{SysfsWalk, open_walk};
use crate::{CollectorEntry, Tier};

families! {
    INFO Gauge 2 "node_dmi_info" "" "Vendor and model of the node, its board and its firmware; always 1.";
}

/// Labels and the files they come from.
const FILES: [(&str, &str); 14] = [
    ("bios_date", "bios_date"),
    ("bios_release", "bios_release"),
    ("bios_vendor", "bios_vendor"),
    ("bios_version", "bios_version"),
    ("board_name", "board_name"),
    ("board_vendor", "board_vendor"),
    ("board_version", "board_version"),
    ("chassis_vendor", "chassis_vendor"),
    ("chassis_version", "chassis_version"),
    ("product_family", "product_family"),
    ("product_name", "product_name"),
    ("product_sku", "product_sku"),
    ("product_version", "product_version"),
    ("system_vendor", "sys_vendor"),
];

pub static ENTRY: CollectorEntry =
    CollectorEntry::inline("dmi", Tier::Minute, FAMILIES, |context| {
        open_walk(context, "sys/class/dmi/id", DmiStrings)
    });

#[derive(Debug)]
struct DmiStrings;

impl SysfsWalk for DmiStrings {
    fn walk(&mut self, id: &SysfsDir, put: &mut SeriesWriter<'_>) -> Result<(), ProcParseError> {
        put.set_info(&INFO, &[], &id.labels(&FILES))
    }
}
