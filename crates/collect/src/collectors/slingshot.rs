//! Counters of HPE Slingshot adapters, from `/sys/class/cxi/cxi*/device/telemetry`.

use std::path::PathBuf;

use pegel_metric::{Family, Kind};

use crate::folder::Folder;
use crate::scan::{Fault, integer};
use crate::sheet::counter;
use crate::walk::{Put, Walk, open_walk};
use crate::{Context, Entry, OpenError, Opened, Pace, Tier};

static LINK: Family = counter(
    "node_cxi_<key>_total",
    "",
    "Counter <key> of the adapter, about its link or packets.",
);
static DETAIL: Family = Family::new(
    "node_cxi_<key>_total",
    Kind::Counter,
    "",
    4,
    "Counter <key> of the adapter.",
);

pub static ENTRY: Entry = Entry {
    name: "slingshot",
    // An adapter has well over a thousand counters.
    tier: Tier::Minute,
    pace: Pace::Aside,
    level: 3,
    families: &[&LINK, &DETAIL],
    open,
};

#[derive(Debug)]
struct SlingshotAdapters {
    class: PathBuf,
}

fn open(context: &Context) -> Result<Opened, OpenError> {
    let class = context.host.sys.join("class/cxi");
    open_walk(context, class.clone(), SlingshotAdapters { class })
}

impl Walk for SlingshotAdapters {
    fn walk(&mut self, put: &mut Put<'_>) -> Result<(), Fault> {
        let Some(class) = Folder::open(&self.class) else {
            return Ok(());
        };
        for (number, folder) in class.numbered("cxi") {
            let Some(telemetry) = folder.folder("device/telemetry") else {
                continue;
            };
            put.touch(telemetry.path());
            let device = format!("cxi{number}");
            for name in telemetry.names() {
                // Some files are large and binary, with all counters in one; they do not parse.
                let text = telemetry.bytes(&name).unwrap_or_default();
                let Some(value) = parse_value(&text) else {
                    continue;
                };
                let is_link = name.starts_with("hni_") || name.starts_with("pct_");
                let family = if is_link { &LINK } else { &DETAIL };
                put.set_key(family, &name, &[("device", &device)], value)?;
            }
        }
        Ok(())
    }
}

/// Parses `1234@1630000000.123456789`: the value and the time of the reading.
fn parse_value(text: &[u8]) -> Option<f64> {
    let text = text.trim_ascii();
    let end = text.iter().position(|&byte| byte == b'@');
    integer(&text[..end.unwrap_or(text.len())]).map(|value| value as f64)
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
