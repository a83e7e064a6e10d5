//! Moves values from the table to the store: changes at each tick, and statistics of intervals when
//! they end.
//!
//! The program sampler calls [`StatsdSource`] at each tick. It copies what changed into its
//! [`CurrentValues`] and emits the rows. The table is locked for a bounded number of entries at a
//! time, so that receiving threads never wait long.

use std::sync::Arc;
use std::time::Duration;

use pegel_metric::{Input, Millis, Series, Tick};

use super::line_batch::StatsdContext;
use super::net::KernelDropCounter;
use super::table::{ChangedWriters, SeriesHandle, SeriesValueChange};
use crate::admission::{Admission, with_input_label};
use crate::current_values::{CurrentValues, ValueSlot};
use crate::point_writer::PointWriter;
use crate::program_sampler::ValueSource;
use crate::reserved_names::USER_LABEL;
use crate::senders::{Sender, UNKNOWN_SENDER, account_of};

/// The number of entries processed while the table is locked: about ten microseconds.
const ENTRIES_PER_LOCK: usize = 1024;
/// The same where intervals end and percentiles are computed.
const CLOSED_ENTRIES_PER_LOCK: u32 = 128;

#[derive(Debug)]
pub(crate) struct StatsdSource {
    shared: Arc<StatsdContext>,
    kernel_drops: Vec<KernelDropCounter>,
    points: Arc<PointWriter>,
    values: CurrentValues,
    /// The slot of each series of the table in the current values.
    slots: Vec<Option<ValueSlot>>,
    changes: Vec<SeriesValueChange>,
    flush: Millis,
    /// The number of the open interval.
    interval: Option<Millis>,
    /// The number of intervals that ended.
    closed_intervals: u64,
}

impl StatsdSource {
    pub(super) fn new(
        shared: Arc<StatsdContext>,
        drops: Vec<KernelDropCounter>,
        points: Arc<PointWriter>,
        mut values: CurrentValues,
        flush: Duration,
        now: Millis,
    ) -> StatsdSource {
        values.publish_restored(now, |series, account| {
            let sender = restored_sender(&shared.admission, series, account);
            shared.admission.charge_restored(&sender, series)
        });
        rename_restored(&mut values, &shared.admission);
        StatsdSource {
            shared,
            kernel_drops: drops,
            points,
            values,
            slots: Vec::new(),
            changes: Vec::new(),
            flush: Millis::try_from(flush.as_millis())
                .unwrap_or(Millis::MAX)
                .max(1),
            interval: None,
            closed_intervals: 0,
        }
    }

    /// Renames metrics whose names other inputs claimed.
    fn rename_claimed(&mut self) {
        loop {
            self.add_new_series();
            let mut table = self.shared.table();
            // All series must have a slot before some are removed.
            if table.has_new_series() {
                continue;
            }
            let claimed = self.shared.admission.name_owners().take_claimed();
            if claimed.as_ref().is_some_and(Vec::is_empty) {
                return;
            }
            table.rename_claimed(claimed.as_deref(), &self.shared.admission);
            let gone = table.take_removed();
            drop(table);
            self.remove_gone(&gone);
            return rename_restored(&mut self.values, &self.shared.admission);
        }
    }

    /// Takes totals and gauges of these writers that changed.
    fn take_changes(&mut self, writers: ChangedWriters) {
        loop {
            self.add_new_series();
            let more = {
                let mut table = self.shared.table();
                // A series added between the two locks has changes but no slot yet.
                if table.has_new_series() {
                    continue;
                }
                table.take_changes(writers, ENTRIES_PER_LOCK, &mut self.changes)
            };
            self.apply_changes();
            if !more {
                return;
            }
        }
    }

