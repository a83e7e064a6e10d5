//! NVMe controllers: model and firmware from `/sys/class/nvme`, and health from their SMART log, which only root may read.

use std::path::{Path, PathBuf};

use pegel_metric::Family;

use crate::dynamic_series::{counter, gauge};
use crate::proc_parse::ProcParseError;
use crate::sysfs_dir::SysfsDir;
use crate::sysfs_walk::{SeriesWriter, SysfsWalk, open_walk};
use crate::{CollectorEntry, CollectorOpenError, Context, Execution, OpenOutcome, Tier};

use super::nvme_smart::{self, LOG_BYTES, SmartLog};

static INFO: Family = gauge(
    "node_nvme_info",
    "",
    "Model, firmware and state of the NVMe controller; always 1.",
);
static WARNING: Family = gauge(
    "node_nvme_critical_warning",
    "",
    "Bit mask of critical warnings: 1 spare, 2 temperature, 4 reliability, 8 read-only, 16 backup, 32 memory region.",
);
static TEMPERATURE: Family = gauge(
    "node_nvme_temperature_celsius",
    "celsius",
    "Composite temperature, in degrees Celsius.",
);
static SPARE: Family = gauge(
    "node_nvme_available_spare_ratio",
    "ratio",
    "Share of spare blocks that is left.",
);
static SPARE_MIN: Family = gauge(
    "node_nvme_available_spare_threshold_ratio",
    "ratio",
    "Share of spare blocks below which the controller warns.",
);
static USED: Family = gauge(
    "node_nvme_percentage_used_ratio",
    "ratio",
    "Share of the rated life that is used; it may exceed 1.",
);
static READ: Family = counter(
    "node_nvme_data_read_bytes_total",
    "bytes",
    "Total number of bytes read by the host.",
);
static WRITTEN: Family = counter(
    "node_nvme_data_written_bytes_total",
    "bytes",
    "Total number of bytes written by the host.",
);
static READS: Family = counter(
    "node_nvme_host_reads_total",
    "",
    "Total number of read commands completed.",
);
static WRITES: Family = counter(
    "node_nvme_host_writes_total",
    "",
    "Total number of write commands completed.",
);
static BUSY: Family = counter(
    "node_nvme_controller_busy_seconds_total",
    "seconds",
    "Total time in which the controller was busy, in seconds; in steps of a minute.",
);
static CYCLES: Family = counter(
    "node_nvme_power_cycles_total",
    "",
    "Total number of power cycles.",
);
static HOURS: Family = counter(
    "node_nvme_power_on_seconds_total",
    "seconds",
    "Total time that the controller was powered on, in seconds; in steps of an hour.",
);
static UNSAFE: Family = counter(
    "node_nvme_unsafe_shutdowns_total",
    "",
    "Total number of unsafe shutdowns.",
);
static MEDIA: Family = counter(
    "node_nvme_media_errors_total",
    "",
    "Total number of unrecovered data integrity errors.",
);
static ERRORS: Family = counter(
    "node_nvme_error_log_entries_total",
    "",
    "Total number of entries written to the error log.",
);

pub static ENTRY: CollectorEntry = CollectorEntry {
    name: "nvme",
    tier: Tier::Minute,
    execution: Execution::Threaded,
    level: 3,
    families: &[
        &INFO,
        &WARNING,
        &TEMPERATURE,
        &SPARE,
        &SPARE_MIN,
        &USED,
        &READ,
        &WRITTEN,
        &READS,
        &WRITES,
        &BUSY,
        &CYCLES,
        &HOURS,
        &UNSAFE,
        &MEDIA,
        &ERRORS,
    ],
    open,
};

#[derive(Debug)]
struct NvmeControllers {
    class: PathBuf,
    dev: PathBuf,
    /// Reads the SMART log of a controller; `None` if that is not permitted.
    read_smart_log: fn(&Path) -> Option<[u8; LOG_BYTES]>,
}

fn open(context: &Context) -> Result<OpenOutcome, CollectorOpenError> {
    let class = context.host.sys.join("class/nvme");
    let walk = NvmeControllers {
        class: class.clone(),
        dev: context.host.root.join("dev"),
        read_smart_log: nvme_smart::read_smart_log,
    };
    open_walk(context, class, walk)
}

impl SysfsWalk for NvmeControllers {
    fn walk(&mut self, put: &mut SeriesWriter<'_>) -> Result<(), ProcParseError> {
        let Some(class) = SysfsDir::open(&self.class) else {
            return Ok(());
        };
        for (number, folder) in class.numbered_subdirs("nvme") {
            put.set_current_path(folder.path());
            let device = format!("nvme{number}");
            let text = |name| folder.text(name).unwrap_or_default();
            let (firmware, model) = (text("firmware_rev"), text("model"));
            let (serial, state) = (text("serial"), text("state"));
            let labels = [
                ("device", &*device),
                ("firmware_revision", &*firmware),
                ("model", &*model),
                ("serial", &*serial),
                ("state", &*state),
            ];
            put.set(&INFO, &labels, 1.0)?;
            if let Some(log) = (self.read_smart_log)(&self.dev.join(&device)) {
                walk_log(&SmartLog(&log), &[("device", &device)], put)?;
            }
        }
        Ok(())
    }
}

fn walk_log(
    log: &SmartLog<'_>,
    labels: &[(&str, &str)],
    put: &mut SeriesWriter<'_>,
) -> Result<(), ProcParseError> {
    for (family, value) in [
        (&WARNING, f64::from(log.critical_warning())),
        (&TEMPERATURE, log.kelvin() - 273.15),
        (&SPARE, log.ratio_at(3)),
        (&SPARE_MIN, log.ratio_at(4)),
        (&USED, log.ratio_at(5)),
        // In units of a thousand blocks of 512 bytes.
        (&READ, log.u128_at(32) * 512_000.0),
        (&WRITTEN, log.u128_at(48) * 512_000.0),
        (&READS, log.u128_at(64)),
        (&WRITES, log.u128_at(80)),
        (&BUSY, log.u128_at(96) * 60.0),
        (&CYCLES, log.u128_at(112)),
        (&HOURS, log.u128_at(128) * 3600.0),
        (&UNSAFE, log.u128_at(144)),
        (&MEDIA, log.u128_at(160)),
        (&ERRORS, log.u128_at(176)),
    ] {
        put.set(family, labels, value)?;
    }
    Ok(())
}
