//! Counters of HPE Slingshot adapters, from `/sys/class/cxi/cxi*/device/telemetry`.

use crate::dynamic_series::SeriesWriter;
use crate::families::families;
use crate::proc_parse::{ProcParseError, parse_u64};
use crate::sysfs_dir::SysfsDir;
use crate::sysfs_walk::{SysfsWalk, open_walk};
use crate::{CollectorEntry, Tier};

families! {
    LINK Counter 3 "node_cxi_<key>_total" "" "Counter <key> of the adapter, about its link or packets.";
    DETAIL Counter 4 "node_cxi_<key>_total" "" "Counter <key> of the adapter.";
}

// An adapter has well over a thousand counters.
pub static ENTRY: CollectorEntry =
    CollectorEntry::threaded("slingshot", Tier::Minute, FAMILIES, |context| {
        open_walk(context, "sys/class/cxi", SlingshotAdapters)
    });

#[derive(Debug)]
struct SlingshotAdapters;

impl SysfsWalk for SlingshotAdapters {
    fn walk(&mut self, class: &SysfsDir, put: &mut SeriesWriter<'_>) -> Result<(), ProcParseError> {
        for (number, folder) in class.numbered_subdirs("cxi") {
            let Some(telemetry) = folder.subdir("device/telemetry") else {
                continue;
            };
            put.set_current_path(telemetry.path());
            let device = format!("cxi{number}");
            for name in telemetry.names() {
                // Some files are large and binary, with all counters in one; they do not parse.
                let text = telemetry.bytes(&name).unwrap_or_default();
                let Some(value) = parse_value(&text) else {
                    continue;
                };
                let is_link = name.starts_with("hni_") || name.starts_with("pct_");
                let family = if is_link { &LINK } else { &DETAIL };
                put.set_keyed(family, &name, &[("device", &device)], value)?;
            }
        }
        Ok(())
    }
}

/// Parses `1234@1630000000.123456789`: the value and the time of the reading.
fn parse_value(text: &[u8]) -> Option<f64> {
    let text = text.trim_ascii();
    let end = text.iter().position(|&byte| byte == b'@');
    parse_u64(&text[..end.unwrap_or(text.len())]).map(|value| value as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_ignored() {
        assert_eq!(parse_value(b"1234@1630000000.123456789\n"), Some(1234.0));
        assert_eq!(parse_value(b"7\n"), Some(7.0));
        assert_eq!(parse_value(b"@1\n"), None);
        assert_eq!(parse_value(b"\x00\xff"), None);
    }
}
