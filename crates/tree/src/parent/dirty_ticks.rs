//! The times whose reduced values must be computed again: a child was away, or its values came
//! after the tick was closed.

use std::collections::BTreeMap;

use pegel_metric::Millis;

/// The most ticks. The oldest are given up.
const DIRTY_MAX: usize = 100_000;

/// Dirty ticks, each with the time at which it was marked last.
#[derive(Debug, Default)]
pub(crate) struct DirtyTicks {
    ticks: BTreeMap<Millis, Millis>,
}

impl DirtyTicks {
    /// Marks the multiples of `interval` in `from..=to`.
    pub(crate) fn mark(&mut self, from: Millis, to: Millis, interval: Millis, now: Millis) {
        let oldest = to.saturating_sub(interval.saturating_mul(DIRTY_MAX as i64));
        let from = from.max(oldest);
        let mut tick = from + (interval - from.rem_euclid(interval)) % interval;
        while tick <= to {
            self.ticks.insert(tick, now);
            tick += interval;
        }
        while self.ticks.len() > DIRTY_MAX {
            self.ticks.pop_first();
        }
    }

    /// Takes the oldest ticks that were marked at or before `marked_until` and are not after
    /// `until`: at most `count`, within `count` intervals. Ticks before `from` are given up.
    pub(crate) fn take(
        &mut self,
        from: Millis,
        until: Millis,
        marked_until: Millis,
        count: usize,
        interval: Millis,
    ) -> Vec<Millis> {
        self.ticks = self.ticks.split_off(&from);
        let due = self
            .ticks
            .iter()
            .filter(|(_, marked)| **marked <= marked_until);
        let mut due = due.map(|(tick, _)| *tick).take_while(|tick| *tick <= until);
        let Some(first) = due.next() else {
            return Vec::new();
        };
        let last = first.saturating_add(interval.saturating_mul(count as i64 - 1));
        let mut taken = vec![first];
        taken.extend(due.take_while(|tick| *tick <= last));
        for tick in &taken {
            self.ticks.remove(tick);
        }
        taken
    }

    pub(crate) fn len(&self) -> usize {
        self.ticks.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_taken_in_order_and_in_ranges() {
        let mut dirty = DirtyTicks::default();
        dirty.mark(1_500, 5_000, 1_000, 10);
        dirty.mark(9_000, 9_999, 1_000, 20);
        dirty.mark(3_000, 3_000, 1_000, 30);
        assert_eq!(dirty.len(), 5);
        assert!(dirty.take(0, 100_000, 5, 60, 1_000).is_empty());
        assert_eq!(dirty.take(0, 100_000, 10, 2, 1_000), [2_000]);
        assert_eq!(dirty.take(0, 4_000, 30, 60, 1_000), [3_000, 4_000]);
        assert_eq!(dirty.take(0, 100_000, 30, 3, 1_000), [5_000]);
        assert!(dirty.take(9_500, 100_000, 30, 3, 1_000).is_empty());
        assert_eq!(dirty.len(), 0, "too old");
    }

    #[test]
    fn the_number_of_ticks_is_limited() {
        let mut dirty = DirtyTicks::default();
        dirty.mark(0, i64::MAX / 2, 1_000, 0);
        assert!(dirty.len() <= DIRTY_MAX);
    }
}
