//! The open ticks of a parent: the contributions of its children, until a tick is complete or its
//! time is over.
//!
//! Contributions are kept apart until the tick closes, because a repeated one must replace the
//! earlier one.

use std::collections::BTreeMap;

use pegel_metric::Millis;

use crate::{Partial, TickCells};

/// What became of a contribution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutOutcome {
    /// It is part of an open tick.
    Open,
    /// It was ignored: the tick is closed, or a newer connection of the child contributed to it.
    Late,
    /// It was ignored: the tick is too far in the future.
    TooEarly,
    /// It was ignored: the open ticks have too much of this child.
    TooLarge,
}

/// The memory for the sketches of one child in all open ticks.
const CHILD_SKETCH_BYTES_MAX: usize = 64 << 20;

/// A tick after the last change to it.
#[derive(Debug, Clone, PartialEq)]
pub struct ClosedTick {
    pub time: Millis,
    /// The number of nodes whose values are included.
    pub nodes: u32,
    /// One partial result for each series key, sorted by key.
    pub partials: Vec<(u32, Partial)>,
    /// The expected children without a contribution.
    pub missing: Vec<u32>,
}

/// The open ticks of a parent.
///
/// Contributions have the key (child, epoch, tick). Of two contributions of a child to a tick, the
/// one with the higher epoch counts; with equal epochs, the later one. A closed tick never changes.
///
/// Ticks are at most `open_max` intervals newer than the last `latest` passed to
/// [`TickWindow::close`], which limits their number.
#[derive(Debug)]
pub struct TickWindow {
    interval_ms: i64,
    open_max: usize,
    /// Ticks at or before this time are closed.
    closed_until: Option<Millis>,
    /// The ticks after it. `None`: the tick was complete and is closed.
    ticks: BTreeMap<Millis, Option<OpenTick>>,
}

/// A tick that is closed and must be reduced.
#[derive(Debug)]
pub struct DueTick {
    time: Millis,
    tick: OpenTick,
    /// The expected children without a contribution.
    missing: Vec<u32>,
}

/// Contributions by child. Sorted: the rounding of sums does not depend on the order of arrival.
type OpenTick = BTreeMap<u32, ChildContribution>;

#[derive(Debug)]
struct ChildContribution {
    epoch: u64,
    nodes: u32,
    cells: TickCells,
}

const NO_POSITION: u32 = u32::MAX;

impl TickWindow {
    /// `open_max` includes the ticks that a fast clock of a child may be ahead.
    pub fn new(interval_ms: i64, open_max: usize) -> TickWindow {
        TickWindow {
            interval_ms: interval_ms.max(1),
            open_max: open_max.max(1),
            closed_until: None,
            ticks: BTreeMap::new(),
        }
    }

    /// Adds the contribution of a child to the tick at `time`, which is rounded down to a multiple
    /// of the interval.
    pub fn put(
        &mut self,
        child: u32,
        epoch: u64,
        time: Millis,
        nodes: u32,
        mut cells: TickCells,
    ) -> PutOutcome {
        let time = time.saturating_sub(time.rem_euclid(self.interval_ms));
        if self.closed_until.is_some_and(|until| time <= until) {
            return PutOutcome::Late;
        }
        let open = self.ticks.iter().filter(|(other, _)| **other != time);
        let open = open.filter_map(|(_, tick)| tick.as_ref()?.get(&child));
        let open: usize = open
            .map(|contribution| contribution.cells.sketch_bytes())
            .sum();
        if open.saturating_add(cells.sketch_bytes()) > CHILD_SKETCH_BYTES_MAX {
            return PutOutcome::TooLarge;
        }
        let is_new = !self.ticks.contains_key(&time);
        if is_new && (self.ticks.len() >= self.open_max || time > self.newest_allowed()) {
            return PutOutcome::TooEarly;
        }
        let tick = self
            .ticks
            .entry(time)
            .or_insert_with(|| Some(OpenTick::new()));
        let Some(tick) = tick else {
            return PutOutcome::Late;
        };
        if tick
            .get(&child)
            .is_some_and(|earlier| earlier.epoch > epoch)
        {
            return PutOutcome::Late;
        }
        cells.sort();
        let contribution = ChildContribution {
            epoch,
            nodes,
            cells,
        };
        tick.insert(child, contribution);
        PutOutcome::Open
    }

