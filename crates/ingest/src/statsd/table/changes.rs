//! The side of the table that the program sampler calls: takes out changes and ends intervals, a
//! bounded number of entries at a time. Receiving continues between two calls.

use std::sync::Arc;

use pegel_metric::Series;
use pegel_wire::statsd::StatsdType;

use super::super::statistics::Statistic;
use super::series_slots::SeriesHandle;
use super::{CompensatedSum, StatsdTable};
use crate::senders::{SAMPLE_BYTES, Sender};

/// A series that the program sampler has not seen yet.
#[derive(Debug)]
pub(crate) struct NewSeries {
    pub entry: u32,
    pub handle: SeriesHandle,
    pub figure: Statistic,
    /// Whether it continues from its total before a restart.
    pub resumes: bool,
    pub series: Arc<Series>,
    /// The sender to which it is charged.
    pub sender: Arc<Sender>,
}

/// The writers whose changes a pass takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangedWriters {
    /// Lines over statsd's own sockets. They are charged now; what their sender may not write yet
    /// is delayed.
    Statsd,
    /// Pushes. They were charged when their lines were accepted.
    Pushes,
}

/// A new value of a series; `None` if it no longer has one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SeriesValueChange {
    pub handle: SeriesHandle,
    pub value: Option<f64>,
}

impl StatsdTable {
    pub(crate) fn take_new_series(&mut self) -> Vec<NewSeries> {
        std::mem::take(&mut self.new_series)
    }

    pub(crate) fn has_new_series(&self) -> bool {
        !self.new_series.is_empty()
    }

    /// Adds the total from before a restart.
    pub(crate) fn resume(&mut self, entry: u32, figure: Statistic, before: f64) {
        let Some(kind) = self.entries.get(entry).map(|entry| entry.kind) else {
            return;
        };
        let entry = &mut self.entries[entry];
        let sum: &mut CompensatedSum = match (kind, figure) {
            (
                StatsdType::Timer | StatsdType::Histogram | StatsdType::Distribution,
                Statistic::Count,
            ) => &mut self.timers[entry.state_index].count,
            (StatsdType::Timer | StatsdType::Histogram | StatsdType::Distribution, _) => {
                &mut self.timers[entry.state_index].sum
            }
            _ => &mut entry.value,
        };
        *sum = sum.plus(before).unwrap_or(*sum);
        if self.figures.counts_increase() && figure == Statistic::Value {
            self.counter_states[entry.state_index].total = before;
        }
    }

    /// Moves delayed entries to the front of the next pass.
    pub(crate) fn resume_delayed(&mut self) {
        self.dirty.append(&mut self.delayed);
    }

    /// Returns the bytes that are charged for one row of an entry of this type.
    pub(super) fn sample_bytes(&self, kind: StatsdType) -> u64 {
        let figures = self.figures.for_type(kind).iter();
        let totals = figures.filter(|figure| figure.is_published_each_tick());
        SAMPLE_BYTES * totals.count() as u64
    }

    /// Takes totals and gauges that changed, of at most `entries` entries. Returns false when there
    /// are no more.
    pub(crate) fn take_changes(
        &mut self,
        writers: ChangedWriters,
        entries: usize,
        out: &mut Vec<SeriesValueChange>,
    ) -> bool {
        let changed = match writers {
            ChangedWriters::Statsd => &mut self.dirty,
            ChangedWriters::Pushes => &mut self.dirty_pushes,
        };
        let start = changed.len().saturating_sub(entries);
        let has_more = start > 0;
        for at in changed.split_off(start) {
            // The entry may have been deleted, and its number reused.
            let Some(entry) = self.entries.get(at).filter(|entry| entry.is_dirty) else {
                continue;
            };
            let sender = self.series.sender(entry.permit);
            let bytes = self.sample_bytes(entry.kind);
            if writers == ChangedWriters::Statsd && !sender.try_charge(bytes) {
                // The entry keeps its value, and further lines add to it.
                sender.add_delayed(1);
                self.delayed.push(at);
                continue;
            }
            for (figure, handle) in self.figures.for_type(entry.kind).iter().zip(entry.handle..) {
                let value = match figure {
                    Statistic::Value => entry.value.value(),
                    Statistic::Count => self.timers[entry.state_index].count.value(),
                    Statistic::Sum => self.timers[entry.state_index].sum.value(),
                    _ => continue,
                };
                out.push(SeriesValueChange {
                    handle,
                    value: Some(value),
                });
            }
            self.entries[at].is_dirty = false;
        }
        has_more
    }