    fn add_new_series(&mut self) {
        loop {
            let added = self.shared.table().take_new_series();
            if added.is_empty() {
                return;
            }
            let mut resumed = Vec::new();
            for new_series in added {
                let sender = Some(&new_series.sender);
                let (place, before) = self.values.add(new_series.series, sender);
                let at = new_series.handle as usize;
                if self.slots.len() <= at {
                    self.slots.resize(at + 1, None);
                }
                self.slots[at] = Some(place);
                if let Some(before) = before.filter(|_| new_series.resumes) {
                    resumed.push((new_series.entry, new_series.figure, before));
                }
            }
            for (entry, figure, before) in resumed {
                self.shared.table().resume(entry, figure, before);
            }
        }
    }

    fn apply_changes(&mut self) {
        for change in self.changes.drain(..) {
            let Some(Some(place)) = self.slots.get(change.handle as usize) else {
                continue;
            };
            match change.value {
                Some(value) => self.values.set(*place, value),
                None => self.values.clear(*place),
            }
        }
    }

    /// Ends the interval of every metric, and removes the series of metrics that were deleted.
    fn close_interval(&mut self) {
        let mut next = Some(0);
        while let Some(from) = next {
            let gone: Vec<(SeriesHandle, usize)> = {
                let mut table = self.shared.table();
                next = table.close_intervals(from, CLOSED_ENTRIES_PER_LOCK, &mut self.changes);
                table.take_removed()
            };
            self.apply_changes();
            self.remove_gone(&gone);
        }
        self.closed_intervals += 1;
        // The first interval began before this agent started.
        if self.closed_intervals == 2 {
            let table = self.shared.table();
            let figures = table.figures();
            self.values
                .remove_restored(|series| figures.deletes_idle_series(series.name()));
        }
    }

    fn remove_gone(&mut self, gone: &[(SeriesHandle, usize)]) {
        if gone.is_empty() {
            return;
        }
        for &(first, length) in gone {
            let end = self.slots.len().min(first as usize + length);
            for place in &mut self.slots[(first as usize).min(end)..end] {
                if let Some(place) = place.take() {
                    self.values.remove(place);
                }
            }
        }
        self.shared.table().reuse(gone);
    }
}

/// Returns the sender of a total from before a restart. Where its group has no account, because an
/// older agent stored it, the label `user` names the sender of a push.
fn restored_sender(admission: &Admission, series: &Series, account: Option<&str>) -> Arc<Sender> {
    let input = series.family().input;
    if let Some(account) = account {
        return admission.sender(input, account);
    }
    let user = series.labels().find(|(key, _)| *key == USER_LABEL);
    let is_pushed = input == Input::Push;
    let account = is_pushed.then(|| account_of(user.as_ref().map(|(_, user)| &**user)));
    admission.sender(
        input,
        account.flatten().as_deref().unwrap_or(UNKNOWN_SENDER),
    )
}

/// Renames totals from before a restart whose names other inputs own, as their metrics will be
/// renamed.
fn rename_restored(values: &mut CurrentValues, admission: &Admission) {
    let owners = admission.name_owners();
    values.rename_restored(
        |series| {
            let is_owned = owners.is_owned_by_other(series.text(), series.family().input);
            is_owned.then(|| with_input_label(series).ok().map(Arc::new))?
        },
        |sender, series| admission.charge_restored(sender, series),
    );
}

impl ValueSource for StatsdSource {
    fn update(&mut self, tick: &mut Tick) {
        for drops in &mut self.kernel_drops {
            drops.record(&self.shared.admission);
        }
        self.shared
            .timed_gauges
            .write_queued(&self.points, tick.time);
        self.rename_claimed();
        self.shared.table().resume_delayed();
        self.take_changes(ChangedWriters::Pushes);
        self.take_changes(ChangedWriters::Statsd);
        let interval = tick.time.div_euclid(self.flush);
        if self
            .interval
            .replace(interval)
            .is_some_and(|open| open != interval)
        {
            self.close_interval();
        }
        self.values.emit(tick);
    }

    /// Lines on the push socket are acknowledged. Every changed value of a push has a sender that
    /// waits for it.
    fn update_awaited(&mut self, tick: &mut Tick) {
        self.rename_claimed();
        self.take_changes(ChangedWriters::Pushes);
        self.values.emit_awaited(tick);
    }
}
