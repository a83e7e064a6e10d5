//! Free memory by size of block, from `/proc/buddyinfo`: how fragmented memory is, which decides
//! whether huge pages can be allocated.

use pegel_metric::SampleGroup;

use crate::dynamic_series::DynamicSeries;
use crate::families::families;
use crate::file_collector::{FileParser, open_list};
use crate::proc_parse::{ProcParseError, Words, label_value, non_empty_lines, parse_u64};
use crate::{CollectorEntry, Tier};

families! {
    BLOCKS Gauge 4 "node_buddyinfo_blocks" "" "Number of free blocks of 2^size pages, by NUMA node and zone.";
}

pub static ENTRY: CollectorEntry =
    CollectorEntry::inline("buddyinfo", Tier::FiveSeconds, FAMILIES, |context| {
        open_list(context, "proc/buddyinfo", FreeBlocks::default())
    });

#[derive(Debug, Default)]
struct FreeBlocks(DynamicSeries);

/// The orders of blocks as labels; kernels have eleven.
const SIZES: [&str; 16] = [
    "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15",
];

impl FileParser for FreeBlocks {
    fn update(&mut self, text: &[u8], out: &mut SampleGroup) -> Result<(), ProcParseError> {
        let mut put = self.0.begin_pass(out);
        for (number, line) in non_empty_lines(text)? {
            let malformed = ProcParseError::at_line(number, "expected the free blocks of a zone");
            let (node, zone, blocks) = parse(line).ok_or(malformed.clone())?;
            let (node, zone) = (label_value(node), label_value(zone));
            for (size, block) in SIZES.into_iter().zip(blocks) {
                let count = parse_u64(block).ok_or(malformed.clone())?;
                let labels = [("node", &*node), ("zone", &*zone), ("size", size)];
                put.set(&BLOCKS, &labels, count as f64)?;
            }
        }
        put.end_pass();
        Ok(())
    }
}

/// Parses `Node 0, zone   Normal   9   8 …`: node, zone and the counts.
fn parse(line: &[u8]) -> Option<(&[u8], &[u8], Words<'_>)> {
    let mut words = Words(line);
    let is_node = words.next()? == b"Node";
    let node = words.next()?.strip_suffix(b",")?;
    let is_zone = words.next()? == b"zone";
    let zone = words.next()?;
    (is_node && is_zone).then_some((node, zone, words))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectors::testing::{present_series, update_fails};

    #[test]
    fn blocks_are_counted_by_size() {
        let mut group = SampleGroup::new("buddyinfo", 4, 1000);
        let text = b"Node 0, zone      DMA      1      0\nNode 1, zone   Normal     23      4\n";
        FreeBlocks::default()
            .update(text, &mut group)
            .expect("valid");
        let found = present_series(&mut group);
        assert_eq!(found.len(), 4);
        assert_eq!(
            found[2],
            "node_buddyinfo_blocks{node=\"1\",size=\"0\",zone=\"Normal\"} 23"
        );
    }

    #[test]
    fn malformed_input_is_reported_with_its_line() {
        let what = "expected the free blocks of a zone";
        update_fails(
            |text| FreeBlocks::default().update(text, &mut SampleGroup::new("buddyinfo", 4, 1000)),
            &[
                ("", 0, "empty file"),
                (
                    "Node 0, zone DMA 1\nNode 0, zone",
                    2,
                    "the last line is cut off",
                ),
                ("Node 0, zone DMA x\n", 1, what),
                ("Node 0 zone DMA 1\n", 1, what),
                ("zone DMA 1\n", 1, what),
            ],
        );
    }
}
