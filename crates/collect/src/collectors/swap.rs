//! Size, usage and priority of each swap area, from `/proc/swaps`.

use pegel_metric::SampleGroup;

use crate::families::families;
use crate::file_collector::{FileParser, open_list};
use crate::proc_parse::{
    ProcParseError, Words, check_heading, non_empty_lines, parse_signed, parse_u64,
};
use crate::series_table::SeriesTable;
use crate::{CollectorEntry, Tier};

families! {
    SIZE Gauge 2 "node_swap_size_bytes" "bytes" "Size of the swap area, in bytes.";
    USED Gauge 2 "node_swap_used_bytes" "bytes" "Used space of the swap area, in bytes.";
    PRIORITY Gauge 2 "node_swap_priority" "" "Priority of the swap area; the kernel fills the area with the highest priority first.";
}

pub static ENTRY: CollectorEntry =
    CollectorEntry::inline("swap", Tier::FiveSeconds, FAMILIES, |context| {
        open_list(context, "proc/swaps", SwapReadings::new())
    });

#[derive(Debug)]
struct SwapReadings(SeriesTable);

impl SwapReadings {
    fn new() -> SwapReadings {
        SwapReadings(SeriesTable::new(FAMILIES))
    }
}

impl FileParser for SwapReadings {
    fn update(&mut self, text: &[u8], out: &mut SampleGroup) -> Result<(), ProcParseError> {
        let mut lines = non_empty_lines(text)?;
        check_heading(&mut lines, b"Filename", "expected the header of swap areas")?;
        self.0.begin_pass();
        for (number, line) in lines {
            let malformed = ProcParseError::at_line(number, "expected a swap area");
            let (name, values) = parse(line).ok_or(malformed)?;
            self.0.set_device(out, "device", name, values.map(Some))?;
        }
        self.0.end_pass(out);
        Ok(())
    }
}

/// Parses `/dev/sda2  partition  8388604  2048  -2`; spaces in the name are written as `\040`.
fn parse(line: &[u8]) -> Option<(&[u8], [f64; 3])> {
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
                ("", 0, "empty file"),
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