    /// Drops the contributions of a child to open ticks.
    pub fn remove_child(&mut self, child: u32) {
        for tick in self.ticks.values_mut().flatten() {
            tick.remove(&child);
        }
    }

    /// Closes and reduces ticks, see [`TickWindow::take_due`].
    pub fn close(&mut self, expected: &[u32], latest: Millis) -> Vec<ClosedTick> {
        let due = self.take_due(expected, latest);
        due.iter().map(DueTick::reduce).collect()
    }

    /// Closes every tick to which all of `expected` contributed, or whose time is at or before
    /// `latest`, and returns them in the order of time. A tick without any contribution does not
    /// exist. If `latest` goes back by more than the window (the clock was set), ticks open again.
    pub fn take_due(&mut self, expected: &[u32], latest: Millis) -> Vec<DueTick> {
        let span = self.span();
        let until = match self.closed_until {
            Some(until) if until.saturating_sub(latest) <= span => until.max(latest),
            _ => latest,
        };
        self.closed_until = Some(until);
        let newest = self.newest_allowed();
        self.ticks.retain(|time, _| *time <= newest);

        let mut due = Vec::new();
        for (&time, slot) in &mut self.ticks {
            let is_complete = |tick: &mut OpenTick| {
                tick.len() >= expected.len()
                    && expected.iter().all(|child| tick.contains_key(child))
            };
            if let Some(tick) = slot.take_if(|tick| time <= until || is_complete(tick)) {
                // Contributions of removed children leave empty ticks.
                if !tick.is_empty() {
                    let missing = expected.iter().filter(|child| !tick.contains_key(child));
                    let missing = missing.copied().collect();
                    due.push(DueTick {
                        time,
                        tick,
                        missing,
                    });
                }
            }
        }
        self.ticks.retain(|time, _| *time > until);
        due
    }

    /// Returns the number of open ticks.
    pub fn open_count(&self) -> usize {
        self.ticks.values().flatten().count()
    }

    fn span(&self) -> i64 {
        self.interval_ms.saturating_mul(self.open_max as i64)
    }

    /// Before the first `close` the time is not known, and only the number of ticks is limited.
    fn newest_allowed(&self) -> Millis {
        let until = self.closed_until;
        until.map_or(Millis::MAX, |until| until.saturating_add(self.span()))
    }
}

impl DueTick {
    /// Merges all contributions.
    pub fn reduce(&self) -> ClosedTick {
        let mut partials: Vec<(u32, Partial)> = Vec::new();
        // The position of each series key among the partial results.
        let mut positions = Vec::new();
        let mut nodes = 0u32;
        for contribution in self.tick.values() {
            nodes = nodes.saturating_add(contribution.nodes);
            for (key, value) in contribution.cells.gauges() {
                partial_of(key, &mut partials, &mut positions).add_value(*value);
            }
            for (key, (rate, total)) in contribution.cells.counters() {
                partial_of(key, &mut partials, &mut positions).add_counter(Some(*rate), *total);
            }
            for (key, partial) in contribution.cells.partials() {
                partial_of(key, &mut partials, &mut positions).merge(partial);
            }
        }
        partials.sort_unstable_by_key(|(key, _)| *key);
        ClosedTick {
            time: self.time,
            nodes,
            partials,
            missing: self.missing.clone(),
        }
    }
}

fn partial_of<'a>(
    key: u32,
    partials: &'a mut Vec<(u32, Partial)>,
    positions: &mut Vec<u32>,
) -> &'a mut Partial {
    let index = key as usize;
    if index >= positions.len() {
        positions.resize(index + 1, NO_POSITION);
    }
    if positions[index] == NO_POSITION {
        positions[index] = partials.len() as u32;
        partials.push((key, Partial::default()));
    }
    &mut partials[positions[index] as usize].1
}

#[cfg(test)]
mod tests;
