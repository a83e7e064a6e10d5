//! Counters of HPE Slingshot adapters, from `/sys/class/cxi/cxi*/device/telemetry`.

use std::path::PathBuf;

use pegel_metric::{Family, MetricKind};

use crate::dynamic_series::counter;
use crate::proc_parse::{ProcParseError, parse_u64};
use crate::sysfs_dir::SysfsDir;
use crate::sysfs_walk::{SeriesWriter, SysfsWalk, open_walk};
use crate::{CollectorEntry, CollectorOpenError, Context, Execution, OpenOutcome, Tier};

static LINK: Family = counter(
    "node_cxi_<key>_total",
    "",
    "Counter <key> of the adapter, about its link or packets.",
);
static DETAIL: Family = Family::new(
    "node_cxi_<key>_total",
    MetricKind::Counter,
    "",
    4,
    "Counter <key> of the adapter.",
);

pub static ENTRY: CollectorEntry = CollectorEntry {
    name: "slingshot",
    // An adapter has well over a thousand counters.
    tier: Tier::Minute,
    execution: Execution::Threaded,
    level: 3,
    families: &[&LINK, &DETAIL],
    open,
};

#[derive(Debug)]
struct SlingshotAdapters {
    class: PathBuf,
}

fn open(context: &Context) -> Result<OpenOutcome, CollectorOpenError> {
    let class = context.host.sys.join("class/cxi");
    open_walk(context, class.clone(), SlingshotAdapters { class })
}

impl SysfsWalk for SlingshotAdapters {
    fn walk(&mut self, put: &mut SeriesWriter<'_>) -> Result<(), ProcParseError> {
        let Some(class) = SysfsDir::open(&self.class) else {
            return Ok(());
        };
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
