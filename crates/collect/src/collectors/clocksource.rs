//! Available and current clock sources of the kernel, from `/sys/devices/system/clocksource`.

use crate::dynamic_series::SeriesWriter;
use crate::families::families;
use crate::proc_parse::ProcParseError;
use crate::sysfs_dir::SysfsDir;
use crate::sysfs_walk::{SysfsWalk, open_walk};
use crate::{CollectorEntry, Tier};

families! {
    AVAILABLE Gauge 2 "node_time_clocksource_available_info" "" "Clock source that is available; always 1.";
    CURRENT Gauge 2 "node_time_clocksource_current_info" "" "Clock source in use; always 1.";
}

pub static ENTRY: CollectorEntry =
    CollectorEntry::inline("clocksource", Tier::Minute, FAMILIES, |context| {
        open_walk(context, "sys/devices/system/clocksource", ClockSources)
    });

#[derive(Debug)]
struct ClockSources;

impl SysfsWalk for ClockSources {
    fn walk(
        &mut self,
        system: &SysfsDir,
        put: &mut SeriesWriter<'_>,
    ) -> Result<(), ProcParseError> {
        // In practice there is one device.
        for (device, folder) in system.numbered_subdirs("clocksource") {
            let device = ("device", &*device);
            if let Some(current) = folder.text("current_clocksource") {
                put.set(&CURRENT, &[device, ("clocksource", &current)], 1.0)?;
            }
            let available = folder.text("available_clocksource").unwrap_or_default();
            for source in available.split_whitespace() {
                put.set(&AVAILABLE, &[device, ("clocksource", source)], 1.0)?;
            }
        }
        Ok(())
    }
}
