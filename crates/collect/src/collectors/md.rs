//! Software RAID arrays: state, disks and rebuild progress, from `/proc/mdstat`.

use pegel_metric::SampleGroup;

use super::mdstat::{MdArray, MdArrayState, parse};
use crate::dynamic_series::{DynamicSeries, SeriesWriter};
use crate::families::families;
use crate::file_collector::{FileParser, open_list};
use crate::proc_parse::{ProcParseError, label_value};
use crate::{CollectorEntry, Tier};

families! {
    BLOCKS Gauge 2 "node_md_blocks" "" "Size of the array, in blocks of 1 KiB.";
    SYNCED Gauge 2 "node_md_blocks_synced" "" "Number of blocks already synced during a rebuild or check; otherwise all blocks.";
    REQUIRED Gauge 2 "node_md_disks_required" "" "Number of disks that the array requires.";
    DISKS Gauge 2 "node_md_disks" "" "Number of disks of the array, by state.";
    STATE Gauge 2 "node_md_state" "" "1 for the current state of the array, otherwise 0.";
}

const STATES: [(&str, MdArrayState); 5] = [
    ("active", MdArrayState::Active),
    ("inactive", MdArrayState::Inactive),
    ("recovering", MdArrayState::Recovering),
    ("resync", MdArrayState::Resync),
    ("check", MdArrayState::Check),
];

pub static ENTRY: CollectorEntry =
    CollectorEntry::inline("md", Tier::FiveSeconds, FAMILIES, |context| {
        open_list(context, "proc/mdstat", MdReadings::default())
    });

#[derive(Debug, Default)]
struct MdReadings(DynamicSeries);

impl FileParser for MdReadings {
    fn update(&mut self, text: &[u8], out: &mut SampleGroup) -> Result<(), ProcParseError> {
        let mut put = self.0.begin_pass(out);
        parse(text, |array| set_array(&array, &mut put))?;
        put.end_pass();
        Ok(())
    }
}

fn set_array(array: &MdArray<'_>, put: &mut SeriesWriter<'_>) -> Result<(), ProcParseError> {
    let name = label_value(array.name);
    let device = ("device", &*name);
    put.set(&BLOCKS, &[device], array.blocks as f64)?;
    put.set(&SYNCED, &[device], array.synced as f64)?;
    put.set(&REQUIRED, &[device], array.required as f64)?;
    for (state, count) in [
        ("active", array.active),
        ("failed", array.failed),
        ("spare", array.spare),
    ] {
        put.set(&DISKS, &[device, ("state", state)], count as f64)?;
    }
    for (name, state) in STATES {
        let is_current = f64::from(u8::from(state == array.state));
        put.set(&STATE, &[device, ("state", name)], is_current)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectors::testing::present_series;

    #[test]
    fn arrays_appear_and_disappear() {
        let (mut readings, mut group) = (MdReadings::default(), SampleGroup::new("md", 3, 1000));
        let text = b"Personalities : [raid1]\nmd0 : active raid1 sda1[0] sdb1[1]\n      16 blocks [2/2] [UU]\n\n";
        readings.update(text, &mut group).expect("valid");
        let found = present_series(&mut group);
        assert_eq!(found.len(), 11);
        assert_eq!(found[6], "node_md_state{device=\"md0\",state=\"active\"} 1");
        group.clear();
        readings
            .update(b"Personalities :\n", &mut group)
            .expect("valid");
        assert!(present_series(&mut group).is_empty());
    }
}
