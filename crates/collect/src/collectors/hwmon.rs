//! Hardware sensors (temperatures, fans, voltages, power), from `/sys/class/hwmon`.
//!
//! Names and labels follow node_exporter. Runs on a thread of its own.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::dynamic_series::SeriesWriter;
use crate::families::families;
use crate::proc_parse::ProcParseError;
use crate::sysfs_dir::SysfsDir;
use crate::sysfs_walk::{SysfsWalk, open_walk};
use crate::{CollectorEntry, Tier};

families! {
    CHIP Gauge 3 "node_hwmon_chip_names" "" "Name of the chip given by its driver; always 1.";
    LABEL Gauge 3 "node_hwmon_sensor_label" "" "Label of the sensor given by the chip; always 1.";
    BEEP Gauge 3 "node_hwmon_beep_enabled" "" "1 if the chip beeps on an alarm, otherwise 0.";
    REGULATOR Gauge 3 "node_hwmon_voltage_regulator_version" "" "Version of the voltage regulator specification.";
    INTERVAL Gauge 3 "node_hwmon_update_interval_seconds" "seconds" "Interval between two measurements of the chip, in seconds.";
    BEEP_OF Gauge 3 "node_hwmon_<key>_beep_enabled" "" "1 if the chip beeps for <key>, otherwise 0.";
    VOLTS Gauge 3 "node_hwmon_<key>_volts" "volts" "Voltage (<key>), in volts.";
    CELSIUS Gauge 3 "node_hwmon_<key>_celsius" "celsius" "Temperature (<key>), in degrees Celsius.";
    AMPS Gauge 3 "node_hwmon_<key>_amps" "amps" "Current (<key>), in amperes.";
    WATT Gauge 3 "node_hwmon_<key>_watt" "watt" "Power (<key>), in watts.";
    SECONDS Gauge 3 "node_hwmon_<key>_seconds" "seconds" "Time constant of the chip (<key>), in seconds.";
    RPM Gauge 3 "node_hwmon_<key>_rpm" "rpm" "Fan speed (<key>), in revolutions per minute.";
    JOULE Counter 3 "node_hwmon_<key>_joule_total" "joule" "Total energy (<key>) since the driver was loaded, in joules.";
    PLAIN Gauge 3 "node_hwmon_<key>" "" "Attribute <key> of the chip, unscaled.";
}

pub static ENTRY: CollectorEntry =
    CollectorEntry::threaded("hwmon", Tier::FiveSeconds, FAMILIES, |context| {
        open_walk(context, "sys/class/hwmon", HwmonChips)
    });

#[rustfmt::skip]
const KINDS: [&str; 13] = [
    "vrm", "beep_enable", "update_interval", "in", "cpu", "fan", "pwm", "temp", "curr", "power", "energy",
    "humidity", "intrusion",
];

#[derive(Debug)]
struct HwmonChips;

impl SysfsWalk for HwmonChips {
    fn walk(&mut self, class: &SysfsDir, put: &mut SeriesWriter<'_>) -> Result<(), ProcParseError> {
        for (_, chip) in class.numbered_subdirs("hwmon") {
            put.set_current_path(chip.path());
            walk_chip(&chip, put)?;
        }
        Ok(())
    }
}

fn walk_chip(folder: &SysfsDir, put: &mut SeriesWriter<'_>) -> Result<(), ProcParseError> {
    let chip = chip_id(folder);
    if let Some(name) = folder.text("name") {
        put.set(
            &CHIP,
            &[("chip", &chip), ("chip_name", &sanitize(&name))],
            1.0,
        )?;
    }
    // Older drivers have their attributes in the device's directory.
    let mut sensors = Sensors::new();
    for place in [Some(folder), folder.subdir("device").as_ref()] {
        place
            .into_iter()
            .for_each(|place| read_sensors(place, &mut sensors));
    }
    for ((kind, id), elements) in &sensors {
        let sensor = format!("{kind}{id}");
        walk_sensor(kind, elements, &[("chip", &chip), ("sensor", &sensor)], put)?;
    }
    Ok(())
}

