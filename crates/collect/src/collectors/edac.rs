//! Memory errors detected by the hardware, correctable and uncorrectable, from
//! `/sys/devices/system/edac/mc`.

use crate::dynamic_series::SeriesWriter;
use crate::families::families;
use crate::proc_parse::ProcParseError;
use crate::sysfs_dir::SysfsDir;
use crate::sysfs_walk::{SysfsWalk, open_walk};
use crate::{CollectorEntry, Tier};

families! {
    CORRECTED Counter 3 "node_edac_correctable_errors_total" "" "Total number of corrected memory errors of the memory controller.";
    UNCORRECTED Counter 3 "node_edac_uncorrectable_errors_total" "" "Total number of uncorrectable memory errors of the memory controller.";
    ROW_CORRECTED Counter 3 "node_edac_csrow_correctable_errors_total" "" "Total number of corrected memory errors of the chip-select row.";
    ROW_UNCORRECTED Counter 3 "node_edac_csrow_uncorrectable_errors_total" "" "Total number of uncorrectable memory errors of the chip-select row.";
    DIMM_CORRECTED Counter 3 "node_edac_dimm_correctable_errors_total" "" "Total number of corrected memory errors of the memory module.";
    DIMM_UNCORRECTED Counter 3 "node_edac_dimm_uncorrectable_errors_total" "" "Total number of uncorrectable memory errors of the memory module.";
}

pub static ENTRY: CollectorEntry =
    CollectorEntry::threaded("edac", Tier::FiveSeconds, FAMILIES, |context| {
        open_walk(context, "sys/devices/system/edac/mc", EdacControllers)
    });

#[derive(Debug)]
struct EdacControllers;

impl SysfsWalk for EdacControllers {
    fn walk(
        &mut self,
        system: &SysfsDir,
        put: &mut SeriesWriter<'_>,
    ) -> Result<(), ProcParseError> {
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
