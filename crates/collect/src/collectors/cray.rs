//! Power and energy that Cray nodes measure out of band, from `/sys/cray/pm_counters`.

use pegel_metric::Family;

use crate::dynamic_series::SeriesWriter;
use crate::families::families;
use crate::proc_parse::{ProcParseError, Words};
use crate::sysfs_dir::SysfsDir;
use crate::sysfs_walk::{SysfsWalk, open_walk};
use crate::{CollectorEntry, Tier};

families! {
    ENERGY Counter 3 "node_cray_energy_joules_total" "joules" "Total energy used by a component of the node, in joules.";
    POWER Gauge 3 "node_cray_power_watts" "watts" "Power drawn by a component of the node, in watts.";
    CAP Gauge 3 "node_cray_power_cap_watts" "watts" "Power cap of a component of the node, in watts; 0 means no cap.";
    TEMPERATURE Gauge 3 "node_cray_temperature_celsius" "celsius" "Temperature of a component of the node, in degrees Celsius.";
    FRESHNESS Counter 3 "node_cray_scans_total" "" "Total number of measurements by the node's controller.";
}

pub static ENTRY: CollectorEntry =
    CollectorEntry::threaded("cray", Tier::Fast, FAMILIES, |context| {
        open_walk(context, "sys/cray/pm_counters", CrayCounters)
    });

#[derive(Debug)]
struct CrayCounters;

impl SysfsWalk for CrayCounters {
    fn walk(
        &mut self,
        folder: &SysfsDir,
        put: &mut SeriesWriter<'_>,
    ) -> Result<(), ProcParseError> {
        for name in folder.names() {
            let text = folder.bytes(&name).unwrap_or_default();
            let Some(value) = parse_value(&text) else {
                continue;
            };
            if name == "freshness" {
                put.set(&FRESHNESS, &[], value)?;
            } else if let Some((family, part)) = family_and_part(&name) {
                put.set(family, &[("part", part)], value)?;
            }
        }
        Ok(())
    }
}

/// Splits a file name: `accel0_power_cap` is the power cap of the first accelerator; a name without
/// a component stands for the whole node.
fn family_and_part(name: &str) -> Option<(&'static Family, &str)> {
    let families = [
        (&CAP, "power_cap"),
        (&ENERGY, "energy"),
        (&POWER, "power"),
        (&TEMPERATURE, "temp"),
    ];
    families.into_iter().find_map(|(family, suffix)| {
        let part = name.strip_suffix(suffix)?;
        match part.strip_suffix('_') {
            Some(part) if !part.is_empty() => Some((family, part)),
            None if part.is_empty() => Some((family, "node")),
            _ => None,
        }
    })
}

/// Parses `37135 J 1630000000000000 us`: the value, its unit and the time of the measurement.
fn parse_value(text: &[u8]) -> Option<f64> {
    let word = Words(text.trim_ascii()).next()?;
    std::str::from_utf8(word).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_split_into_component_and_family() {
        let found =
            |name: &'static str| family_and_part(name).map(|(family, part)| (&*family.name, part));
        assert_eq!(
            found("energy"),
            Some(("node_cray_energy_joules_total", "node"))
        );
        assert_eq!(
            found("accel0_power"),
            Some(("node_cray_power_watts", "accel0"))
        );
        assert_eq!(
            found("power_cap"),
            Some(("node_cray_power_cap_watts", "node"))
        );
        assert_eq!(
            found("accel3_power_cap"),
            Some(("node_cray_power_cap_watts", "accel3"))
        );
        assert_eq!(
            found("cpu0_temp"),
            Some(("node_cray_temperature_celsius", "cpu0"))
        );
        for other in [
            "version",
            "generation",
            "raw_scan_hz",
            "startup",
            "_energy",
            "xenergy",
        ] {
            assert_eq!(found(other), None, "{other}");
        }
        assert_eq!(parse_value(b"37135 J 163 us\n"), Some(37_135.0));
        assert_eq!(parse_value(b"\n"), None);
    }
}
