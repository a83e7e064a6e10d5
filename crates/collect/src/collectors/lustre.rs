//! Operations of this node on Lustre file systems, from `llite/*/stats` below `/proc/fs/lustre` or
//! `/sys/kernel/debug/lustre`.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pegel_metric::{Family, MetricKind, SampleGroup};

use crate::attribute::{attribute_text, directory_names};
use crate::cursor_map::CursorMap;
use crate::device_slots::{DeviceSlots, shared_families};
use crate::proc_parse::{ProcParseError, Words, label_value, parse_u64};
use crate::{
    CollectError, Collector, CollectorEntry, CollectorOpenError, Context, CurrentOperation,
    Execution, OpenOutcome, Tier,
};

const fn counter(name: &'static str, unit: &'static str, help: &'static str) -> Family {
    Family::new(name, MetricKind::Counter, unit, 3, help)
}

static READ: Family = counter(
    "node_lustre_read_bytes_total",
    "bytes",
    "Total number of bytes read by programs.",
);
static WRITTEN: Family = counter(
    "node_lustre_write_bytes_total",
    "bytes",
    "Total number of bytes written by programs.",
);
static OPERATIONS: Family = counter(
    "node_lustre_operations_total",
    "",
    "Total number of file system calls by programs, by operation.",
);
static FAMILIES: [&Family; 3] = [&READ, &WRITTEN, &OPERATIONS];

/// Runs on a thread of its own, because the kernel queries the servers for some values.
pub static ENTRY: CollectorEntry = CollectorEntry {
    name: "lustre",
    tier: Tier::FiveSeconds,
    execution: Execution::Threaded,
    level: 3,
    families: &FAMILIES,
    open,
};

#[derive(Debug)]
struct Lustre {
    folder: PathBuf,
    operation: CurrentOperation,
    readings: LustreReadings,
}

#[derive(Debug)]
struct LustreReadings {
    families: Vec<Arc<Family>>,
    /// By file system and operation.
    slots: CursorMap<DeviceSlots>,
}

fn open(context: &Context) -> Result<OpenOutcome, CollectorOpenError> {
    let folders = [
        context.host.proc.join("fs/lustre/llite"),
        context.host.sys.join("kernel/debug/lustre/llite"),
    ];
    let Some(folder) = folders.iter().find(|folder| folder.is_dir()) else {
        let [looked_for, _] = folders;
        return Ok(OpenOutcome::Absent { looked_for });
    };
    Ok(OpenOutcome::Active(Box::new(Lustre {
        folder: folder.clone(),
        operation: context.operation.clone(),
        readings: LustreReadings::new(),
    })))
}

impl Collector for Lustre {
    fn collect(&mut self, out: &mut SampleGroup) -> Result<(), CollectError> {
        self.readings.slots.begin_pass();
        for mount in directory_names(&self.folder) {
            let path = self.folder.join(&mount).join("stats");
            self.operation.set(&path.to_string_lossy());
            // Unmounted since the directory was listed.
            let Some(text) = attribute_text(&path) else {
                continue;
            };
            let name = filesystem_name(&label_value(mount.as_bytes()));
            let set = self.readings.set(&name, &text, out);
            set.map_err(|fault| fault.at_path(Path::new(&path)))?;
        }
        self.readings.slots.sweep(|places| places.retire(out));
        Ok(())
    }
}

/// Removes the address from a name such as `scratch-ffff8fd3b7d5b000`. It distinguishes two mounts of one file system and
/// changes with each mount.
fn filesystem_name(mount: &str) -> String {
    let parts = mount.rsplit_once('-');
    let is_address = |text: &str| text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
    match parts {
        Some((name, address)) if is_address(address) => name.to_owned(),
        _ => mount.to_owned(),
    }
}

impl LustreReadings {
    fn new() -> LustreReadings {
        LustreReadings {
            families: shared_families(&FAMILIES),
            slots: CursorMap::new(),
        }
    }

    fn set(
        &mut self,
        file_system: &str,
        text: &str,
        out: &mut SampleGroup,
    ) -> Result<(), ProcParseError> {
        for (number, line) in (1..).zip(text.lines()) {
            let malformed = ProcParseError::Malformed {
                line: number,
                what: "expected an operation and its counters",
            };
            let Some((name, count, sum)) = parse(line.as_bytes()).ok_or(malformed)? else {
                continue;
            };
            let key = format!("{file_system}\n{}", label_value(name));
            let families = &self.families;
            let places = self
                .slots
                .entry(key.as_bytes(), || Ok(DeviceSlots::new(families)))?;
            let operation = label_value(name);
            let labels = [("fs", file_system), ("operation", &*operation)];
            places.set(out, families, 2, &labels, count as f64)?;
            let index = match name {
                b"read_bytes" => 0,
                b"write_bytes" => 1,
                _ => continue,
            };
            places.set(out, families, index, &labels[..1], sum as f64)?;
        }
        Ok(())
    }
}

/// Parses `read_bytes  26 samples [bytes] 1 4096 80000`, or the same without sizes: the name, the count and the sum.
/// Returns `Some(None)` for lines with times.
#[allow(clippy::type_complexity, reason = "a name would hide the three parts")]
fn parse(line: &[u8]) -> Option<Option<(&[u8], u64, u64)>> {
    let mut words = Words(line);
    let (name, count) = (words.next()?, words.next()?);
    if words.next()? != b"samples" {
        return matches!(name, b"snapshot_time" | b"start_time" | b"elapsed_time").then_some(None);
    }
    let sum = words.nth(3).map_or(Some(0), parse_u64)?;
    Some(Some((name, parse_u64(count)?, sum)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectors::testing::{present_series, update_fails};

    #[test]
    fn bytes_are_sums_and_the_rest_are_counts() {
        let mut group = SampleGroup::new("lustre", 3, 1000);
        let text = "snapshot_time             1730000000.123456789 secs.nsecs\n\
                    read_bytes                26 samples [bytes] 1 4096 80000\n\
                    open                      7 samples [reqs]\n";
        let mut readings = LustreReadings::new();
        readings.set("scratch", text, &mut group).expect("valid");
        assert_eq!(
            present_series(&mut group),
            [
                "node_lustre_operations_total{fs=\"scratch\",operation=\"read_bytes\"} 26",
                "node_lustre_read_bytes_total{fs=\"scratch\"} 80000",
                "node_lustre_operations_total{fs=\"scratch\",operation=\"open\"} 7",
            ]
        );
    }

    #[test]
    fn the_address_of_a_mount_is_removed() {
        assert_eq!(filesystem_name("scratch-ffff8fd3b7d5b000"), "scratch");
        assert_eq!(filesystem_name("my-scratch"), "my-scratch");
    }

    #[test]
    fn malformed_input_is_reported_with_its_line() {
        let what = "expected an operation and its counters";
        update_fails(
            |text| {
                let text = String::from_utf8_lossy(text);
                LustreReadings::new().set("x", &text, &mut SampleGroup::new("lustre", 3, 1000))
            },
            &[
                ("open 7\n", 1, what),
                ("open x samples [reqs]\n", 1, what),
                (
                    "open 1 samples [reqs]\nread_bytes 1 samples [bytes] 1 2 x\n",
                    2,
                    what,
                ),
                ("\n", 1, what),
            ],
        );
    }
}
