//! The loose series of a head: each has a slot, under which its points and its current value are found.

use std::collections::HashMap;
use std::sync::Arc;

use pegel_metric::{Ledger, Millis, Series};

use super::current::{LooseCurrent, LooseCurrents};
use super::loose::{LooseHead, Merge, Merged};

#[derive(Debug, Default)]
pub(crate) struct LooseTable {
    slots: HashMap<Arc<Series>, u32>,
    heads: Vec<LooseHead>,
    pub current: LooseCurrents,
    /// Slots with late points to merge. Merging is left to the owner, which may do it without holding a lock.
    crowded: Vec<u32>,
}

impl LooseTable {
    pub fn len(&self) -> usize {
        self.heads.len()
    }

    pub fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    pub fn contains(&self, series: &Arc<Series>) -> bool {
        self.slots.contains_key(series)
    }

    /// Slot, series and points of each.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Arc<Series>, &LooseHead)> {
        let heads = self.current.iter().zip(&self.heads);
        heads.map(|((slot, series, _), head)| (slot, series, head))
    }

    pub fn head(&self, slot: u32) -> &LooseHead {
        &self.heads[slot as usize]
    }

    pub fn append(
        &mut self,
        series: &Arc<Series>,
        (time, value): (Millis, f64),
        change: u64,
        ledger: &Ledger,
    ) {
        let slot = match self.slots.get(series) {
            Some(slot) => *slot,
            None => self.add(series.clone(), LooseCurrent::none()),
        };
        if time <= self.current.get(slot).latest.seen {
            ledger.out_of_order(1);
        }
        if self.put(slot, (time, value), change) {
            ledger.duplicate(1);
        }
    }

    /// Replaces the value of a point, if there is one of that time. Returns whether there was.
    pub fn overwrite(&mut self, slot: u32, (time, value): (Millis, f64), change: u64) -> bool {
        let is_known = time == self.current.get(slot).latest.seen
            || self.heads[slot as usize].has_point_at(time);
        if is_known {
            self.put(slot, (time, value), change);
        }
        is_known
    }

    fn add(&mut self, series: Arc<Series>, current: LooseCurrent) -> u32 {
        let slot = self.current.push(series.clone(), current);
        self.slots.insert(series, slot);
        self.heads.push(LooseHead::default());
        slot
    }

    /// Returns whether the point replaced one.
    fn put(&mut self, slot: u32, point: (Millis, f64), change: u64) -> bool {
        let head = &mut self.heads[slot as usize];
        let was_crowded = head.is_crowded();
        let is_duplicate = head.put(self.current.series(slot), point);
        if head.is_crowded() && !was_crowded {
            self.crowded.push(slot);
        }
        self.current.get_mut(slot).take(point, change);
        is_duplicate
    }

    /// The slots that have late points to merge; they are forgotten here.
    pub fn take_crowded(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.crowded)
    }

    /// A merge to be done by the caller, who gives its outcome to [`LooseTable::merged`] before any other change.
    pub fn merge(&self, slot: u32) -> (Arc<Series>, Merge) {
        (self.current.series(slot).clone(), self.head(slot).merge())
    }

    /// Returns what the outcome replaces, to be dropped when no lock is held.
    pub fn merged(&mut self, slot: u32, merged: Merged) -> LooseHead {
        self.heads[slot as usize].merged(merged)
    }

    /// How many late points that were not merged replace another.
    pub fn late_duplicates(&self) -> u64 {
        self.heads.iter().map(LooseHead::late_duplicates).sum()
    }

    /// Merges all late points that are due, here and now.
    pub fn merge_crowded(&mut self) {
        for slot in self.take_crowded() {
            let (series, merge) = self.merge(slot);
            self.merged(slot, merge.run(&series));
        }
    }

    /// An empty table that knows the same current values of the series that are live.
    pub fn successor(&self, now: Millis) -> LooseTable {
        let mut table = LooseTable::default();
        for (_, series, current) in self.current.iter().filter(|(.., c)| c.is_live(now)) {
            table.add(series.clone(), *current);
        }
        table
    }

    pub fn bytes(&self) -> usize {
        let heads = self.iter();
        heads
            .map(|(_, series, head)| head.bytes() + series.text().len() + 160)
            .sum()
    }
}
