//! Memory statistics of each NUMA node, from `/sys/devices/system/node`.

use std::path::PathBuf;

use pegel_metric::Family;

use crate::dynamic_series::{counter, gauge};
use crate::proc_parse::{ProcParseError, Words, parse_u64};
use crate::sysfs_dir::SysfsDir;
use crate::sysfs_walk::{SeriesWriter, SysfsWalk, open_walk};
use crate::{CollectorEntry, CollectorOpenError, Context, Execution, OpenOutcome, Tier};

static MEMORY: Family = gauge(
    "node_memory_numa_<key>",
    "",
    "Field <key> of the NUMA node's meminfo; sizes are in bytes.",
);
static EVENTS: Family = counter(
    "node_memory_numa_<key>_total",
    "",
    "Total number of page allocations on the NUMA node (<key>).",
);

pub static ENTRY: CollectorEntry = CollectorEntry {
    name: "numa",
    tier: Tier::FiveSeconds,
    execution: Execution::Threaded,
    level: 3,
    families: &[&MEMORY, &EVENTS],
    open,
};

#[derive(Debug)]
struct NumaNodes {
    system: PathBuf,
}

fn open(context: &Context) -> Result<OpenOutcome, CollectorOpenError> {
    let system = context.host.sys.join("devices/system/node");
    open_walk(context, system.clone(), NumaNodes { system })
}

impl SysfsWalk for NumaNodes {
    fn walk(&mut self, put: &mut SeriesWriter<'_>) -> Result<(), ProcParseError> {
        let Some(system) = SysfsDir::open(&self.system) else {
            return Ok(());
        };
        for (node, folder) in system.numbered_subdirs("node") {
            put.set_current_path(folder.path());
            let labels = [("node", &*node)];
            for line in lines(&folder.bytes("meminfo").unwrap_or_default()) {
                if let Some((key, value)) = parse_memory_line(line) {
                    put.set_keyed(&MEMORY, &key, &labels, value)?;
                }
            }
            for line in lines(&folder.bytes("numastat").unwrap_or_default()) {
                if let Some((key, value)) = parse_event_line(line) {
                    put.set_keyed(&EVENTS, key, &labels, value)?;
                }
            }
        }
        Ok(())
    }
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&byte| byte == b'\n')
}

/// Parses `Node 0 Active(anon):  12 kB`; returns `None` for any other format.
fn parse_memory_line(line: &[u8]) -> Option<(String, f64)> {
    let mut words = Words(line).skip(2);
    let key = std::str::from_utf8(words.next()?.strip_suffix(b":")?).ok()?;
    let value = parse_u64(words.next()?)? as f64;
    let scale = match words.next() {
        None => 1.0,
        Some(b"kB") => 1024.0,
        Some(_) => return None,
    };
    Some((key.replace('(', "_").replace(')', ""), value * scale))
}

/// Parses `numa_hit 12`.
fn parse_event_line(line: &[u8]) -> Option<(&str, f64)> {
    let mut words = Words(line);
    let key = std::str::from_utf8(words.next()?).ok()?;
    Some((key, parse_u64(words.next()?)? as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_another_format_are_skipped() {
        let key = |text: &str| parse_memory_line(text.as_bytes());
        assert_eq!(
            key("Node 0 Active(anon):  12 kB"),
            Some(("Active_anon".to_owned(), 12_288.0))
        );
        assert_eq!(
            key("Node 1 HugePages_Total:     4"),
            Some(("HugePages_Total".to_owned(), 4.0))
        );
        for bad in [
            "",
            "Node 0",
            "Node 0 MemTotal: x kB",
            "Node 0 MemTotal: 1 MB",
            "Node 0 MemTotal 1 kB",
        ] {
            assert_eq!(key(bad), None, "{bad}");
        }
        assert_eq!(parse_event_line(b"numa_hit 12"), Some(("numa_hit", 12.0)));
        assert_eq!(parse_event_line(b"numa_hit"), None);
    }
}
