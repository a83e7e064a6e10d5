//! The ungrouped series of a head. Each series has a slot: the index of its points and of its
//! current value.

use std::collections::HashMap;
use std::sync::Arc;

use pegel_metric::{Ledger, Millis, Point, Series};

use super::current_values::{UngroupedCurrentValue, UngroupedCurrentValues};
use super::future_points::FuturePoints;
use super::ungrouped::{LateMerge, MergedRuns, UngroupedHead};
use crate::input_class::InputClass;

#[derive(Debug, Default)]
pub(crate) struct UngroupedTable {
    slots: HashMap<Arc<Series>, u32>,
    heads: Vec<UngroupedHead>,
    /// The number of derived series.
    derived: usize,
    pub current: UngroupedCurrentValues,
    ahead: FuturePoints,
    /// Slots with late points to merge. The owner merges them, and can do so without holding a
    /// lock.
    due_merges: Vec<u32>,
    /// A buffer of [`UngroupedTable::append`].
    shown: Vec<(u32, (Millis, f64))>,
}

impl UngroupedTable {
    pub(crate) fn len(&self) -> usize {
        self.heads.len()
    }

    pub(crate) fn derived_len(&self) -> usize {
        self.derived
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    /// Returns the slot of a known series.
    pub(crate) fn slot_of(&self, series: &Arc<Series>) -> Option<u32> {
        self.slots.get(series).copied()
    }

    /// Returns the slot of a known series that probably has this slot, because senders repeat their
    /// series in the same order. Then the table of slots, which is large, is not searched.
    pub(crate) fn slot_near(&self, series: &Arc<Series>, probable: u32) -> Option<u32> {
        let is_there = self.current.find_series(probable);
        if is_there.is_some_and(|known| Arc::ptr_eq(known, series)) {
            return Some(probable);
        }
        self.slot_of(series)
    }

    /// Reads what [`UngroupedTable::append`] will change, for several series in a row. The
    /// processor then loads it from memory for all of them at once, not one after the other.
    pub(crate) fn load_ahead(&self, slots: impl Iterator<Item = Option<u32>>) {
        let heads = slots
            .flatten()
            .filter_map(|slot| self.heads.get(slot as usize));
        let newest = heads.filter_map(UngroupedHead::newest);
        std::hint::black_box(newest.fold(0, Millis::wrapping_add));
    }

    /// Iterates over slot, series and points.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Arc<Series>, &UngroupedHead)> {
        let heads = self.current.iter().zip(&self.heads);
        heads.map(|((slot, series, _), head)| (slot, series, head))
    }

    pub(crate) fn head(&self, slot: u32) -> &UngroupedHead {
        &self.heads[slot as usize]
    }

    /// Adds points of series, whose slots may be known, with the number of the change and the time
    /// of the clock.
    pub(crate) fn append(
        &mut self,
        points: &[Point],
        slots: &[Option<u32>],
        at: (u64, Millis),
        ledger: &Ledger,
    ) {
        let mut shown = std::mem::take(&mut self.shown);
        for (point, slot) in points.iter().zip(slots) {
            let (time, value) = (point.time, point.value);
            let slot = slot.unwrap_or_else(|| self.slot(&point.series));
            let newest = self.heads[slot as usize].newest();
            if newest.max(Some(self.current.get(slot).latest.last_sampled)) >= Some(time) {
                ledger.add_out_of_order(1);
            }
            if self.put(slot, (time, value)) {
                ledger.add_duplicates(1);
            }
            if time > at.1 {
                self.ahead.insert(slot, (time, value));
            } else {
                shown.push((slot, (time, value)));
            }
        }
        self.current.take(&shown, at);
        shown.clear();
        self.shown = shown;
    }

    fn slot(&mut self, series: &Arc<Series>) -> u32 {
        match self.slots.get(series) {
            Some(slot) => *slot,
            None => self.add(series.clone(), UngroupedCurrentValue::none()),
        }
    }

    /// Returns the time of the current value of a known series.
    pub(crate) fn seen(&self, series: &Arc<Series>) -> Option<Millis> {
        let slot = self.slots.get(series)?;
        Some(self.current.get(*slot).latest.last_sampled)
    }

    /// Adds a point from a block that is ahead of the clock, unless this head has one of that time.
    pub(crate) fn restore_ahead(&mut self, series: &Arc<Series>, point: (Millis, f64)) {
        let slot = self.slot(series);
        self.ahead.insert_older(slot, point);
    }

