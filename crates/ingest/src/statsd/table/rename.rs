//! Renames metrics whose names belong to another input.
//!
//! Lanes take precedence over pushes and points, and those over statsd: see [`crate::name_owners`].
//! A metric whose name was claimed by such an input keeps its value and continues under the same
//! name with the label `input`.

use std::collections::HashSet;

use pegel_metric::Input;

use super::admit::{DisambiguatingLabels, charge_key};
use super::{SeriesHandle, StatsdTable};
use crate::admission::Admission;

impl StatsdTable {
    /// Renames the metrics whose names other inputs own. Only the `claimed` names are checked;
    /// `None`: all names.
    pub(crate) fn rename_claimed(&mut self, claimed: Option<&[Box<str>]>, admission: &Admission) {
        let owners = admission.name_owners();
        let must_rename = |at: SeriesHandle| {
            let series = self.series.series(at)?;
            let input = series.family().input;
            owners.is_owned_by_other(series.text(), input).then_some(at)
        };
        let handles: HashSet<SeriesHandle> = match claimed {
            Some(texts) => texts
                .iter()
                .filter_map(|text| must_rename(self.series.find(text)?))
                .collect(),
            None => self
                .series
                .all()
                .filter_map(|(at, _)| must_rename(at))
                .collect(),
        };
        self.rename_entries(&handles, admission);
    }

    /// Renames the metric that has this series, unless it came over the push socket. Returns
    /// whether it was renamed.
    pub(super) fn rename_entry_of(&mut self, at: SeriesHandle, admission: &Admission) -> bool {
        let series = self.series.series(at);
        let is_pushed = series.is_some_and(|series| series.family().input == Input::Push);
        if !is_pushed {
            self.rename_entries(&HashSet::from([at]), admission);
        }
        !is_pushed
    }

    fn rename_entries(&mut self, handles: &HashSet<SeriesHandle>, admission: &Admission) {
        if handles.is_empty() {
            return;
        }
        for at in 0..self.entries.end() {
            let Some(entry) = self.entries.get(at) else {
                continue;
            };
            let length = self.figures.for_type(entry.kind).len() as SeriesHandle;
            if (entry.handle..entry.handle + length).any(|handle| handles.contains(&handle)) {
                self.rename_entry(at, admission);
            }
        }
    }

    /// Renames an entry. One that cannot be renamed, because of a limit, is removed: its next
    /// lines are refused.
    fn rename_entry(&mut self, at: u32, admission: &Admission) {
        let entry = &self.entries[at];
        let (handle, permit, kind) = (entry.handle, entry.permit, entry.kind);
        let naming = DisambiguatingLabels {
            with_type: !entry.is_plain,
            with_input: true,
        };
        let (name, tags) = self.name_and_tags(entry);
        let (name, tags) = (name.to_vec(), tags.to_vec());
        let charged_before = self.charged_key_bytes(entry.key, handle);
        let sender = self.series.sender(permit).clone();
        let row = self.admit_series((&name, &tags), kind, naming, &sender, admission);
        let row = row.ok().and_then(|mut row| {
            let key_bytes = name.len() + tags.len();
            let charged = charge_key(&mut row, key_bytes, charged_before, admission);
            charged.is_ok().then_some(row)
        });
        let key = match self.entries[at].key {
            Some(key) => Some(key),
            None => self.keys.add(&name, &tags),
        };
        // The old series may still be queued for the next pass.
        self.new_series.retain(|new_series| new_series.entry != at);
        let (Some(row), Some(key)) = (row, key) else {
            return self.remove(at);
        };
        let length = row.len();
        let series = row.iter().map(|one| one.series.clone()).collect();
        let (new_handle, new_permit) = self.series.add(row);
        // Both permits are those of the sender.
        let charged = self.charged_key_bytes(Some(key), new_handle);
        let released = charged_before.saturating_sub(charged);
        self.series.release_key(permit, released);
        self.series.remove(handle, length, permit);
        self.removed.push((handle, length));
        let entry = &mut self.entries[at];
        (entry.handle, entry.permit, entry.key) = (new_handle, new_permit, Some(key));
        self.mark_dirty(at);
        self.queue_new_series(at, series);
    }
}