/// Attribute elements and their values, by kind and number of the sensor.
type Sensors = BTreeMap<(&'static str, String), BTreeMap<String, String>>;

fn read_sensors(folder: &SysfsDir, sensors: &mut Sensors) {
    for name in folder.names() {
        let Some((kind, id, element)) = split_attribute(&name) else {
            continue;
        };
        if let Some(text) = folder.text(&name) {
            let elements = sensors.entry((kind, id.to_owned())).or_default();
            elements.insert(element.to_owned(), text);
        }
    }
}

/// Splits a file name: `temp1_crit_alarm` is the element `crit_alarm` of the first temperature
/// sensor.
fn split_attribute(name: &str) -> Option<(&'static str, &str, &str)> {
    let end = name.find(|letter: char| letter.is_ascii_digit());
    let Some(end) = end else {
        let kind = KINDS.iter().find(|kind| **kind == name)?;
        // A name without a number stands for sensor 0 of its kind.
        return Some((kind, "0", ""));
    };
    let kind = KINDS.iter().find(|kind| **kind == &name[..end])?;
    let rest = name[end..].trim_start_matches(|letter: char| letter.is_ascii_digit());
    let id = &name[end..name.len() - rest.len()];
    match rest.strip_prefix('_') {
        Some(element) if !element.is_empty() => Some((kind, id, element)),
        None if rest.is_empty() => Some((kind, id, "")),
        _ => None,
    }
}

fn walk_sensor(
    kind: &str,
    elements: &BTreeMap<String, String>,
    labels: &[(&str, &str); 2],
    put: &mut SeriesWriter<'_>,
) -> Result<(), ProcParseError> {
    if let Some(label) = elements.get("label") {
        let labels = [labels[0], ("label", label), labels[1]];
        put.set(&LABEL, &labels, 1.0)?;
    }
    for (element, text) in elements {
        let Ok(value) = text.parse::<f64>() else {
            continue;
        };
        let key = match &**element {
            "label" => continue,
            // The value itself, unless the sensor also has an element without a name.
            "input" if !elements.contains_key("") => kind.to_owned(),
            "" => kind.to_owned(),
            element => format!("{kind}_{}", sanitize(element)),
        };
        match (kind, &**element) {
            ("beep_enable", _) => put.set(&BEEP, labels, value)?,
            ("vrm", _) => put.set(&REGULATOR, labels, value)?,
            ("update_interval", _) => put.set(&INTERVAL, labels, value / 1e3)?,
            (_, "beep") => put.set_keyed(&BEEP_OF, kind, labels, value)?,
            (_, "fault" | "alarm") => put.set_keyed(&PLAIN, &key, labels, value)?,
            ("in" | "cpu", _) => put.set_keyed(&VOLTS, &key, labels, value / 1e3)?,
            ("temp", "type") => put.set_keyed(&PLAIN, &key, labels, value)?,
            ("temp", _) => put.set_keyed(&CELSIUS, &key, labels, value / 1e3)?,
            ("curr", _) => put.set_keyed(&AMPS, &key, labels, value / 1e3)?,
            ("energy", _) => put.set_keyed(&JOULE, &key, labels, value / 1e6)?,
            ("power", "accuracy") => put.set_keyed(&PLAIN, &key, labels, value / 1e6)?,
            ("power", "average_interval" | "average_interval_min" | "average_interval_max") => {
                put.set_keyed(&SECONDS, &key, labels, value / 1e3)?;
            }
            ("power", _) => put.set_keyed(&WATT, &key, labels, value / 1e6)?,
            // Thousandths of a percent, converted to a ratio.
            ("humidity", _) => put.set_keyed(&PLAIN, &key, labels, value / 1e5)?,
            ("fan", "input" | "min" | "max" | "target") => {
                put.set_keyed(&RPM, &key, labels, value)?;
            }
            _ => put.set_keyed(&PLAIN, &key, labels, value)?,
        }
    }
    Ok(())
}

/// Returns a stable identifier of the chip, from the path of its device: chip numbers depend on the
/// order in which drivers were loaded.
fn chip_id(folder: &SysfsDir) -> String {
    let of_device = fs::canonicalize(folder.path().join("device"));
    let part = |path: Option<&Path>| {
        let name = path.and_then(Path::file_name);
        name.map_or_else(String::new, |name| sanitize(&name.to_string_lossy()))
    };
    if let Ok(device) = of_device {
        match (part(device.parent()), part(Some(&device))) {
            (kind, name) if !kind.is_empty() && !name.is_empty() => {
                return format!("{kind}_{name}");
            }
            (_, name) if !name.is_empty() => return name,
            _ => {}
        }
    }
    let name = folder.text("name").map(|name| sanitize(&name));
    name.filter(|name| !name.is_empty())
        .unwrap_or_else(|| part(Some(folder.path())))
}

/// Converts a text to lower-case letters, digits and underscores, as node_exporter does.
fn sanitize(text: &str) -> String {
    let letter = |letter: char| match letter.to_ascii_lowercase() {
        letter @ ('a'..='z' | '0'..='9' | ':' | '_') => letter,
        _ => '_',
    };
    let text: String = text.chars().map(letter).collect();
    text.trim_matches('_').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_split_into_kind_number_and_element() {
        assert_eq!(split_attribute("temp1_input"), Some(("temp", "1", "input")));
        assert_eq!(
            split_attribute("temp12_crit_alarm"),
            Some(("temp", "12", "crit_alarm"))
        );
        assert_eq!(split_attribute("pwm1"), Some(("pwm", "1", "")));
        assert_eq!(
            split_attribute("update_interval"),
            Some(("update_interval", "0", ""))
        );
        for other in [
            "name",
            "uevent",
            "temp",
            "temp1_",
            "temp1x",
            "foo1_input",
            "",
        ] {
            let is_temp = other == "temp";
            assert_eq!(split_attribute(other).is_some(), is_temp, "{other}");
        }
    }

    #[test]
    fn chip_names_match_node_exporter() {
        assert_eq!(sanitize("0000:00:18.3"), "0000:00:18_3");
        assert_eq!(sanitize("applesmc.768"), "applesmc_768");
        assert_eq!(sanitize("_A-b_"), "a_b");
    }
}
