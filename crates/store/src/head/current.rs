//! The current value of every live series, as a snapshot that readers search without holding any lock.
//!
//! A head keeps its current values in parts behind `Arc`: one per group, one per few hundred loose series. A
//! snapshot clones the pointers. The writer changes a part in place, or copies it first (`Arc::make_mut`) while a
//! snapshot still holds it: at most one copy of a part per snapshot, whatever a reader does with it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use pegel_metric::{GroupRow, Members, Millis, Selector, Series};

use crate::question::{Latest, QueryError, TimeLimit};
use crate::run::{bit, set_bit};

/// Loose series per part.
const PART_LEN: usize = 256;

/// A snapshot of all current values.
#[derive(Debug)]
pub(crate) struct CurrentValues {
    pub groups: Vec<GroupCurrent>,
    pub loose: LooseCurrents,
    /// The number of the latest change.
    pub changes: u64,
}

/// The current row of one group.
#[derive(Debug, Clone)]
pub(crate) struct GroupCurrent {
    pub members: Arc<Members>,
    pub row: Arc<CurrentRow>,
    pub shadowed: Shadowed,
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

/// The members of a group that are loose series too. The newer value of such a series counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shadowed {
    /// Member and loose slot.
    pub pairs: Arc<Vec<(u32, u32)>>,
    /// The number of loose series when the list was built. A head only adds to them.
    pub loose_count: usize,
}

/// The current values of loose series, by slot. Slots are assigned in order and never reused within a head.
#[derive(Debug, Clone, Default)]
pub(crate) struct LooseCurrents {
    parts: Vec<LoosePart>,
    len: usize,
}

#[derive(Debug, Clone, Default)]
struct LoosePart {
    series: Arc<Vec<Arc<Series>>>,
    values: Arc<Vec<LooseCurrent>>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct LooseCurrent {
    pub latest: Latest,
    pub change: u64,
}

impl CurrentValues {
    /// Visits the live series that match and changed after change number `after`.
    pub fn visit(
        &self,
        selector: &Selector,
        after: u64,
        now: Millis,
        limit: &mut TimeLimit,
        visit: &mut dyn FnMut(&Arc<Series>, Latest),
    ) -> Result<(), QueryError> {
        let mut older_loose = HashSet::new();
        for group in self.groups.iter().filter(|group| group.is_live(now)) {
            let older_members = self.resolve_shadowed(group, now, &mut older_loose);
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
        for (slot, series, current) in self.loose.iter() {
            if current.change <= after || !current.is_live(now) {
                continue;
            }
            limit.spend_on(series)?;
            if !older_loose.contains(&slot) && selector.matches(series) {
                visit(series, current.latest);
            }
        }
        Ok(())
    }

    /// Decides which value counts for the members of a live group that are loose series too. Returns the members whose
    /// loose points are newer, sorted, and adds the slots whose loose points are older to `older_loose`.
    fn resolve_shadowed(
        &self,
        group: &GroupCurrent,
        now: Millis,
        older_loose: &mut HashSet<u32>,
    ) -> Vec<usize> {
        let shadowed = group.shadowed.extended(&group.members, &self.loose);
        let mut older_members = Vec::new();
        for &(member, slot) in shadowed.pairs.iter() {
            if !group.row.is_present(member as usize) {
                continue;
            }
            let loose = self.loose.get(slot);
            if loose.is_live(now) && loose.latest.seen >= group.row.time {
                older_members.push(member as usize);
            } else {
                older_loose.insert(slot);
            }
        }
        older_members.sort_unstable();
        older_members
    }
}

impl GroupCurrent {
    pub fn is_live(&self, now: Millis) -> bool {
        now.saturating_sub(self.row.time) <= self.members.live_for
    }
}

impl CurrentRow {
    pub fn new(width: usize) -> CurrentRow {
        CurrentRow {
            time: Millis::MIN,
            present: vec![0; width.div_ceil(64)],
            bits: vec![0; width],
            changed: vec![0; width],
            change: vec![0; width],
        }
    }

    pub fn take(&mut self, time: Millis, row: &GroupRow, change: u64) {
        for (index, value) in row.values.iter().enumerate() {
            let bits = value.to_bits();
            // The present bits are still those of the row before.
            if row.is_present(index) && (bits != self.bits[index] || !bit(&self.present, index)) {
                self.bits[index] = bits;
                self.changed[index] = time;
                self.change[index] = change;
            }
        }
        self.present.clone_from(&row.present);
        self.time = time;
    }

