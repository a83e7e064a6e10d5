//! Size, usage and priority of each swap area, from `/proc/swaps`.

use std::sync::Arc;

use pegel_metric::{Family, MetricKind, SampleGroup, Slot};

use crate::cursor_map::CursorMap;
use crate::device_slots::shared_families;
use crate::file_collector::{FileParser, open_files};
use crate::proc_file::ReadMode;
use crate::proc_parse::{
    ProcParseError, Words, label_value, non_empty_lines, parse_signed, parse_u64,
};
use crate::{CollectorEntry, CollectorOpenError, Context, Execution, OpenOutcome, Tier};

static SIZE: Family = Family::new(
    "node_swap_size_bytes",
    MetricKind::Gauge,
    "bytes",
    2,
    "Size of the swap area, in bytes.",
);
static USED: Family = Family::new(
    "node_swap_used_bytes",
    MetricKind::Gauge,
    "bytes",
    2,
    "Used space of the swap area, in bytes.",
);
static PRIORITY: Family = Family::new(
    "node_swap_priority",
    MetricKind::Gauge,
    "",
    2,
    "Priority of the swap area; the kernel fills the area with the highest priority first.",
);
const COLUMNS: usize = 3;
static FAMILIES: [&Family; COLUMNS] = [&SIZE, &USED, &PRIORITY];

pub static ENTRY: CollectorEntry = CollectorEntry {
    name: "swap",
    tier: Tier::FiveSeconds,
    execution: Execution::Inline,
    level: 2,
    families: &FAMILIES,
    open,
};

fn open(context: &Context) -> Result<OpenOutcome, CollectorOpenError> {
    let path = context.host.proc.join("swaps");
    open_files([(path, ReadMode::UntilEof, SwapReadings::new())])
}

#[derive(Debug)]
struct SwapReadings {
    families: Vec<Arc<Family>>,
    areas: CursorMap<[Slot; COLUMNS]>,
}

impl SwapReadings {
    fn new() -> SwapReadings {
        SwapReadings {
            families: shared_families(&FAMILIES),
            areas: CursorMap::new(),
        }
    }
}

impl FileParser for SwapReadings {
    fn update(&mut self, text: &[u8], out: &mut SampleGroup) -> Result<(), ProcParseError> {
        let mut lines = non_empty_lines(text)?;
        if lines
            .next()
            .is_none_or(|(_, line)| !line.starts_with(b"Filename"))
        {
            return Err(ProcParseError::Malformed {
                line: 1,
                what: "expected the header of swap areas",
            });
        }
        let families = &self.families;
        self.areas.begin_pass();
        for (number, line) in lines {
            let malformed = ProcParseError::Malformed {
                line: number,
                what: "expected a swap area",
            };
            let (name, values) = parse(line).ok_or(malformed)?;
            let slots = self.areas.entry(name, || {
                let device = label_value(name);
                let mut slot = |index: usize| out.declare(&families[index], &[("device", &device)]);
                Ok([slot(0)?, slot(1)?, slot(2)?])
            })?;
            for (slot, value) in slots.iter().zip(values) {
                out.set(*slot, value);
            }
        }
        self.areas
            .sweep(|slots| slots.into_iter().for_each(|slot| out.retire(slot)));
        Ok(())
    }
}

/// Parses `/dev/sda2  partition  8388604  2048  -2`; spaces in the name are written as `\040`.
fn parse(line: &[u8]) -> Option<(&[u8], [f64; COLUMNS])> {
    let mut words = Words(line);
    let (name, _kind) = (words.next()?, words.next()?);
    let size = parse_u64(words.next()?)? as f64 * 1024.0;
    let used = parse_u64(words.next()?)? as f64 * 1024.0;
    Some((name, [size, used, parse_signed(words.next()?)?]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectors::testing::{present_series, update_fails};

    #[test]
    fn swap_areas_appear_and_disappear() {
        let (mut readings, mut group) = (SwapReadings::new(), SampleGroup::new("swap", 3, 1000));
        let text = b"Filename\tType\tSize\tUsed\tPriority\n/dev/sda2   partition\t8\t2\t-2\n";
        readings.update(text, &mut group).expect("valid");
        assert_eq!(
            present_series(&mut group),
            [
                "node_swap_size_bytes{device=\"/dev/sda2\"} 8192",
                "node_swap_used_bytes{device=\"/dev/sda2\"} 2048",
                "node_swap_priority{device=\"/dev/sda2\"} -2",
            ]
        );
        group.clear();
        readings.update(b"Filename\n", &mut group).expect("valid");
        assert!(present_series(&mut group).is_empty());
    }

    #[test]
    fn malformed_input_is_reported_with_its_line() {
        update_fails(
            |text| SwapReadings::new().update(text, &mut SampleGroup::new("swap", 3, 1000)),
            &[
                ("", 0, "the file is empty"),
                ("/dev/sda2\n", 1, "expected the header of swap areas"),
                (
                    "Filename\n/dev/sda2 partition 8 x 1\n",
                    2,
                    "expected a swap area",
                ),
                (
                    "Filename\n/dev/sda2 partition 8 1\n",
                    2,
                    "expected a swap area",
                ),
            ],
        );
    }
}
