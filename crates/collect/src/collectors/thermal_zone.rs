//! Temperatures of thermal zones and states of cooling devices, from `/sys/class/thermal`.

use crate::dynamic_series::SeriesWriter;
use crate::families::families;
use crate::proc_parse::ProcParseError;
use crate::sysfs_dir::SysfsDir;
use crate::sysfs_walk::{SysfsWalk, open_walk};
use crate::{CollectorEntry, Tier};

families! {
    TEMPERATURE Gauge 3 "node_thermal_zone_temp" "" "Temperature of the thermal zone, in degrees Celsius.";
    STATE Gauge 3 "node_cooling_device_cur_state" "" "Current throttle state of the cooling device; 0 is off.";
    STATE_MAX Gauge 3 "node_cooling_device_max_state" "" "Maximum throttle state of the cooling device.";
}

pub static ENTRY: CollectorEntry =
    CollectorEntry::threaded("thermal_zone", Tier::FiveSeconds, FAMILIES, |context| {
        open_walk(context, "sys/class/thermal", ThermalZones)
    });

#[derive(Debug)]
struct ThermalZones;

impl SysfsWalk for ThermalZones {
    fn walk(&mut self, class: &SysfsDir, put: &mut SeriesWriter<'_>) -> Result<(), ProcParseError> {
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