    /// Ends the interval of at most `entries` entries, starting at number `from`. Returns where to
    /// continue.
    pub(crate) fn close_intervals(
        &mut self,
        from: u32,
        entries: u32,
        out: &mut Vec<SeriesValueChange>,
    ) -> Option<u32> {
        let end = self.entries.end().min(from.saturating_add(entries));
        for at in from..end {
            let Some(entry) = self.entries.get(at) else {
                continue;
            };
            if !entry.is_touched && self.figures.deletes_idle(entry.kind) {
                self.remove(at);
                continue;
            }
            self.close_interval(at, out);
            self.entries[at].is_touched = false;
        }
        if end < self.entries.end() {
            return Some(end);
        }
        self.cumulative.flush();
        if self.keys.needs_compaction() {
            self.keys.compact(
                self.entries
                    .iter_mut()
                    .filter_map(|(_, entry)| entry.key.as_mut()),
            );
        }
        None
    }

    fn close_interval(&mut self, at: u32, out: &mut Vec<SeriesValueChange>) {
        let entry = &self.entries[at];
        if entry.is_touched {
            // An interval ends once, so its values cannot be delayed; later writes of the sender
            // are.
            let figures = self.figures.for_type(entry.kind).iter();
            let of_interval = figures
                .filter(|figure| !figure.is_published_each_tick())
                .count();
            let sender = self.series.sender(entry.permit);
            sender.charge(SAMPLE_BYTES * of_interval as u64);
        }
        let handles = entry.handle..;
        match entry.kind {
            StatsdType::Gauge => {}
            StatsdType::Counter | StatsdType::Cumulative | StatsdType::Meter => {
                if self.figures.counts_increase() {
                    let total = entry.value.value();
                    let before =
                        std::mem::replace(&mut self.counter_states[entry.state_index].total, total);
                    out.push(SeriesValueChange {
                        handle: entry.handle + 1,
                        value: Some(total - before),
                    });
                }
            }
            StatsdType::Set => out.push(SeriesValueChange {
                handle: entry.handle,
                value: Some(self.sets[entry.state_index].close(&mut self.budget)),
            }),
            StatsdType::Timer | StatsdType::Histogram | StatsdType::Distribution => {
                let figures = self.figures.for_type(entry.kind).iter().zip(handles);
                let Some(interval) = self.timers[entry.state_index].close_interval() else {
                    let of_interval =
                        figures.filter(|(f, _)| !matches!(f, Statistic::Count | Statistic::Sum));
                    out.extend(of_interval.map(|(_, handle)| SeriesValueChange {
                        handle,
                        value: None,
                    }));
                    return;
                };
                interval.give_back(&mut self.budget);
                let mut first_percentile = entry.handle;
                for (figure, handle) in figures {
                    let value = match figure {
                        Statistic::Min => interval.min,
                        Statistic::Max => interval.max,
                        Statistic::Percentile(0) => {
                            first_percentile = handle;
                            continue;
                        }
                        _ => continue,
                    };
                    out.push(SeriesValueChange {
                        handle,
                        value: Some(value),
                    });
                }
                interval.percentiles(&self.figures.percents, &mut |at, value| {
                    out.push(SeriesValueChange {
                        handle: first_percentile + at as SeriesHandle,
                        value: Some(value),
                    });
                });
            }
        }
    }

    /// Takes the removed series, as rows: their first number and their count.
    pub(crate) fn take_removed(&mut self) -> Vec<(SeriesHandle, usize)> {
        std::mem::take(&mut self.removed)
    }

    /// Makes numbers reusable that the program sampler has released.
    pub(crate) fn reuse(&mut self, gone: &[(SeriesHandle, usize)]) {
        for &(first, length) in gone {
            self.series.reuse(first, length);
        }
    }
}
