//! The samples of one group in memory: closed runs, then an open tail.
//!
//! The tail is stored row by row, as ticks arrive, so that appending is one copy. When it is full,
//! its columns are encoded into a run. A change of members closes the tail; so does a step back in
//! time, because the times of a run are strictly increasing.

use std::sync::Arc;

use pegel_metric::{GroupRow, GroupSeries, Ledger, Millis, STALE_NAN};

use crate::sample_run::{EncodingEffort, RunOwner, SampleRun, bit, set_bit};

use super::current_values::{CurrentGroup, CurrentRow, OverlappingMembers};

/// Rows in a full tail; fewer for groups so wide that this would exceed TAIL_BYTES.
const TAIL_ROWS: usize = 256;
const TAIL_BYTES: usize = 4 << 20;

#[derive(Debug)]
pub(crate) struct GroupHead {
    members: Arc<GroupSeries>,
    /// Append-only.
    closed: Arc<Vec<Arc<SampleRun>>>,
    tail: UnencodedRows,
    current: Arc<CurrentRow>,
    pub(super) overlapping: OverlappingMembers,
}

#[derive(Debug, Default)]
struct UnencodedRows {
    times: Vec<Millis>,
    /// Row after row, one value for each member.
    values: Vec<f64>,
    /// Row after row, one bit for each member.
    present: Vec<u64>,
}

impl GroupHead {
    pub(crate) fn new(members: Arc<GroupSeries>) -> GroupHead {
        let current = CurrentRow::new(members.series.len());
        GroupHead {
            members,
            closed: Arc::default(),
            tail: UnencodedRows::default(),
            current: Arc::new(current),
            overlapping: OverlappingMembers::default(),
        }
    }

    /// Returns whether these members are a version of this group.
    pub(crate) fn is_same_group(&self, members: &Arc<GroupSeries>) -> bool {
        Arc::ptr_eq(&self.members, members) || self.members.group == members.group
    }

    pub(crate) fn members(&self) -> &Arc<GroupSeries> {
        &self.members
    }

    pub(crate) fn is_live(&self, now: Millis) -> bool {
        now.saturating_sub(self.current.time) <= self.members.stale_after
    }

    /// Appends a row and makes it current. A row that is not newer than the last one closes the
    /// tail first.
    pub(crate) fn append(&mut self, time: Millis, row: &GroupRow, change: u64, ledger: &Ledger) {
        self.set_current(time, row, change);
        if let Some(&last) = self.tail.times.last()
            && time <= last
        {
            let count = row.present_count();
            ledger.add_out_of_order(count);
            if self.has_row_at(time) {
                ledger.add_duplicates(count);
            }
            self.close_tail();
        }
        self.tail.times.push(time);
        self.tail.values.extend_from_slice(&row.values);
        self.tail.present.extend_from_slice(&row.present);
        if self.tail.times.len() >= self.tail_rows() {
            self.close_tail();
        }
    }

    /// Makes `row` the current one. A new version of the members closes the tail.
    pub(crate) fn set_current(&mut self, time: Millis, row: &GroupRow, change: u64) {
        if !Arc::ptr_eq(&self.members, &row.members) {
            self.close_tail();
            self.current = Arc::new(self.current.remapped(&self.members, &row.members));
            self.members = row.members.clone();
            self.overlapping = OverlappingMembers::default();
        }
        Arc::make_mut(&mut self.current).take(time, row, change);
    }

    fn tail_rows(&self) -> usize {
        (TAIL_BYTES / 8 / self.members.series.len().max(1)).clamp(16, TAIL_ROWS)
    }

    /// Returns whether there is a row at this time. May decode the times of a run: only for late
    /// rows.
    fn has_row_at(&self, time: Millis) -> bool {
        self.tail.times.binary_search(&time).is_ok()
            || self.closed.iter().any(|run| {
                run.min <= time
                    && time <= run.max
                    && run
                        .decode_times()
                        .is_ok_and(|times| times.binary_search(&time).is_ok())
            })
    }

    /// Encodes the tail as a run and empties it.
    fn close_tail(&mut self) {
        if let Some(run) = self.tail.to_run(&self.members) {
            Arc::make_mut(&mut self.closed).push(run);
            self.tail.times.clear();
            self.tail.values.clear();
            self.tail.present.clear();
        }
    }

    /// Returns an empty group with the same current values.
    pub(crate) fn successor(&self) -> GroupHead {
        GroupHead {
            members: self.members.clone(),
            closed: Arc::default(),
            tail: UnencodedRows::default(),
            current: self.current.clone(),
            overlapping: OverlappingMembers::default(),
        }
    }

    /// Returns all samples as runs, the tail last.
    pub(crate) fn runs(&self) -> impl Iterator<Item = Arc<SampleRun>> + '_ {
        self.closed
            .iter()
            .cloned()
            .chain(self.tail.to_run(&self.members))
    }

    pub(crate) fn closed(&self) -> &Arc<Vec<Arc<SampleRun>>> {
        &self.closed
    }

    /// Returns the times of the open tail.
    pub(crate) fn tail_times(&self) -> &[Millis] {
        &self.tail.times
    }

    /// Returns the open tail's samples of one member. With `marks_absence`, the first of several
    /// rows without it is returned as [`STALE_NAN`].
    pub(crate) fn tail_samples(
        &self,
        member: usize,
        marks_absence: bool,
    ) -> impl Iterator<Item = (Millis, f64)> + '_ {
        let width = self.members.series.len();
        let words = width.div_ceil(64);
        let rows = self.tail.times.iter().enumerate();
        let mut was_absent = !marks_absence;
        rows.filter_map(move |(row, &time)| {
            if bit(&self.tail.present[row * words..], member) {
                was_absent = !marks_absence;
                return Some((time, self.tail.values[row * width + member]));
            }
            let is_first = !std::mem::replace(&mut was_absent, true);
            is_first.then_some((time, STALE_NAN))
        })
    }

    pub(crate) fn current(&self) -> CurrentGroup {
        CurrentGroup {
            members: self.members.clone(),
            row: self.current.clone(),
            overlapping: self.overlapping.clone(),
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        let width = self.members.series.len();
        let texts: usize = self
            .members
            .series
            .iter()
            .map(|series| series.text().len() + 64)
            .sum();
        let closed: usize = self.closed.iter().map(|run| run.bytes()).sum();
        closed
            + self.tail.values.capacity() * 8
            + self.tail.present.capacity() * 8
            + width * 24
            + texts
    }
}

impl UnencodedRows {
    fn to_run(&self, members: &Arc<GroupSeries>) -> Option<Arc<SampleRun>> {
        if self.times.is_empty() {
            return None;
        }
        let rows = self.times.len();
        let width = members.series.len();
        let words = width.div_ceil(64);
        let mut run = SampleRun::new(RunOwner::Group(members.clone()), &self.times);
        let mut values: Vec<f64> = Vec::with_capacity(rows);
        let mut present = vec![0u64; rows.div_ceil(64)];
        for member in 0..width {
            values.clear();
            present.fill(0);
            for row in 0..rows {
                if bit(&self.present[row * words..], member) {
                    values.push(self.values[row * width + member]);
                    set_bit(&mut present, row);
                }
            }
            run.add_column(
                member as u32,
                &values,
                Some(&present),
                EncodingEffort::Quick,
            );
        }
        Some(run.finish())
    }
}
