//! The samples of one tick group in memory: closed runs, then an open tail.
//!
//! The tail is row by row, as ticks arrive: appending is one copy. When it is full its columns are
//! encoded into a run. A change of members closes the tail; so does a step back in time, because
//! the times of a run only grow.

use std::collections::HashMap;
use std::sync::Arc;

use pegel_metric::{GroupRow, Ledger, Members, Millis, Selector, Series};

use crate::question::Latest;
use crate::run::{Effort, Owner, Run, bit, set_bit};

use super::shadow::Shadowed;

/// Rows in a full tail, fewer for groups so wide that this would take more than TAIL_BYTES.
const TAIL_ROWS: usize = 256;
const TAIL_BYTES: usize = 4 << 20;

#[derive(Debug)]
pub(crate) struct GroupHead {
    members: Arc<Members>,
    closed: Vec<Arc<Run>>,
    tail: Tail,
    current: Current,
    pub(super) shadowed: Shadowed,
}

#[derive(Debug, Default)]
struct Tail {
    times: Vec<Millis>,
    /// Row after row, one value for each member.
    values: Vec<f64>,
    /// Row after row, one bit for each member.
    present: Vec<u64>,
}

/// The last row, and when each of its values was taken on.
#[derive(Debug, Clone, Default)]
struct Current {
    time: Millis,
    present: Vec<u64>,
    bits: Vec<u64>,
    changed: Vec<Millis>,
    change: Vec<u64>,
}

impl GroupHead {
    pub fn new(members: Arc<Members>) -> GroupHead {
        let current = Current::new(members.series.len());
        GroupHead {
            members,
            closed: Vec::new(),
            tail: Tail::default(),
            current,
            shadowed: Shadowed::default(),
        }
    }

    /// Whether these members are some version of this group.
    pub fn is(&self, members: &Arc<Members>) -> bool {
        Arc::ptr_eq(&self.members, members) || self.members.group == members.group
    }

    pub fn members(&self) -> &Arc<Members> {
        &self.members
    }

    pub fn is_live(&self, now: Millis) -> bool {
        now.saturating_sub(self.current.time) <= self.members.live_for
    }

    pub fn append(&mut self, time: Millis, row: &GroupRow, change: u64, ledger: &Ledger) {
        self.show(time, row, change);
        if let Some(&last) = self.tail.times.last()
            && time <= last
        {
            let count = row.present_count();
            ledger.out_of_order(count);
            if self.has_row_at(time) {
                ledger.duplicate(count);
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
    pub fn show(&mut self, time: Millis, row: &GroupRow, change: u64) {
        if !Arc::ptr_eq(&self.members, &row.members) {
            self.close_tail();
            self.current = self.current.moved(&self.members, &row.members);
            self.members = row.members.clone();
            self.shadowed = Shadowed::default();
        }
        self.current.take(time, row, change);
    }

    fn tail_rows(&self) -> usize {
        (TAIL_BYTES / 8 / self.members.series.len().max(1)).clamp(16, TAIL_ROWS)
    }

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

    fn close_tail(&mut self) {
        if let Some(run) = self.tail.to_run(&self.members) {
            self.closed.push(run);
            self.tail.times.clear();
            self.tail.values.clear();
            self.tail.present.clear();
        }
    }

    pub fn successor(&self) -> GroupHead {
        GroupHead {
            members: self.members.clone(),
            closed: Vec::new(),
            tail: Tail::default(),
            current: self.current.clone(),
            shadowed: Shadowed::default(),
        }
    }

    pub fn runs(&self) -> impl Iterator<Item = Arc<Run>> + '_ {
        self.closed
            .iter()
            .cloned()
            .chain(self.tail.to_run(&self.members))
    }

    pub fn closed(&self) -> &[Arc<Run>] {
        &self.closed
    }

    /// The times of the open tail.
    pub fn tail_times(&self) -> &[Millis] {
        &self.tail.times
    }

    /// The open tail's samples of one member.
    pub fn tail_samples(&self, member: usize) -> impl Iterator<Item = (Millis, f64)> + '_ {
        let width = self.members.series.len();
        let words = width.div_ceil(64);
        let rows = self.tail.times.iter().enumerate();
        rows.filter(move |(row, _)| bit(&self.tail.present[row * words..], member))
            .map(move |(row, &time)| (time, self.tail.values[row * width + member]))
    }

    /// The time of the current row.
    pub fn time(&self) -> Millis {
        self.current.time
    }

    /// Whether a member is part of the current row.
    pub fn is_present(&self, member: usize) -> bool {
        bit(&self.current.present, member)
    }

    /// The current row, one value for each member that is part of it.
    pub fn values(&self) -> impl Iterator<Item = Option<f64>> + '_ {
        let bits = self.current.bits.iter().enumerate();
        bits.map(|(index, &bits)| self.is_present(index).then(|| f64::from_bits(bits)))
    }

    /// Visits the members of the current row, except those that are newer elsewhere: `older`, sorted.
    pub fn latest(
        &self,
        selector: &Selector,
        after: u64,
        older: &[usize],
        visit: &mut dyn FnMut(&Arc<Series>, Latest),
    ) {
        for (index, series) in self.members.series.iter().enumerate() {
            if self.current.change[index] > after
                && bit(&self.current.present, index)
                && older.binary_search(&index).is_err()
                && selector.matches(series)
            {
                let latest = Latest {
                    value: f64::from_bits(self.current.bits[index]),
                    changed: self.current.changed[index],
                    seen: self.current.time,
                };
                visit(series, latest);
            }
        }
    }

    pub fn bytes(&self) -> usize {
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

impl Tail {
    fn to_run(&self, members: &Arc<Members>) -> Option<Arc<Run>> {
        if self.times.is_empty() {
            return None;
        }
        let rows = self.times.len();
        let width = members.series.len();
        let words = width.div_ceil(64);
        let mut run = Run::new(Owner::Group(members.clone()), &self.times);
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
            run.add_column(member as u32, &values, Some(&present), Effort::Quick);
        }
        Some(run.finish())
    }
}

impl Current {
    fn new(width: usize) -> Current {
        Current {
            time: Millis::MIN,
            present: vec![0; width.div_ceil(64)],
            bits: vec![0; width],
            changed: vec![0; width],
            change: vec![0; width],
        }
    }

    fn take(&mut self, time: Millis, row: &GroupRow, change: u64) {
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

    /// The same values under other members, so that a series keeps the time of its last change.
    fn moved(&self, from: &Members, to: &Members) -> Current {
        let places: HashMap<&str, usize> = from
            .series
            .iter()
            .enumerate()
            .map(|(index, series)| (series.text(), index))
            .collect();
        let mut moved = Current::new(to.series.len());
        moved.time = self.time;
        for (index, series) in to.series.iter().enumerate() {
            if let Some(&old) = places.get(series.text()) {
                moved.bits[index] = self.bits[old];
                moved.changed[index] = self.changed[old];
                moved.change[index] = self.change[old];
                if bit(&self.present, old) {
                    set_bit(&mut moved.present, index);
                }
            }
        }
        moved
    }
}
