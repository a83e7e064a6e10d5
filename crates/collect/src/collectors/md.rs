//! Software RAID arrays: state, disks and rebuild progress, from `/proc/mdstat`.

use std::sync::Arc;

use pegel_metric::{Family, MetricKind, SampleGroup, SeriesError, Slot};

use super::mdstat::{MdArray, MdArrayState, parse};
use crate::cursor_map::CursorMap;
use crate::device_slots::shared_families;
use crate::file_collector::{FileParser, open_files};
use crate::proc_file::ReadMode;
use crate::proc_parse::{ProcParseError, label_value};
use crate::{CollectorEntry, CollectorOpenError, Context, Execution, OpenOutcome, Tier};

const fn gauge(name: &'static str, help: &'static str) -> Family {
    Family::new(name, MetricKind::Gauge, "", 2, help)
}

static BLOCKS: Family = gauge("node_md_blocks", "Size of the array, in blocks of 1 KiB.");
static SYNCED: Family = gauge(
    "node_md_blocks_synced",
    "Number of blocks already synced during a rebuild or check; otherwise all blocks.",
);
static DISKS: Family = gauge("node_md_disks", "Number of disks of the array, by state.");
static REQUIRED: Family = gauge(
    "node_md_disks_required",
    "Number of disks that the array requires.",
);
static STATE: Family = gauge(
    "node_md_state",
    "1 for the current state of the array, otherwise 0.",
);
static FAMILIES: [&Family; 5] = [&BLOCKS, &SYNCED, &REQUIRED, &DISKS, &STATE];

const DISK_STATES: [&str; 3] = ["active", "failed", "spare"];
const STATES: [(&str, MdArrayState); 5] = [
    ("active", MdArrayState::Active),
    ("inactive", MdArrayState::Inactive),
    ("recovering", MdArrayState::Recovering),
    ("resync", MdArrayState::Resync),
    ("check", MdArrayState::Check),
];

pub static ENTRY: CollectorEntry = CollectorEntry {
    name: "md",
    tier: Tier::FiveSeconds,
    execution: Execution::Inline,
    level: 2,
    families: &FAMILIES,
    open,
};

fn open(context: &Context) -> Result<OpenOutcome, CollectorOpenError> {
    let path = context.host.proc.join("mdstat");
    open_files([(path, ReadMode::UntilEof, MdReadings::new())])
}

#[derive(Debug)]
struct MdReadings {
    families: Vec<Arc<Family>>,
    arrays: CursorMap<MdArraySlots>,
}

#[derive(Debug)]
struct MdArraySlots {
    blocks: Slot,
    synced: Slot,
    required: Slot,
    disks: [Slot; 3],
    states: [Slot; 5],
}

impl MdReadings {
    fn new() -> MdReadings {
        MdReadings {
            families: shared_families(&FAMILIES),
            arrays: CursorMap::new(),
        }
    }
}

impl FileParser for MdReadings {
    fn update(&mut self, text: &[u8], out: &mut SampleGroup) -> Result<(), ProcParseError> {
        let (arrays, families) = (&mut self.arrays, &self.families);
        arrays.begin_pass();
        parse(text, |array| {
            let slots = arrays.entry(array.name, || {
                Ok(MdArraySlots::declare(
                    families,
                    &label_value(array.name),
                    out,
                )?)
            })?;
            slots.set(&array, out);
            Ok(())
        })?;
        arrays.sweep(|slots| slots.retire(out));
        Ok(())
    }
}

impl MdArraySlots {
    fn declare(
        families: &[Arc<Family>],
        name: &str,
        out: &mut SampleGroup,
    ) -> Result<MdArraySlots, SeriesError> {
        let mut plain = |index: usize| out.declare(&families[index], &[("device", name)]);
        let (blocks, synced, required) = (plain(0)?, plain(1)?, plain(2)?);
        let mut of = |index: usize, state| {
            out.declare(&families[index], &[("device", name), ("state", state)])
        };
        let mut disks = [blocks; 3];
        for (slot, state) in disks.iter_mut().zip(DISK_STATES) {
            *slot = of(3, state)?;
        }
        let mut states = [blocks; 5];
        for (slot, (state, _)) in states.iter_mut().zip(STATES) {
            *slot = of(4, state)?;
        }
        Ok(MdArraySlots {
            blocks,
            synced,
            required,
            disks,
            states,
        })
    }

    fn set(&self, array: &MdArray<'_>, out: &mut SampleGroup) {
        out.set(self.blocks, array.blocks as f64);
        out.set(self.synced, array.synced as f64);
        out.set(self.required, array.required as f64);
        let counts = [array.active, array.failed, array.spare];
        for (slot, count) in self.disks.iter().zip(counts) {
            out.set(*slot, count as f64);
        }
        for (slot, (_, state)) in self.states.iter().zip(STATES) {
            out.set(*slot, f64::from(u8::from(state == array.state)));
        }
    }

    fn retire(self, out: &mut SampleGroup) {
        let plain = [self.blocks, self.synced, self.required];
        let all = plain.into_iter().chain(self.disks).chain(self.states);
        all.for_each(|slot| out.retire(slot));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectors::testing::present_series;

    #[test]
    fn arrays_appear_and_disappear() {
        let (mut readings, mut group) = (MdReadings::new(), SampleGroup::new("md", 3, 1000));
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
