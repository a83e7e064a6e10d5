//! How metrics give up names that belong to another input.
//!
//! A name belongs to lanes before pushes and points, and to those before statsd: see [`crate::owners`]. A metric whose
//! name was claimed by such an input goes on with its value under the same name with the label `input`.

use std::collections::HashSet;

use pegel_metric::Input;

use super::admit::Naming;
use super::{Handle, Table};
use crate::gate::Gate;

impl Table {
    /// Renames all metrics whose names other inputs own, among those that were claimed; none: all are looked at.
    pub fn yield_names(&mut self, claimed: Option<&[Box<str>]>, gate: &Gate) {
        let owners = gate.owners();
        let must_yield = |at: Handle| {
            let series = self.seats.series(at)?;
            let input = series.family().input;
            owners.is_owned_by_other(series.text(), input).then_some(at)
        };
        let handles: HashSet<Handle> = match claimed {
            Some(texts) => texts
                .iter()
                .filter_map(|text| must_yield(self.seats.find(text)?))
                .collect(),
            None => self
                .seats
                .all()
                .filter_map(|(at, _)| must_yield(at))
                .collect(),
        };
        self.yield_entries(&handles, gate);
    }

    /// Renames the metric that has this series, unless it came by the push socket. Whether it did.
    pub(super) fn yield_entry_of(&mut self, at: Handle, gate: &Gate) -> bool {
        let series = self.seats.series(at);
        let is_pushed = series.is_some_and(|series| series.family().input == Input::Push);
        if !is_pushed {
            self.yield_entries(&HashSet::from([at]), gate);
        }
        !is_pushed
    }

    fn yield_entries(&mut self, handles: &HashSet<Handle>, gate: &Gate) {
        if handles.is_empty() {
            return;
        }
        for at in 0..self.entries.end() {
            let Some(entry) = self.entries.get(at) else {
                continue;
            };
            let length = self.figures.of(entry.kind).len() as Handle;
            if (entry.handle..entry.handle + length).any(|handle| handles.contains(&handle)) {
                self.yield_one(at, gate);
            }
        }
    }

    /// An entry that cannot be renamed, because of a limit or its own label `input`, ends: its next lines are refused.
    fn yield_one(&mut self, at: u32, gate: &Gate) {
        let entry = &self.entries[at];
        let (handle, payer, kind) = (entry.handle, entry.payer, entry.kind);
        let naming = Naming {
            with_type: !entry.is_plain,
            with_input: true,
        };
        let (name, tags) = self.name_and_tags(entry);
        let (name, tags) = (name.to_vec(), tags.to_vec());
        let sender = self.seats.sender(payer).clone();
        let row = self.offer((&name, &tags), kind, naming, &sender, gate);
        let key = match self.entries[at].key {
            Some(key) => Some(key),
            None => self.keys.add(&name, &tags),
        };
        // The pulse may not have seen the series of before.
        self.newcomers.retain(|newcomer| newcomer.entry != at);
        let (Ok(row), Some(key)) = (row, key) else {
            return self.remove(at);
        };
        let length = row.len();
        let series = row.iter().map(|one| one.series.clone()).collect();
        let (new_handle, new_payer) = self.seats.add(row);
        self.seats.remove(handle, length, payer);
        self.gone.push((handle, length));
        let entry = &mut self.entries[at];
        (entry.handle, entry.payer, entry.key) = (new_handle, new_payer, Some(key));
        if !std::mem::replace(&mut entry.is_dirty, true) {
            self.dirty.push(at);
        }
        self.introduce(at, series);
    }
}
