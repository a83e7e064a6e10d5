//! Vendor and model of the node, its board and its firmware, from `/sys/class/dmi/id`. Serial numbers, asset tags and the
//! machine's unique ID are not published.

use std::path::PathBuf;

use pegel_metric::{Family, MetricKind, SampleGroup};

use crate::attribute::attribute_text;
use crate::info_series::InfoSeries;
use crate::proc_parse::ProcParseError;
use crate::{
    CollectError, Collector, CollectorEntry, CollectorOpenError, Context, Execution, OpenOutcome,
    Tier,
};

static INFO: Family = Family::new(
    "node_dmi_info",
    MetricKind::Gauge,
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

pub static ENTRY: CollectorEntry = CollectorEntry {
    name: "dmi",
    tier: Tier::Minute,
    execution: Execution::Inline,
    level: 2,
    families: &[&INFO],
    open,
};

#[derive(Debug)]
struct Dmi {
    folder: PathBuf,
    info: InfoSeries,
}

fn open(context: &Context) -> Result<OpenOutcome, CollectorOpenError> {
    let folder = context.host.sys.join("class/dmi/id");
    if !folder.is_dir() {
        return Ok(OpenOutcome::Absent { looked_for: folder });
    }
    Ok(OpenOutcome::Active(Box::new(Dmi {
        folder,
        info: InfoSeries::new(&INFO),
    })))
}

impl Collector for Dmi {
    fn collect(&mut self, out: &mut SampleGroup) -> Result<(), CollectError> {
        let labels = FILES.iter().filter_map(|(label, file)| {
            let text = attribute_text(&self.folder.join(file))?;
            Some((*label, text))
        });
        let set = self.info.set(out, labels.collect(), 1.0);
        set.map_err(|error| ProcParseError::from(error).at_path(&self.folder))
    }
}
