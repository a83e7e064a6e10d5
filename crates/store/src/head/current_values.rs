//! The current value of every live series, as a snapshot that readers search without holding any
//! lock. `/metrics` and `Store::latest` read it.
//!
//! A head keeps its current values in chunks behind `Arc`: one per group, one per 256 ungrouped
//! series. A snapshot clones the pointers. The writer changes a chunk in place, or copies it first
//! (`Arc::make_mut`) while a snapshot still holds it: at most one copy of a chunk per snapshot,
//! however long a reader keeps it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use pegel_metric::{GroupRow, GroupSeries, Input, Millis, Selector, Series, is_stale};

use crate::range_query::{LatestValue, QueryError, TimeLimit};
use crate::sample_run::{bit, set_bit};

/// Ungrouped series per chunk.
const CHUNK_LEN: usize = 256;

/// A snapshot of all current values.
#[derive(Debug)]
pub(crate) struct CurrentValuesSnapshot {
    pub groups: Vec<CurrentGroup>,
    pub ungrouped: UngroupedCurrentValues,
    /// The number of the latest change.
    pub changes: u64,
}

/// The current row of one group.
#[derive(Debug, Clone)]
pub(crate) struct CurrentGroup {
    pub members: Arc<GroupSeries>,
    pub row: Arc<CurrentRow>,
    pub overlapping: OverlappingMembers,
}

/// The last row, and when each of its values changed.
#[derive(Debug, Clone, Default)]
pub(crate) struct CurrentRow {
    pub time: Millis,
    present: Vec<u64>,
    bits: Vec<u64>,
    changed: Vec<Millis>,
    change: Vec<u64>,
}

/// The members of a group that are ungrouped series too. The newer value of such a series wins.
#[derive(Debug, Clone, Default)]
pub(crate) struct OverlappingMembers {
    /// Pairs of member and slot of the ungrouped series.
    pub pairs: Arc<Vec<(u32, u32)>>,
    /// The number of ungrouped series when the list was built. A head only adds series.
    pub ungrouped_count: usize,
}

/// The current values of ungrouped series, by slot. Slots are assigned in order and never reused
/// within a head.
#[derive(Debug, Clone, Default)]
pub(crate) struct UngroupedCurrentValues {
    chunks: Vec<UngroupedChunk>,
    len: usize,
}

#[derive(Debug, Clone, Default)]
struct UngroupedChunk {
    series: Arc<Vec<Arc<Series>>>,
    values: Arc<Vec<UngroupedCurrentValue>>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct UngroupedCurrentValue {
    pub latest: LatestValue,
    pub change: u64,
}

impl CurrentValuesSnapshot {
    /// Visits the live series that match and changed after change number `after`.
    pub(crate) fn visit(
        &self,
        selector: &Selector,
        after: u64,
        now: Millis,
        limit: &mut TimeLimit,
        visit: &mut dyn FnMut(&Arc<Series>, LatestValue),
    ) -> Result<(), QueryError> {
        let mut older_ungrouped = HashSet::new();
        for group in self.groups.iter().filter(|group| group.is_live(now)) {
            let older_members = self.resolve_overlapping(group, now, &mut older_ungrouped);
            for (index, series) in group.members.series.iter().enumerate() {
                if group.row.change[index] <= after || !group.row.is_present(index) {
                    continue;
                }
                limit.spend_on(series)?;
                if older_members.binary_search(&index).is_err() && selector.matches(series) {
                    visit(series, group.row.latest(index));
                }
            }
        }
        for (slot, series, current) in self.ungrouped.iter() {
            if current.change <= after || !current.is_live(now) {
                continue;
            }
            limit.spend_on(series)?;
            if !older_ungrouped.contains(&slot) && selector.matches(series) {
                visit(series, current.latest);
            }
        }
        Ok(())
    }