    /// Returns the same values for another list of members, so that a series keeps the time of its last change.
    pub fn remapped(&self, from: &Members, to: &Members) -> CurrentRow {
        let places: HashMap<&str, usize> = from
            .series
            .iter()
            .enumerate()
            .map(|(index, series)| (series.text(), index))
            .collect();
        let mut remapped = CurrentRow::new(to.series.len());
        remapped.time = self.time;
        for (index, series) in to.series.iter().enumerate() {
            if let Some(&old) = places.get(series.text()) {
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

    pub fn is_present(&self, index: usize) -> bool {
        bit(&self.present, index)
    }

    /// Returns one value per member; `None` where the row has none.
    pub fn values(&self) -> impl Iterator<Item = Option<f64>> + '_ {
        let bits = self.bits.iter().enumerate();
        bits.map(|(index, &bits)| self.is_present(index).then(|| f64::from_bits(bits)))
    }

    fn latest(&self, index: usize) -> Latest {
        Latest {
            value: f64::from_bits(self.bits[index]),
            changed: self.changed[index],
            seen: self.time,
        }
    }
}

impl Shadowed {
    /// Returns the list with the loose series added since it was built.
    pub fn extended(&self, members: &Members, loose: &LooseCurrents) -> Shadowed {
        if self.loose_count == loose.len {
            return self.clone();
        }
        let new: HashMap<&Arc<Series>, u32> = loose
            .iter_from(self.loose_count)
            .map(|(slot, series, _)| (series, slot))
            .collect();
        let is_new = |(member, series)| Some((member, *new.get(series)?));
        let added = (0..).zip(&members.series).filter_map(is_new);
        let mut pairs = self.pairs.clone();
        Arc::make_mut(&mut pairs).extend(added);
        Shadowed {
            pairs,
            loose_count: loose.len,
        }
    }
}

impl LooseCurrents {
    /// Adds a series and returns its slot.
    pub fn push(&mut self, series: Arc<Series>, current: LooseCurrent) -> u32 {
        let slot = u32::try_from(self.len).expect("series are bounded far below 2^32");
        if self.len.is_multiple_of(PART_LEN) {
            self.parts.push(LoosePart::default());
        }
        let part = self
            .parts
            .last_mut()
            .expect("added above if there was none");
        Arc::make_mut(&mut part.series).push(series);
        Arc::make_mut(&mut part.values).push(current);
        self.len += 1;
        slot
    }

    pub fn get(&self, slot: u32) -> &LooseCurrent {
        &self.parts[slot as usize / PART_LEN].values[slot as usize % PART_LEN]
    }

    pub fn get_mut(&mut self, slot: u32) -> &mut LooseCurrent {
        let values = &mut self.parts[slot as usize / PART_LEN].values;
        &mut Arc::make_mut(values)[slot as usize % PART_LEN]
    }

    pub fn series(&self, slot: u32) -> &Arc<Series> {
        &self.parts[slot as usize / PART_LEN].series[slot as usize % PART_LEN]
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, &Arc<Series>, &LooseCurrent)> {
        self.iter_from(0)
    }

    /// Iterates from a slot on.
    fn iter_from(&self, first: usize) -> impl Iterator<Item = (u32, &Arc<Series>, &LooseCurrent)> {
        let parts = self.parts.iter().enumerate().skip(first / PART_LEN);
        parts
            .flat_map(|(number, part)| {
                let slots = (number * PART_LEN) as u32..;
                slots.zip(part.series.iter().zip(part.values.iter()))
            })
            .map(|(slot, (series, current))| (slot, series, current))
            .skip(first % PART_LEN)
    }
}

impl LooseCurrent {
    /// Returns an entry without a value.
    pub fn none() -> LooseCurrent {
        let latest = Latest {
            value: 0.0,
            changed: Millis::MIN,
            seen: Millis::MIN,
        };
        LooseCurrent { latest, change: 0 }
    }

    /// Takes a point that is not ahead of the clock, unless a newer one is known. One that is ahead, because the clock
    /// was set back, is replaced.
    pub fn take(&mut self, (time, value): (Millis, f64), (change, now): (u64, Millis)) {
        if time < self.latest.seen && self.latest.seen <= now {
            return;
        }
        if value.to_bits() != self.latest.value.to_bits() || self.change == 0 {
            self.latest.value = value;
            self.latest.changed = time;
            self.change = change;
        }
        self.latest.seen = time;
    }

    pub fn is_live(&self, now: Millis) -> bool {
        now.saturating_sub(self.latest.seen) <= super::LOOSE_LIVE_MS
    }
}