    /// Makes a point from a block current if it is newer than all points of this head.
    pub(crate) fn restore_current(
        &mut self,
        series: &Arc<Series>,
        point: (Millis, f64),
        now: Millis,
    ) {
        if let Some(&slot) = self.slots.get(series)
            && self.current.get(slot).latest.last_sampled < point.0
        {
            self.current.get_mut(slot).take(point, (1, now));
        }
    }

    pub(crate) fn has_due_point(&self, now: Millis) -> bool {
        self.ahead.first_time().is_some_and(|time| time <= now)
    }

    pub(crate) fn show_due_point(&mut self, change: u64, now: Millis) -> bool {
        let due = self.ahead.pop_due(now);
        if let Some((slot, point)) = due {
            self.current.get_mut(slot).take(point, (change, now));
        }
        due.is_some()
    }

    /// Replaces the value of the point at that time. Returns whether there was one.
    pub(crate) fn overwrite(
        &mut self,
        slot: u32,
        (time, value): (Millis, f64),
        change: u64,
    ) -> bool {
        let is_known = time == self.current.get(slot).latest.last_sampled
            || self.heads[slot as usize].has_point_at(time);
        if is_known {
            self.put(slot, (time, value));
            self.current
                .get_mut(slot)
                .take((time, value), (change, time));
        }
        is_known
    }

    fn add(&mut self, series: Arc<Series>, current: UngroupedCurrentValue) -> u32 {
        self.derived += usize::from(InputClass::of(&series) == InputClass::Derived);
        let slot = self.current.push(series.clone(), current);
        self.slots.insert(series, slot);
        self.heads.push(UngroupedHead::default());
        slot
    }

    /// Adds a point. Returns whether it replaced one.
    fn put(&mut self, slot: u32, point: (Millis, f64)) -> bool {
        let head = &mut self.heads[slot as usize];
        let needed_merge = head.needs_merge();
        let is_duplicate = head.put(self.current.series(slot), point);
        if head.needs_merge() && !needed_merge {
            self.due_merges.push(slot);
        }
        is_duplicate
    }

    /// Takes the list of slots that have late points to merge.
    pub(crate) fn take_due_merges(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.due_merges)
    }

    /// Prepares a merge. The caller runs it and passes the result to
    /// [`UngroupedTable::apply_merge`] before any other change.
    pub(crate) fn prepare_merge(&self, slot: u32) -> (Arc<Series>, LateMerge) {
        (
            self.current.series(slot).clone(),
            self.head(slot).prepare_merge(),
        )
    }

    /// Applies the result of a merge. Returns what it replaces, to be dropped when no lock is held.
    pub(crate) fn apply_merge(&mut self, slot: u32, merged: MergedRuns) -> UngroupedHead {
        self.heads[slot as usize].apply_merge(merged)
    }

    /// Counts the late points not merged yet that replace another.
    pub(crate) fn late_duplicates(&self) -> u64 {
        self.heads.iter().map(UngroupedHead::late_duplicates).sum()
    }

    /// Runs all merges that are due.
    pub(crate) fn merge_all_due(&mut self) {
        for slot in self.take_due_merges() {
            let (series, merge) = self.prepare_merge(slot);
            self.apply_merge(slot, merge.run(&series));
        }
    }

    /// Returns a table without points that keeps the current values of live series, and points
    /// ahead of the clock.
    pub(crate) fn successor(&self, now: Millis) -> UngroupedTable {
        let mut table = UngroupedTable::default();
        let ahead = self.ahead.slots();
        let mut slots = HashMap::with_capacity(ahead.len());
        for (slot, series, current) in self.current.iter() {
            let is_ahead = ahead.contains(&slot);
            if current.is_live(now) || is_ahead {
                let new = table.add(series.clone(), *current);
                slots.extend(is_ahead.then_some((slot, new)));
            }
        }
        table.ahead = self.ahead.renumbered(|slot| slots.get(&slot).copied());
        table
    }

    pub(crate) fn bytes(&self) -> usize {
        let heads = self.iter();
        heads
            .map(|(_, series, head)| head.bytes() + series.text().len() + 160)
            .sum::<usize>()
            + self.ahead.bytes()
    }
}
