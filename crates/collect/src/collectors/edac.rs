//! Memory errors detected by the hardware, correctable and uncorrectable, from `/sys/devices/system/edac/mc`.

use std::path::PathBuf;

use pegel_metric::Family;

use crate::folder::Folder;
use crate::scan::Fault;
use crate::sheet::counter;
use crate::walk::{Put, Walk, open_walk};
use crate::{Context, Entry, OpenError, Opened, Pace, Tier};

static CORRECTED: Family = counter(
    "node_edac_correctable_errors_total",
    "",
    "Total number of corrected memory errors of the memory controller.",
);
static UNCORRECTED: Family = counter(
    "node_edac_uncorrectable_errors_total",
    "",
    "Total number of uncorrectable memory errors of the memory controller.",
);
static ROW_CORRECTED: Family = counter(
    "node_edac_csrow_correctable_errors_total",
    "",
    "Total number of corrected memory errors of the chip-select row.",
);
static ROW_UNCORRECTED: Family = counter(
    "node_edac_csrow_uncorrectable_errors_total",
    "",
    "Total number of uncorrectable memory errors of the chip-select row.",
);
static DIMM_CORRECTED: Family = counter(
    "node_edac_dimm_correctable_errors_total",
    "",
    "Total number of corrected memory errors of the memory module.",
);
static DIMM_UNCORRECTED: Family = counter(
    "node_edac_dimm_uncorrectable_errors_total",
    "",
    "Total number of uncorrectable memory errors of the memory module.",
);

pub static ENTRY: Entry = Entry {
    name: "edac",
    tier: Tier::FiveSeconds,
    pace: Pace::Aside,
    level: 3,
    families: &[
        &CORRECTED,
        &UNCORRECTED,
        &ROW_CORRECTED,
        &ROW_UNCORRECTED,
        &DIMM_CORRECTED,
        &DIMM_UNCORRECTED,
    ],
    open,
};

#[derive(Debug)]
struct EdacControllers {
    system: PathBuf,
}

fn open(context: &Context) -> Result<Opened, OpenError> {
    let system = context.host.sys.join("devices/system/edac/mc");
    open_walk(context, system.clone(), EdacControllers { system })
}

impl Walk for EdacControllers {
    fn walk(&mut self, put: &mut Put<'_>) -> Result<(), Fault> {
        let Some(system) = Folder::open(&self.system) else {
            return Ok(());
        };
        for (controller, folder) in system.numbered("mc") {
            put.touch(folder.path());
            walk_controller(&controller, &folder, put)?;
        }
        Ok(())
    }
}

fn walk_controller(controller: &str, folder: &Folder, put: &mut Put<'_>) -> Result<(), Fault> {
    let labels = [("controller", controller)];
    put.maybe(&CORRECTED, &labels, folder.number("ce_count"))?;
    put.maybe(&UNCORRECTED, &labels, folder.number("ue_count"))?;
    // Errors that the hardware cannot attribute to a row.
    let labels = [("controller", controller), ("csrow", "unknown")];
    put.maybe(&ROW_CORRECTED, &labels, folder.number("ce_noinfo_count"))?;
    put.maybe(&ROW_UNCORRECTED, &labels, folder.number("ue_noinfo_count"))?;
    for (row, folder) in folder.numbered("csrow") {
        let labels = [("controller", controller), ("csrow", &*row)];
        put.maybe(&ROW_CORRECTED, &labels, folder.number("ce_count"))?;
        put.maybe(&ROW_UNCORRECTED, &labels, folder.number("ue_count"))?;
    }
    for (dimm, folder) in folder.numbered("dimm") {
        let name = folder.text("dimm_label").unwrap_or_default();
        let labels = [
            ("controller", controller),
            ("dimm", &*dimm),
            ("label", &*name),
        ];
        put.maybe(&DIMM_CORRECTED, &labels, folder.number("dimm_ce_count"))?;
        put.maybe(&DIMM_UNCORRECTED, &labels, folder.number("dimm_ue_count"))?;
    }
    Ok(())
}
