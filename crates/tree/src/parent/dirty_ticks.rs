//! The times whose reduced values must be computed again: a child was away, or its values came
//! after the tick was closed. A tick stays here until it was computed and stored, so that a copy of
//! this list on disk (see `backfill_file`) is complete at any time.

use std::collections::BTreeMap;

use pegel_metric::Millis;

/// The most ticks. The oldest are given up.
const DIRTY_MAX: usize = 100_000;
/// A tick that is marked again and again is computed this long after the first mark.
const POSTPONED_MAX: Millis = 60 * 1000;

/// A range of ticks, both ends included.
pub(crate) type TickRange = (Millis, Millis);

#[derive(Debug, Clone, Copy)]
struct DirtyTick {
    first_marked: Millis,
    /// When it was marked last, or the time before which it is not tried again.
    last_marked: Millis,
}

#[derive(Debug, Default)]
pub(crate) struct DirtyTicks {
    ticks: BTreeMap<Millis, DirtyTick>,
}

/// Which ticks are due.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DueTicks {
    /// Older ticks are given up.
    pub(crate) oldest: Millis,
    /// Only ticks after this time: without the nodes that are away, earlier ones would have less
    /// than before.
    pub(crate) after: Millis,
    pub(crate) until: Millis,
    /// Marks may come in quick succession: the time to wait after the last one.
    pub(crate) settle: Millis,
    /// The most ticks, all within as many intervals.
    pub(crate) count: usize,
}

impl DirtyTicks {
    /// Marks the multiples of `interval` in `from..=to`.
    pub(crate) fn mark(&mut self, from: Millis, to: Millis, interval: Millis, now: Millis) {
        let oldest = to.saturating_sub(interval.saturating_mul(DIRTY_MAX as i64));
        let from = from.max(oldest);
        let mut tick = from + (interval - from.rem_euclid(interval)) % interval;
        while tick <= to {
            let new = DirtyTick {
                first_marked: now,
                last_marked: now,
            };
            self.ticks.entry(tick).or_insert(new).last_marked = now;
            tick += interval;
        }
        while self.ticks.len() > DIRTY_MAX {
            self.ticks.pop_first();
        }
    }

    /// Returns the oldest ticks that are due. They stay in the list.
    pub(crate) fn due(&mut self, due: &DueTicks, now: Millis, interval: Millis) -> Vec<Millis> {
        if self
            .ticks
            .first_key_value()
            .is_some_and(|(tick, _)| *tick < due.oldest)
        {
            self.ticks = self.ticks.split_off(&due.oldest);
        }
        let after = due.after.saturating_add(1);
        if after > due.until {
            return Vec::new();
        }
        let is_due = |dirty: &DirtyTick| {
            let is_overdue = now - dirty.first_marked >= POSTPONED_MAX;
            dirty.last_marked <= now - if is_overdue { 0 } else { due.settle }
        };
        let ticks = self.ticks.range(after..=due.until);
        let mut ticks = ticks
            .filter(|(_, dirty)| is_due(dirty))
            .map(|(tick, _)| *tick);
        let Some(first) = ticks.next() else {
            return Vec::new();
        };
        let last = first.saturating_add(interval.saturating_mul(due.count as i64 - 1));
        let mut found = vec![first];
        found.extend(ticks.take_while(|tick| *tick <= last));
        found
    }

    /// Removes ticks that were computed, unless they were marked at or after `since`.
    pub(crate) fn done(&mut self, ticks: &[Millis], since: Millis) {
        for tick in ticks {
            if self
                .ticks
                .get(tick)
                .is_some_and(|dirty| dirty.last_marked < since)
            {
                self.ticks.remove(tick);
            }
        }
    }

    /// Tries ticks again from `time` on.
    pub(crate) fn postpone(&mut self, ticks: &[Millis], time: Millis) {
        for tick in ticks {
            if let Some(dirty) = self.ticks.get_mut(tick) {
                dirty.last_marked = dirty.last_marked.max(time);
            }
        }
    }

