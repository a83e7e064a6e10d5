//! Mains adapters and batteries, from `/sys/class/power_supply`.

use crate::dynamic_series::SeriesWriter;
use crate::families::families;
use crate::proc_parse::ProcParseError;
use crate::sysfs_dir::SysfsDir;
use crate::sysfs_walk::{SysfsWalk, open_walk};
use crate::{CollectorEntry, Tier};

// With the file of each value, and the number of the file's units per base unit.
families! {
    sources: (&str, f64);
    ONLINE Gauge 3 "node_power_supply_online" "" "1 if the supply provides power, otherwise 0." <- ("online", 1.0);
    PRESENT Gauge 3 "node_power_supply_present" "" "1 if the battery is present, otherwise 0." <- ("present", 1.0);
    CAPACITY Gauge 3 "node_power_supply_capacity" "" "Charge level of the battery, in percent." <- ("capacity", 1.0);
    CYCLES Gauge 3 "node_power_supply_cyclecount" "" "Number of charge cycles of the battery." <- ("cycle_count", 1.0);
    VOLTAGE Gauge 3 "node_power_supply_voltage_volt" "volt" "Voltage of the supply, in volts." <- ("voltage_now", 1e6);
    VOLTAGE_MIN Gauge 3 "node_power_supply_voltage_min_design" "" "Minimum design voltage of the battery, in volts." <- ("voltage_min_design", 1e6);
    VOLTAGE_MAX Gauge 3 "node_power_supply_voltage_max_design" "" "Maximum design voltage of the battery, in volts." <- ("voltage_max_design", 1e6);
    CURRENT Gauge 3 "node_power_supply_current_ampere" "ampere" "Current of the supply, in amperes." <- ("current_now", 1e6);
    POWER Gauge 3 "node_power_supply_power_watt" "watt" "Power that the supply provides or draws, in watts." <- ("power_now", 1e6);
    ENERGY Gauge 3 "node_power_supply_energy_watthour" "watthour" "Energy in the battery, in watt hours." <- ("energy_now", 1e6);
    ENERGY_FULL Gauge 3 "node_power_supply_energy_full" "" "Energy of the battery when it was last full, in watt hours." <- ("energy_full", 1e6);
    ENERGY_DESIGN Gauge 3 "node_power_supply_energy_full_design" "" "Design energy of the full battery, in watt hours." <- ("energy_full_design", 1e6);
    CHARGE Gauge 3 "node_power_supply_charge_ampere" "ampere" "Charge in the battery, in ampere hours." <- ("charge_now", 1e6);
    CHARGE_FULL Gauge 3 "node_power_supply_charge_full" "" "Charge of the battery when it was last full, in ampere hours." <- ("charge_full", 1e6);
    CHARGE_DESIGN Gauge 3 "node_power_supply_charge_full_design" "" "Design charge of the full battery, in ampere hours." <- ("charge_full_design", 1e6);
    TEMPERATURE Gauge 3 "node_power_supply_temp_celsius" "celsius" "Temperature of the supply, in degrees Celsius." <- ("temp", 10.0);
    INFO Gauge 3 "node_power_supply_info" "" "Type, model and status of the supply; always 1.";
}

/// The attributes published as labels; the serial number is not among them.
#[rustfmt::skip]
const INFO_FILES: [&str; 10] = [
    "capacity_level", "charge_type", "health", "manufacturer", "model_name", "scope", "status", "technology",
    "type", "usb_type",
];

/// Runs on a thread of its own, because the firmware answers the reads.
pub static ENTRY: CollectorEntry =
    CollectorEntry::threaded("power_supply", Tier::Minute, FAMILIES, |context| {
        open_walk(context, "sys/class/power_supply", PowerSupplies)
    });

#[derive(Debug)]
struct PowerSupplies;

impl SysfsWalk for PowerSupplies {
    fn walk(&mut self, class: &SysfsDir, put: &mut SeriesWriter<'_>) -> Result<(), ProcParseError> {
        for supply in class.names() {
            let Some(folder) = class.subdir(&supply) else {
                continue;
            };
            put.set_current_path(folder.path());
            let labels = [("power_supply", &*supply)];
            for (family, (file, divisor)) in SOURCES {
                let value = folder.number(file).map(|value| value / divisor);
                put.set_if_some(family, &labels, value)?;
            }
            let info = folder.labels(&INFO_FILES.map(|file| (file, file)));
            put.set_info(&INFO, &labels, &info)?;
        }
        Ok(())
    }
}
