//! Finds the last row of each group of one input, so that an agent can continue the totals of its
//! predecessor.
//!
//! The head holds it for all groups written since the log's first segment. An idle group is written
//! once a minute, so that after a crash its last row may be in a block only. Blocks are searched
//! from the newest on, down to the first one that has such a group: groups with much older last
//! rows were no longer in use.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use pegel_metric::{GroupSeries, Millis};

use crate::block::{Block, BlockReadError, BlockReader};
use crate::context::StoreContext;
use crate::sample_run::{DecodedColumn, RunOwner, SampleRun, bit, decode_column};

/// A group in use at the end was written at most this long before the group written last.
const IDLE_WRITE_WINDOW: Millis = 150_000;

/// The members of a group, and the value of each in its last row.
pub type LastRow = (Arc<GroupSeries>, Vec<Option<f64>>);

/// Returns the last rows of groups whose names begin with `prefix`, the oldest first.
pub(crate) fn last_rows(shared: &StoreContext, prefix: &str) -> Vec<LastRow> {
    let mut found: HashMap<Arc<str>, (Millis, LastRowSource)> = HashMap::new();
    let blocks: Vec<Arc<Block>> = {
        let state = shared.read();
        let frozen = state.frozen.iter().map(|frozen| &frozen.head);
        // The newest head comes last: its rows replace the others.
        for head in frozen.chain([&state.head]) {
            for group in &head.groups {
                let members = group.members();
                if members.group.starts_with(prefix) {
                    let last = group.current().row;
                    let row = (members.clone(), last.values().collect());
                    let known = (last.time, LastRowSource::Memory(row));
                    found.insert(members.group.clone(), known);
                }
            }
        }
        let mut blocks = state.blocks.clone();
        blocks.sort_by_key(|block| std::cmp::Reverse(block.max));
        blocks
    };
    let newest = |found: &HashMap<Arc<str>, (Millis, LastRowSource)>| {
        found.values().map(|(time, _)| *time).max()
    };
    for block in blocks {
        let reaches = |newest: Millis| block.max >= newest.saturating_sub(IDLE_WRITE_WINDOW);
        if !newest(&found).is_none_or(reaches) {
            break;
        }
        // A damaged block is reported when its samples are read.
        if let Ok(reader) = BlockReader::open(&block, &shared.indexes) {
            add_block(&Rc::new(reader), prefix, &mut found);
        }
    }
    let oldest = newest(&found).map_or(Millis::MIN, |time| time.saturating_sub(IDLE_WRITE_WINDOW));
    let oldest = oldest.max(shared.retention_start());
    let mut rows: Vec<(Millis, LastRowSource)> = found.into_values().collect();
    rows.retain(|(time, _)| *time >= oldest);
    rows.sort_by_key(|(time, _)| *time);
    rows.into_iter()
        .filter_map(|(_, source)| source.row().ok().flatten())
        .collect()
}

enum LastRowSource {
    Memory(LastRow),
    Block(Rc<BlockReader>, u32),
}

fn add_block(
    reader: &Rc<BlockReader>,
    prefix: &str,
    found: &mut HashMap<Arc<str>, (Millis, LastRowSource)>,
) {
    let index = &reader.index;
    for (number, run) in index.runs.iter().enumerate() {
        let Some(name) = run.group.map(|group| &index.groups[group as usize]) else {
            continue;
        };
        let is_newer = || found.get(name).is_none_or(|(time, _)| *time < run.max);
        if name.starts_with(prefix) && is_newer() {
            let source = LastRowSource::Block(reader.clone(), number as u32);
            found.insert(name.clone(), (run.max, source));
        }
    }
}

impl LastRowSource {
    fn row(self) -> Result<Option<LastRow>, BlockReadError> {
        match self {
            LastRowSource::Memory(row) => Ok(Some(row)),
            LastRowSource::Block(reader, number) => {
                let run = reader.run(number)?;
                reader.close();
                Ok(run.and_then(|run| last_row(&run)))
            }
        }
    }
}

fn last_row(run: &SampleRun) -> Option<LastRow> {
    let RunOwner::Group(members) = &run.owner else {
        return None;
    };
    let mut values = vec![None; members.series.len()];
    let mut samples = DecodedColumn::default();
    for column in &run.columns {
        let bytes = run.column_bytes(column);
        if decode_column(bytes, run.rows, &mut samples).is_err() {
            continue;
        }
        let is_present = |bits: &Vec<u64>| bit(bits, run.rows - 1);
        if samples.present.as_ref().is_none_or(is_present) {
            values[column.member as usize] = samples.values.last().copied();
        }
    }
    Some((members.clone(), values))
}