    /// Decides which value wins for the members of a live group that are ungrouped series too.
    /// Returns the members whose ungrouped points are newer, sorted, and adds the slots whose
    /// ungrouped points are older to `older_ungrouped`.
    fn resolve_overlapping(
        &self,
        group: &CurrentGroup,
        now: Millis,
        older_ungrouped: &mut HashSet<u32>,
    ) -> Vec<usize> {
        let overlapping = group.overlapping.extended(&group.members, &self.ungrouped);
        let mut older_members = Vec::new();
        for &(member, slot) in overlapping.pairs.iter() {
            if !group.row.is_present(member as usize) {
                continue;
            }
            let ungrouped = self.ungrouped.get(slot);
            if ungrouped.is_live(now) && ungrouped.latest.last_sampled >= group.row.time {
                older_members.push(member as usize);
            } else {
                older_ungrouped.insert(slot);
            }
        }
        older_members.sort_unstable();
        older_members
    }
}

impl CurrentGroup {
    /// Returns whether the series are of an input. Those of a group are all of one class.
    pub(crate) fn is_of(&self, input: Input) -> bool {
        let first = self.members.series.first();
        first.is_some_and(|series| series.family().input == input)
    }

    pub(crate) fn is_live(&self, now: Millis) -> bool {
        now.saturating_sub(self.row.time) <= self.members.stale_after
    }
}

impl CurrentRow {
    pub(crate) fn new(width: usize) -> CurrentRow {
        CurrentRow {
            time: Millis::MIN,
            present: vec![0; width.div_ceil(64)],
            bits: vec![0; width],
            changed: vec![0; width],
            change: vec![0; width],
        }
    }

    pub(crate) fn take(&mut self, time: Millis, row: &GroupRow, change: u64) {
        for (index, value) in row.values.iter().enumerate() {
            let bits = value.to_bits();
            // At this point the presence bits are still those of the previous row.
            if row.is_present(index) && (bits != self.bits[index] || !bit(&self.present, index)) {
                self.bits[index] = bits;
                self.changed[index] = time;
                self.change[index] = change;
            }
        }
        self.present.clone_from(&row.present);
        self.time = time;
    }

    /// Returns the same values for another list of members, so that a series keeps the time of its
    /// last change.
    pub(crate) fn remapped(&self, from: &GroupSeries, to: &GroupSeries) -> CurrentRow {
        let indexes: HashMap<&str, usize> = from
            .series
            .iter()
            .enumerate()
            .map(|(index, series)| (series.text(), index))
            .collect();
        let mut remapped = CurrentRow::new(to.series.len());
        remapped.time = self.time;
        for (index, series) in to.series.iter().enumerate() {
            if let Some(&old) = indexes.get(series.text()) {
                remapped.bits[index] = self.bits[old];
                remapped.changed[index] = self.changed[old];
                remapped.change[index] = self.change[old];
                if bit(&self.present, old) {
                    set_bit(&mut remapped.present, index);
                }
            }
        }
        remapped
    }

    pub(crate) fn is_present(&self, index: usize) -> bool {
        bit(&self.present, index)
    }

    /// Returns one value per member; `None` where the row has none.
    pub(crate) fn values(&self) -> impl Iterator<Item = Option<f64>> + '_ {
        let bits = self.bits.iter().enumerate();
        bits.map(|(index, &bits)| self.is_present(index).then(|| f64::from_bits(bits)))
    }

    fn latest(&self, index: usize) -> LatestValue {
        LatestValue {
            value: f64::from_bits(self.bits[index]),
            last_changed: self.changed[index],
            last_sampled: self.time,
        }
    }
}

impl OverlappingMembers {
    /// Returns the list, extended by the ungrouped series added since it was built.
    pub(crate) fn extended(
        &self,
        members: &GroupSeries,
        ungrouped: &UngroupedCurrentValues,
    ) -> OverlappingMembers {
        if self.ungrouped_count == ungrouped.len {
            return self.clone();
        }
        let new: HashMap<&Arc<Series>, u32> = ungrouped
            .iter_from(self.ungrouped_count)
            .map(|(slot, series, _)| (series, slot))
            .collect();
        let is_new = |(member, series)| Some((member, *new.get(series)?));
        let added = (0..).zip(&members.series).filter_map(is_new);
        let mut pairs = self.pairs.clone();
        Arc::make_mut(&mut pairs).extend(added);
        OverlappingMembers {
            pairs,
            ungrouped_count: ungrouped.len,
        }
    }
}

