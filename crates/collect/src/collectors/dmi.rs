//! Vendor and model of the node, its board and its firmware, from `/sys/class/dmi/id`. Serial numbers, asset tags and the
//! machine's unique ID are not published.

use std::path::PathBuf;

use pegel_metric::{Family, Group, Kind};

use crate::attribute::text;
use crate::fact::Fact;
use crate::scan::Fault;
use crate::{CollectError, Collector, Context, Entry, OpenError, Opened, Pace, Tier};

static INFO: Family = Family::new(
    "node_dmi_info",
    Kind::Gauge,
    "",
    2,
    "Vendor and model of the node, its board and its firmware; always 1.",
);

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

pub static ENTRY: Entry = Entry {
    name: "dmi",
    tier: Tier::Minute,
    pace: Pace::Here,
    level: 2,
    families: &[&INFO],
    open,
};

#[derive(Debug)]
struct Dmi {
    folder: PathBuf,
    info: Fact,
}

fn open(context: &Context) -> Result<Opened, OpenError> {
    let folder = context.host.sys.join("class/dmi/id");
    if !folder.is_dir() {
        return Ok(Opened::Absent { looked_for: folder });
    }
    Ok(Opened::Active(Box::new(Dmi {
        folder,
        info: Fact::new(&INFO),
    })))
}

impl Collector for Dmi {
    fn collect(&mut self, out: &mut Group) -> Result<(), CollectError> {
        let labels = FILES.iter().filter_map(|(label, file)| {
            let text = text(&self.folder.join(file))?;
            Some((*label, text))
        });
        let set = self.info.set(out, labels.collect(), 1.0);
        set.map_err(|error| Fault::from(error).at(&self.folder))
    }
}
