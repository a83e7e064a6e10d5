//! Temperatures of thermal zones and states of cooling devices, from `/sys/class/thermal`.

use std::path::PathBuf;

use pegel_metric::Family;

use crate::folder::Folder;
use crate::scan::Fault;
use crate::sheet::gauge;
use crate::walk::{Put, Walk, open_walk};
use crate::{Context, Entry, OpenError, Opened, Pace, Tier};

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

pub static ENTRY: Entry = Entry {
    name: "thermal_zone",
    tier: Tier::FiveSeconds,
    pace: Pace::Aside,
    level: 3,
    families: &[&TEMPERATURE, &STATE, &STATE_MAX],
    open,
};

#[derive(Debug)]
struct ThermalZones {
    class: PathBuf,
}

fn open(context: &Context) -> Result<Opened, OpenError> {
    let class = context.host.sys.join("class/thermal");
    open_walk(context, class.clone(), ThermalZones { class })
}

impl Walk for ThermalZones {
    fn walk(&mut self, put: &mut Put<'_>) -> Result<(), Fault> {
        let Some(class) = Folder::open(&self.class) else {
            return Ok(());
        };
        for (zone, folder) in class.numbered("thermal_zone") {
            put.touch(folder.path());
            let kind = folder.text("type").unwrap_or_default();
            let temperature = folder.number("temp").map(|value| value / 1e3);
            put.maybe(
                &TEMPERATURE,
                &[("type", &kind), ("zone", &zone)],
                temperature,
            )?;
        }
        for (name, folder) in class.numbered("cooling_device") {
            put.touch(folder.path());
            let kind = folder.text("type").unwrap_or_default();
            let labels = [("name", &*name), ("type", &*kind)];
            put.maybe(&STATE, &labels, folder.number("cur_state"))?;
            put.maybe(&STATE_MAX, &labels, folder.number("max_state"))?;
        }
        Ok(())
    }
}
