//! NVMe controllers: model and firmware from `/sys/class/nvme`, and health from their SMART log,
//! which only root may read.

use std::path::PathBuf;

use super::nvme_smart::{SmartLog, read_smart_log};
use crate::dynamic_series::SeriesWriter;
use crate::families::families;
use crate::proc_parse::ProcParseError;
use crate::sysfs_dir::SysfsDir;
use crate::sysfs_walk::{SysfsWalk, open_walk};
use crate::{CollectorEntry, Context, OpenResult, Tier};

// With the value in the SMART log, which counts data in units of a thousand blocks of 512 bytes.
families! {
    sources: fn(&SmartLog<'_>) -> f64;
    INFO Gauge 3 "node_nvme_info" "" "Model, firmware and state of the NVMe controller; always 1.";
    WARNING Gauge 3 "node_nvme_critical_warning" "" "Bit mask of critical warnings: 1 spare, 2 temperature, 4 reliability, 8 read-only, 16 backup, 32 memory region." <- |log| log.byte_at(0);
    TEMPERATURE Gauge 3 "node_nvme_temperature_celsius" "celsius" "Composite temperature, in degrees Celsius." <- |log| log.kelvin() - 273.15;
    SPARE Gauge 3 "node_nvme_available_spare_ratio" "ratio" "Share of spare blocks that is left." <- |log| log.byte_at(3) / 100.0;
    SPARE_MIN Gauge 3 "node_nvme_available_spare_threshold_ratio" "ratio" "Share of spare blocks below which the controller warns." <- |log| log.byte_at(4) / 100.0;
    USED Gauge 3 "node_nvme_percentage_used_ratio" "ratio" "Share of the rated life that is used; it may exceed 1." <- |log| log.byte_at(5) / 100.0;
    READ Counter 3 "node_nvme_data_read_bytes_total" "bytes" "Total number of bytes read by the host." <- |log| log.u128_at(32) * 512_000.0;
    WRITTEN Counter 3 "node_nvme_data_written_bytes_total" "bytes" "Total number of bytes written by the host." <- |log| log.u128_at(48) * 512_000.0;
    READS Counter 3 "node_nvme_host_reads_total" "" "Total number of read commands completed." <- |log| log.u128_at(64);
    WRITES Counter 3 "node_nvme_host_writes_total" "" "Total number of write commands completed." <- |log| log.u128_at(80);
    BUSY Counter 3 "node_nvme_controller_busy_seconds_total" "seconds" "Total time in which the controller was busy, in seconds; in steps of a minute." <- |log| log.u128_at(96) * 60.0;
    CYCLES Counter 3 "node_nvme_power_cycles_total" "" "Total number of power cycles." <- |log| log.u128_at(112);
    HOURS Counter 3 "node_nvme_power_on_seconds_total" "seconds" "Total time that the controller was powered on, in seconds; in steps of an hour." <- |log| log.u128_at(128) * 3600.0;
    UNSAFE Counter 3 "node_nvme_unsafe_shutdowns_total" "" "Total number of unsafe shutdowns." <- |log| log.u128_at(144);
    MEDIA Counter 3 "node_nvme_media_errors_total" "" "Total number of unrecovered data integrity errors." <- |log| log.u128_at(160);
    ERRORS Counter 3 "node_nvme_error_log_entries_total" "" "Total number of entries written to the error log." <- |log| log.u128_at(176);
}

/// Labels and the files they come from.
const INFO_FILES: [(&str, &str); 4] = [
    ("firmware_revision", "firmware_rev"),
    ("model", "model"),
    ("serial", "serial"),
    ("state", "state"),
];

pub static ENTRY: CollectorEntry = CollectorEntry::threaded("nvme", Tier::Minute, FAMILIES, open);

#[derive(Debug)]
struct NvmeControllers {
    dev: PathBuf,
}

fn open(context: &Context) -> OpenResult {
    let dev = context.host.root.join("dev");
    open_walk(context, "sys/class/nvme", NvmeControllers { dev })
}

impl SysfsWalk for NvmeControllers {
    fn walk(&mut self, class: &SysfsDir, put: &mut SeriesWriter<'_>) -> Result<(), ProcParseError> {
        for (number, folder) in class.numbered_subdirs("nvme") {
            put.set_current_path(folder.path());
            let device = format!("nvme{number}");
            let labels = [("device", &*device)];
            let info =
                INFO_FILES.map(|(label, file)| (label, folder.text(file).unwrap_or_default()));
            put.set_info(&INFO, &labels, &info)?;
            // Only root may read the log.
            if let Some(log) = read_smart_log(&self.dev.join(&device)) {
                for (family, value) in SOURCES {
                    put.set(family, &labels, value(&SmartLog(&log)))?;
                }
            }
        }
        Ok(())
    }
}