    /// Returns how long ago the tick was marked first.
    pub(crate) fn age(&self, tick: Millis, now: Millis) -> Millis {
        self.ticks
            .get(&tick)
            .map_or(0, |dirty| now - dirty.first_marked)
    }

    pub(crate) fn len(&self) -> usize {
        self.ticks.len()
    }

    /// Returns all ticks as ranges.
    pub(crate) fn ranges(&self, interval: Millis) -> Vec<TickRange> {
        ranges(self.ticks.keys().copied(), interval)
    }
}

/// Joins rising ticks to ranges.
pub(crate) fn ranges(ticks: impl Iterator<Item = Millis>, interval: Millis) -> Vec<TickRange> {
    let mut found: Vec<TickRange> = Vec::new();
    for tick in ticks {
        match found.last_mut() {
            Some((_, last)) if tick - *last <= interval => *last = tick,
            _ => found.push((tick, tick)),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: DueTicks = DueTicks {
        oldest: 0,
        after: -1,
        until: 100_000,
        settle: 0,
        count: 60,
    };

    #[test]
    fn ticks_are_due_in_order_and_in_ranges_until_they_are_done() {
        let mut dirty = DirtyTicks::default();
        dirty.mark(1_500, 5_000, 1_000, 10);
        dirty.mark(9_000, 9_999, 1_000, 20);
        dirty.mark(3_000, 3_000, 1_000, 30);
        assert_eq!(dirty.ranges(1_000), [(2_000, 5_000), (9_000, 9_000)]);
        let mut due = |due: DueTicks, now| dirty.due(&due, now, 1_000);
        assert!(due(ALL, 5).is_empty(), "marked later");
        assert_eq!(
            due(DueTicks { settle: 15, ..ALL }, 30),
            [2_000, 4_000, 5_000]
        );
        assert_eq!(due(DueTicks { count: 2, ..ALL }, 30), [2_000, 3_000]);
        assert_eq!(
            due(
                DueTicks {
                    after: 3_000,
                    ..ALL
                },
                30
            ),
            [4_000, 5_000, 9_000]
        );
        assert_eq!(
            due(
                DueTicks {
                    until: 2_500,
                    ..ALL
                },
                30
            ),
            [2_000]
        );
        dirty.done(&[2_000, 3_000], 30);
        assert_eq!(
            dirty.ranges(1_000)[0],
            (3_000, 5_000),
            "3000 was marked at 30"
        );
        dirty.postpone(&[3_000, 4_000], 1_000);
        let late = DueTicks {
            until: 5_000,
            ..ALL
        };
        assert_eq!(dirty.due(&late, 999, 1_000), [5_000]);
        assert_eq!(dirty.due(&late, 1_000, 1_000), [3_000, 4_000, 5_000]);
        let old = DueTicks {
            oldest: 9_500,
            ..ALL
        };
        assert!(dirty.due(&old, 2_000, 1_000).is_empty());
        assert_eq!(dirty.len(), 0, "too old");
    }

    #[test]
    fn a_tick_that_is_marked_again_and_again_is_computed() {
        let mut dirty = DirtyTicks::default();
        let due = DueTicks {
            settle: 3_000,
            ..ALL
        };
        for now in (0..POSTPONED_MAX).step_by(1_000) {
            dirty.mark(5_000, 5_000, 1_000, now);
            assert!(dirty.due(&due, now + 500, 1_000).is_empty(), "at {now}");
        }
        assert_eq!(dirty.due(&due, POSTPONED_MAX, 1_000), [5_000]);
    }

    #[test]
    fn the_number_of_ticks_is_limited() {
        let mut dirty = DirtyTicks::default();
        dirty.mark(0, i64::MAX / 2, 1_000, 0);
        assert!(dirty.len() <= DIRTY_MAX);
    }
}
