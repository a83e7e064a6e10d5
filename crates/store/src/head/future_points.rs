//! Points ahead of the clock. They are stored like all others, but each becomes the current value
//! of its series only when its time has come: with the next commit, or when a reader requests
//! current values.

use std::collections::{BTreeMap, HashSet};

use pegel_metric::Millis;

/// The most points tracked. Beyond that, the points furthest ahead are left out: they do not become
/// current by themselves.
const POINTS_MAX: usize = 65_536;

/// Points ahead of the clock, sorted by time and slot; at most [`POINTS_MAX`].
#[derive(Debug, Default)]
pub(crate) struct FuturePoints {
    points: BTreeMap<(Millis, u32), f64>,
}

impl FuturePoints {
    /// Adds a point, or replaces the one with this slot and time.
    pub(super) fn insert(&mut self, slot: u32, (time, value): (Millis, f64)) {
        self.points.insert((time, slot), value);
        if self.points.len() > POINTS_MAX {
            self.points.pop_last();
        }
    }

    /// Adds a point with lower precedence than the known ones: it replaces none.
    pub(super) fn insert_older(&mut self, slot: u32, (time, value): (Millis, f64)) {
        if !self.points.contains_key(&(time, slot)) {
            self.insert(slot, (time, value));
        }
    }

    pub(super) fn first_time(&self) -> Option<Millis> {
        self.points.first_key_value().map(|((time, _), _)| *time)
    }

    /// Removes and returns the first point whose time has come.
    pub(super) fn pop_due(&mut self, now: Millis) -> Option<(u32, (Millis, f64))> {
        let first = self.points.first_entry()?;
        let (time, slot) = *first.key();
        (time <= now).then(|| (slot, (time, first.remove())))
    }

    /// Returns the slots that have points ahead of the clock.
    pub(super) fn slots(&self) -> HashSet<u32> {
        self.points.keys().map(|(_, slot)| *slot).collect()
    }

    /// Returns the same points for other slots.
    pub(super) fn renumbered(&self, slot_of: impl Fn(u32) -> Option<u32>) -> FuturePoints {
        let renumber = |(&(time, slot), &value)| Some(((time, slot_of(slot)?), value));
        FuturePoints {
            points: self.points.iter().filter_map(renumber).collect(),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.points.len() * 48
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_without_end_are_bounded_and_the_nearest_stay() {
        let mut ahead = FuturePoints::default();
        for time in (0..100_000).rev() {
            ahead.insert(0, (time, 1.0));
        }
        assert_eq!(ahead.points.len(), POINTS_MAX);
        assert_eq!(ahead.pop_due(-1), None);
        assert_eq!(ahead.pop_due(0), Some((0, (0, 1.0))));
    }
}
