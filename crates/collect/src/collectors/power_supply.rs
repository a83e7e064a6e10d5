//! Mains adapters and batteries, from `/sys/class/power_supply`.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pegel_metric::{Family, MetricKind, SampleGroup};

use crate::attribute::{attribute_number, attribute_text, directory_names};
use crate::cursor_map::CursorMap;
use crate::device_slots::{DeviceSlots, shared_families};
use crate::info_series::InfoSeries;
use crate::proc_parse::{ProcParseError, label_value};
use crate::{
    CollectError, Collector, CollectorEntry, CollectorOpenError, Context, CurrentOperation,
    Execution, OpenOutcome, Tier,
};

macro_rules! attributes {
    ($($static:ident $name:literal $unit:literal $file:literal $divisor:literal $help:literal;)*) => {
        $(static $static: Family =
            Family::new(concat!("node_power_supply_", $name), MetricKind::Gauge, $unit, 3, $help);)*
        const FILES: &[(&str, f64)] = &[$(($file, $divisor)),*];
        static FAMILIES: &[&Family] = &[$(&$static),*];
        static ALL_FAMILIES: &[&Family] = &[$(&$static,)* &INFO];
    };
}

// Name, unit, file, and the number of the file's units per base unit.
attributes! {
    ONLINE "online" "" "online" 1.0 "1 if the supply provides power, otherwise 0.";
    PRESENT "present" "" "present" 1.0 "1 if the battery is present, otherwise 0.";
    CAPACITY "capacity" "" "capacity" 1.0 "Charge level of the battery, in percent.";
    CYCLES "cyclecount" "" "cycle_count" 1.0 "Number of charge cycles of the battery.";
    VOLTAGE "voltage_volt" "volt" "voltage_now" 1e6 "Voltage of the supply, in volts.";
    VOLTAGE_MIN "voltage_min_design" "" "voltage_min_design" 1e6 "Minimum design voltage of the battery, in volts.";
    VOLTAGE_MAX "voltage_max_design" "" "voltage_max_design" 1e6 "Maximum design voltage of the battery, in volts.";
    CURRENT "current_ampere" "ampere" "current_now" 1e6 "Current of the supply, in amperes.";
    POWER "power_watt" "watt" "power_now" 1e6 "Power that the supply provides or draws, in watts.";
    ENERGY "energy_watthour" "watthour" "energy_now" 1e6 "Energy in the battery, in watt hours.";
    ENERGY_FULL "energy_full" "" "energy_full" 1e6 "Energy of the battery when it was last full, in watt hours.";
    ENERGY_DESIGN "energy_full_design" "" "energy_full_design" 1e6 "Design energy of the full battery, in watt hours.";
    CHARGE "charge_ampere" "ampere" "charge_now" 1e6 "Charge in the battery, in ampere hours.";
    CHARGE_FULL "charge_full" "" "charge_full" 1e6 "Charge of the battery when it was last full, in ampere hours.";
    CHARGE_DESIGN "charge_full_design" "" "charge_full_design" 1e6 "Design charge of the full battery, in ampere hours.";
    TEMPERATURE "temp_celsius" "celsius" "temp" 10.0 "Temperature of the supply, in degrees Celsius.";
}
static INFO: Family = Family::new(
    "node_power_supply_info",
    MetricKind::Gauge,
    "",
    3,
    "Type, model and status of the supply; always 1.",
);

/// The attributes published as labels; the serial number is not among them.
const INFO_KEYS: [&str; 10] = [
    "capacity_level",
    "charge_type",
    "health",
    "manufacturer",
    "model_name",
    "scope",
    "status",
    "technology",
    "type",
    "usb_type",
];

/// Runs on a thread of its own, because the firmware answers the reads.
pub static ENTRY: CollectorEntry = CollectorEntry {
    name: "power_supply",
    tier: Tier::Minute,
    execution: Execution::Threaded,
    level: 3,
    families: ALL_FAMILIES,
    open,
};

#[derive(Debug)]
struct PowerSupplies {
    folder: PathBuf,
    operation: CurrentOperation,
    families: Vec<Arc<Family>>,
    supplies: CursorMap<(DeviceSlots, InfoSeries)>,
}

fn open(context: &Context) -> Result<OpenOutcome, CollectorOpenError> {
    let folder = context.host.sys.join("class/power_supply");
    if directory_names(&folder).is_empty() {
        return Ok(OpenOutcome::Absent { looked_for: folder });
    }
    Ok(OpenOutcome::Active(Box::new(PowerSupplies {
        folder,
        operation: context.operation.clone(),
        families: shared_families(FAMILIES),
        supplies: CursorMap::new(),
    })))
}

impl Collector for PowerSupplies {
    fn collect(&mut self, out: &mut SampleGroup) -> Result<(), CollectError> {
        self.supplies.begin_pass();
        for name in directory_names(&self.folder) {
            let path = self.folder.join(&name);
            self.operation.set(&path.to_string_lossy());
            let set = self.set(&path, name.as_bytes(), out);
            set.map_err(|fault| fault.at_path(&path))?;
        }
        self.supplies.sweep(|(places, mut info)| {
            places.retire(out);
            info.retire(out);
        });
        Ok(())
    }
}

impl PowerSupplies {
    fn set(
        &mut self,
        path: &Path,
        name: &[u8],
        out: &mut SampleGroup,
    ) -> Result<(), ProcParseError> {
        let families = &self.families;
        let make = || Ok((DeviceSlots::new(families), InfoSeries::new(&INFO)));
        let (places, info) = self.supplies.entry(name, make)?;
        let supply = label_value(name);
        for (index, (file, divisor)) in FILES.iter().enumerate() {
            if let Some(value) = attribute_number(&path.join(file)) {
                let labels = [("power_supply", &*supply)];
                places.set(out, families, index, &labels, value / divisor)?;
            }
        }
        let mut labels = vec![("power_supply", supply.clone().into_owned())];
        let texts = INFO_KEYS
            .iter()
            .map(|key| (*key, attribute_text(&path.join(key))));
        labels.extend(texts.filter_map(|(key, text)| Some((key, text?))));
        Ok(info.set(out, labels, 1.0)?)
    }
}
