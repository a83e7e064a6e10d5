//! Memory statistics of each NUMA node, from `/sys/devices/system/node`.

use pegel_machine::{MeminfoField, key_value_lines};

use crate::dynamic_series::SeriesWriter;
use crate::families::families;
use crate::proc_parse::{ProcParseError, Words};
use crate::sysfs_dir::SysfsDir;
use crate::sysfs_walk::{SysfsWalk, open_walk};
use crate::{CollectorEntry, Tier};

families! {
    MEMORY Gauge 3 "node_memory_numa_<key>" "" "Field <key> of the NUMA node's meminfo; sizes are in bytes.";
    EVENTS Counter 3 "node_memory_numa_<key>_total" "" "Total number of page allocations on the NUMA node (<key>).";
}

pub static ENTRY: CollectorEntry =
    CollectorEntry::threaded("numa", Tier::FiveSeconds, FAMILIES, |context| {
        open_walk(context, "sys/devices/system/node", NumaNodes)
    });

#[derive(Debug)]
struct NumaNodes;

impl SysfsWalk for NumaNodes {
    fn walk(
        &mut self,
        system: &SysfsDir,
        put: &mut SeriesWriter<'_>,
    ) -> Result<(), ProcParseError> {
        for (node, folder) in system.numbered_subdirs("node") {
            put.set_current_path(folder.path());
            let labels = [("node", &*node)];
            let memory = folder.bytes("meminfo").unwrap_or_default();
            for line in memory.split(|&byte| byte == b'\n') {
                if let Some((key, value)) = parse_memory_line(line) {
                    put.set_keyed(&MEMORY, &key, &labels, value)?;
                }
            }
            for (key, value) in key_value_lines(&folder.bytes("numastat").unwrap_or_default()) {
                put.set_keyed(&EVENTS, key, &labels, value as f64)?;
            }
        }
        Ok(())
    }
}

/// Parses `Node 0 Active(anon):  12 kB`; returns `None` for any other format.
fn parse_memory_line(line: &[u8]) -> Option<(String, f64)> {
    let mut words = Words(line);
    words.nth(1)?;
    let field = MeminfoField::parse(words.0.trim_ascii())?;
    Some((field.metric_key(), field.value()))
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
    }
}
