//! Temperatures of thermal zones and states of cooling devices, from `/sys/class/thermal`.

use std::path::PathBuf;

use pegel_metric::Family;

use crate::dynamic_series::gauge;
use crate::proc_parse::ProcParseError;
use crate::sysfs_dir::SysfsDir;
use crate::sysfs_walk::{SeriesWriter, SysfsWalk, open_walk};
use crate::{CollectorEntry, CollectorOpenError, Context, Execution, OpenOutcome, Tier};

static TEMPERATURE: Family = gauge(
    "node_thermal_zone_temp",
    "",
    "Temperature of the thermal zone, in degrees Celsius.",
);
static STATE: Family = gauge(
    "node_cooling_device_cur_state",
    "",
    "Current throttle state of the cooling device; 0 is off.",
);
static STATE_MAX: Family = gauge(
    "node_cooling_device_max_state",
    "",
    "Maximum throttle state of the cooling device.",
);

pub static ENTRY: CollectorEntry = CollectorEntry {
    name: "thermal_zone",
    tier: Tier::FiveSeconds,
    execution: Execution::Threaded,
    level: 3,
    families: &[&TEMPERATURE, &STATE, &STATE_MAX],
    open,
};

#[derive(Debug)]
struct ThermalZones {
    class: PathBuf,
}

fn open(context: &Context) -> Result<OpenOutcome, CollectorOpenError> {
    let class = context.host.sys.join("class/thermal");
    open_walk(context, class.clone(), ThermalZones { class })
}

impl SysfsWalk for ThermalZones {
    fn walk(&mut self, put: &mut SeriesWriter<'_>) -> Result<(), ProcParseError> {
        let Some(class) = SysfsDir::open(&self.class) else {
            return Ok(());
        };
        for (zone, folder) in class.numbered_subdirs("thermal_zone") {
            put.set_current_path(folder.path());
            let kind = folder.text("type").unwrap_or_default();
            let temperature = folder.number("temp").map(|value| value / 1e3);
            put.set_if_some(
                &TEMPERATURE,
                &[("type", &kind), ("zone", &zone)],
                temperature,
            )?;
        }
        for (name, folder) in class.numbered_subdirs("cooling_device") {
            put.set_current_path(folder.path());
            let kind = folder.text("type").unwrap_or_default();
            let labels = [("name", &*name), ("type", &*kind)];
            put.set_if_some(&STATE, &labels, folder.number("cur_state"))?;
            put.set_if_some(&STATE_MAX, &labels, folder.number("max_state"))?;
        }
        Ok(())
    }
}
