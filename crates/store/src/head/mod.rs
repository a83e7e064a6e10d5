//! The head: the newest samples in memory, and the current value of every live series.
//!
//! The writer appends to the one active head, after the samples are in the log. At most a few
//! frozen heads wait for maintenance to write them to blocks; they no longer change. Each head
//! belongs to the log segments from which it can be rebuilt: those are removed only when its block
//! is durable.

mod current_values;
mod future_points;
mod group;
mod overlap;
mod ungrouped;
mod ungrouped_table;

use std::sync::Arc;

use pegel_metric::{GroupRow, Ledger, Millis, Point};

pub(crate) use current_values::{CurrentValuesSnapshot, UngroupedCurrentValues};
pub(crate) use group::GroupHead;
pub(crate) use ungrouped::{UngroupedPoints, sort_keep_last};
pub(crate) use ungrouped_table::UngroupedTable;

use crate::sample_run::SampleRun;

/// An ungrouped series without a new point for this long is no longer current.
pub(crate) const UNGROUPED_LIVE_MS: Millis = 5 * 60 * 1000;

#[derive(Debug, Default)]
pub(crate) struct Head {
    pub groups: Vec<GroupHead>,
    pub ungrouped: UngroupedTable,
    /// Counts commits, so that a reader can request what changed since its last read.
    pub changes: u64,
    /// The times of the oldest and newest sample in this head.
    pub span: Option<(Millis, Millis)>,
    /// The number of this head within the process; a successor has the next one.
    pub number: u64,
}

impl Head {
    /// Appends a row of a group and makes its values current.
    pub(crate) fn append_row(&mut self, time: Millis, row: &GroupRow, ledger: &Ledger) {
        let change = self.changes;
        let group = self.group_of(row);
        self.groups[group].append(time, row, change, ledger);
        if !self.ungrouped.is_empty() {
            self.overwrite_points(group, time, row, ledger);
        }
        self.extend_span(time);
    }

    /// Sets the current values from a row without keeping its samples.
    pub(crate) fn set_current_row(&mut self, time: Millis, row: &GroupRow) {
        let change = self.changes;
        let group = self.group_of(row);
        self.groups[group].set_current(time, row, change);
    }

    /// Returns the index of the group of a row; adds the group if it is new.
    fn group_of(&mut self, row: &GroupRow) -> usize {
        // Most rows have the same members as the row before: comparing pointers finds them.
        // Hundreds of groups are common where programs send their own metrics.
        let same = |group: &GroupHead| Arc::ptr_eq(group.members(), &row.members);
        let known = self.groups.iter().position(same);
        let known = known.or_else(|| {
            self.groups
                .iter()
                .position(|group| group.is_same_group(&row.members))
        });
        known.unwrap_or_else(|| {
            self.groups.push(GroupHead::new(row.members.clone()));
            self.groups.len() - 1
        })
    }

    /// Adds a point of an ungrouped series, whose slot may be known, and makes it current unless it
    /// is ahead of the clock or older.
    pub(crate) fn append_points(
        &mut self,
        points: &[Point],
        slots: &[Option<u32>],
        now: Millis,
        ledger: &Ledger,
    ) {
        let change = (self.changes, now);
        self.ungrouped.append(points, slots, change, ledger);
        for point in points {
            self.extend_span(point.time);
        }
    }

    /// Makes the next due point current that was ahead of the clock. Returns whether there was one.
    pub(crate) fn show_due_point(&mut self, now: Millis) -> bool {
        self.ungrouped.show_due_point(self.changes, now)
    }

    fn extend_span(&mut self, time: Millis) {
        let (min, max) = self.span.unwrap_or((time, time));
        self.span = Some((min.min(time), max.max(time)));
    }

    /// Returns an empty head with the same current values.
    pub(crate) fn successor(&self, now: Millis) -> Head {
        Head {
            groups: self
                .groups
                .iter()
                .filter(|group| group.is_live(now))
                .map(GroupHead::successor)
                .collect(),
            ungrouped: self.ungrouped.successor(now),
            changes: self.changes,
            span: None,
            number: self.number + 1,
        }
    }

    /// Returns a snapshot of the current values. Clones pointers only: a few per group and per 256
    /// ungrouped series.
    pub(crate) fn current(&self) -> CurrentValuesSnapshot {
        CurrentValuesSnapshot {
            groups: self.groups.iter().map(GroupHead::current).collect(),
            ungrouped: self.ungrouped.current.clone(),
            changes: self.changes,
        }
    }

    /// Returns the number of series that count against the limit.
    pub(crate) fn series_count(&self) -> usize {
        self.ungrouped.len()
            + self
                .groups
                .iter()
                .map(|group| group.members().series.len())
                .sum::<usize>()
    }

    pub(crate) fn bytes(&self) -> usize {
        let groups: usize = self.groups.iter().map(GroupHead::bytes).sum();
        groups + self.ungrouped.bytes()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.span.is_none()
    }

    /// Returns all samples as runs, oldest first within each owner; for writing a block.
    pub(crate) fn runs(&self) -> Vec<Arc<SampleRun>> {
        let mut runs: Vec<Arc<SampleRun>> = self.groups.iter().flat_map(GroupHead::runs).collect();
        let mut ungrouped: Vec<_> = self.ungrouped.iter().collect();
        ungrouped.sort_unstable_by_key(|(_, series, _)| *series);
        runs.extend(
            ungrouped
                .into_iter()
                .flat_map(|(_, series, ungrouped)| ungrouped.runs(series)),
        );
        runs
    }
}
