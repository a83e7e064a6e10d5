//! Memory errors detected by the hardware, correctable and uncorrectable, from `/sys/devices/system/edac/mc`.

use std::path::PathBuf;

use pegel_metric::Family;

use crate::dynamic_series::counter;
use crate::proc_parse::ProcParseError;
use crate::sysfs_dir::SysfsDir;
use crate::sysfs_walk::{SeriesWriter, SysfsWalk, open_walk};
use crate::{CollectorEntry, CollectorOpenError, Context, Execution, OpenOutcome, Tier};

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

pub static ENTRY: CollectorEntry = CollectorEntry {
    name: "edac",
    tier: Tier::FiveSeconds,
    execution: Execution::Threaded,
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

fn open(context: &Context) -> Result<OpenOutcome, CollectorOpenError> {
    let system = context.host.sys.join("devices/system/edac/mc");
    open_walk(context, system.clone(), EdacControllers { system })
}

impl SysfsWalk for EdacControllers {
    fn walk(&mut self, put: &mut SeriesWriter<'_>) -> Result<(), ProcParseError> {
        let Some(system) = SysfsDir::open(&self.system) else {
            return Ok(());
        };
        for (controller, folder) in system.numbered_subdirs("mc") {
            put.set_current_path(folder.path());
            walk_controller(&controller, &folder, put)?;
        }
        Ok(())
    }
}

fn walk_controller(
    controller: &str,
    folder: &SysfsDir,
    put: &mut SeriesWriter<'_>,
) -> Result<(), ProcParseError> {
    let labels = [("controller", controller)];
    put.set_if_some(&CORRECTED, &labels, folder.number("ce_count"))?;
    put.set_if_some(&UNCORRECTED, &labels, folder.number("ue_count"))?;
    // Errors that the hardware cannot attribute to a row.
    let labels = [("controller", controller), ("csrow", "unknown")];
    put.set_if_some(&ROW_CORRECTED, &labels, folder.number("ce_noinfo_count"))?;
    put.set_if_some(&ROW_UNCORRECTED, &labels, folder.number("ue_noinfo_count"))?;
    for (row, folder) in folder.numbered_subdirs("csrow") {
        let labels = [("controller", controller), ("csrow", &*row)];
        put.set_if_some(&ROW_CORRECTED, &labels, folder.number("ce_count"))?;
        put.set_if_some(&ROW_UNCORRECTED, &labels, folder.number("ue_count"))?;
    }
    for (dimm, folder) in folder.numbered_subdirs("dimm") {
        let name = folder.text("dimm_label").unwrap_or_default();
        let labels = [
            ("controller", controller),
            ("dimm", &*dimm),
            ("label", &*name),
        ];
        put.set_if_some(&DIMM_CORRECTED, &labels, folder.number("dimm_ce_count"))?;
        put.set_if_some(&DIMM_UNCORRECTED, &labels, folder.number("dimm_ue_count"))?;
    }
    Ok(())
}