impl UngroupedCurrentValues {
    /// Adds a series and returns its slot.
    pub(crate) fn push(&mut self, series: Arc<Series>, current: UngroupedCurrentValue) -> u32 {
        let slot = u32::try_from(self.len).expect("series are bounded far below 2^32");
        if self.len.is_multiple_of(CHUNK_LEN) {
            self.chunks.push(UngroupedChunk::default());
        }
        let part = self
            .chunks
            .last_mut()
            .expect("added above if there was none");
        Arc::make_mut(&mut part.series).push(series);
        Arc::make_mut(&mut part.values).push(current);
        self.len += 1;
        slot
    }

    pub(crate) fn get(&self, slot: u32) -> &UngroupedCurrentValue {
        &self.chunks[slot as usize / CHUNK_LEN].values[slot as usize % CHUNK_LEN]
    }

    pub(crate) fn get_mut(&mut self, slot: u32) -> &mut UngroupedCurrentValue {
        let values = &mut self.chunks[slot as usize / CHUNK_LEN].values;
        &mut Arc::make_mut(values)[slot as usize % CHUNK_LEN]
    }

    /// Takes points of several slots. A chunk is made writable once for consecutive slots: that
    /// takes atomic operations, which cost more than the rest.
    pub(crate) fn take(&mut self, points: &[(u32, (Millis, f64))], at: (u64, Millis)) {
        let chunk_of = |slot: u32| slot as usize / CHUNK_LEN;
        for points in points.chunk_by(|(slot, _), (next, _)| chunk_of(*slot) == chunk_of(*next)) {
            let values = Arc::make_mut(&mut self.chunks[chunk_of(points[0].0)].values);
            for (slot, point) in points {
                values[*slot as usize % CHUNK_LEN].take(*point, at);
            }
        }
    }

    /// Returns the series of a slot, if there is such a slot.
    pub(crate) fn find_series(&self, slot: u32) -> Option<&Arc<Series>> {
        let chunk = self.chunks.get(slot as usize / CHUNK_LEN)?;
        chunk.series.get(slot as usize % CHUNK_LEN)
    }

    pub(crate) fn series(&self, slot: u32) -> &Arc<Series> {
        &self.chunks[slot as usize / CHUNK_LEN].series[slot as usize % CHUNK_LEN]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Arc<Series>, &UngroupedCurrentValue)> {
        self.iter_from(0)
    }

    /// Iterates from a slot on.
    fn iter_from(
        &self,
        first: usize,
    ) -> impl Iterator<Item = (u32, &Arc<Series>, &UngroupedCurrentValue)> {
        let parts = self.chunks.iter().enumerate().skip(first / CHUNK_LEN);
        parts
            .flat_map(|(number, part)| {
                let slots = (number * CHUNK_LEN) as u32..;
                slots.zip(part.series.iter().zip(part.values.iter()))
            })
            .map(|(slot, (series, current))| (slot, series, current))
            .skip(first % CHUNK_LEN)
    }
}

impl UngroupedCurrentValue {
    /// Returns an entry without a value.
    pub(crate) fn none() -> UngroupedCurrentValue {
        let latest = LatestValue {
            value: 0.0,
            last_changed: Millis::MIN,
            last_sampled: Millis::MIN,
        };
        UngroupedCurrentValue { latest, change: 0 }
    }

    /// Makes a point current that is not ahead of the clock, unless a newer one is known. A current
    /// point that is ahead, because the clock was set back, is replaced.
    pub(crate) fn take(&mut self, (time, value): (Millis, f64), (change, now): (u64, Millis)) {
        if time < self.latest.last_sampled && self.latest.last_sampled <= now {
            return;
        }
        if value.to_bits() != self.latest.value.to_bits() || self.change == 0 {
            self.latest.value = value;
            self.latest.last_changed = time;
            self.change = change;
        }
        self.latest.last_sampled = time;
    }

    /// Returns whether it has a current value: a recent one that is not the mark of its end.
    pub(crate) fn is_live(&self, now: Millis) -> bool {
        now.saturating_sub(self.latest.last_sampled) <= super::UNGROUPED_LIVE_MS
            && !is_stale(self.latest.value)
    }
}
