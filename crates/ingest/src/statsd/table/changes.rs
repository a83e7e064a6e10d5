//! What the pulse takes out, in small pieces: reading goes on between two of them.

use std::sync::Arc;

use pegel_metric::Series;
use pegel_wire::statsd::Type;

use super::super::figures::Figure;
use super::seats::Handle;
use super::{Sum, Table};
use crate::senders::SAMPLE_BYTES;

/// A series that the pulse has not seen yet.
#[derive(Debug)]
pub(crate) struct Newcomer {
    pub entry: u32,
    pub handle: Handle,
    pub figure: Figure,
    /// Whether it goes on from its total before a restart.
    pub resumes: bool,
    pub series: Arc<Series>,
}

/// A new value of a series; none where it has none any more.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Change {
    pub handle: Handle,
    pub value: Option<f64>,
}

impl Table {
    pub fn take_newcomers(&mut self) -> Vec<Newcomer> {
        std::mem::take(&mut self.newcomers)
    }

    pub fn has_newcomers(&self) -> bool {
        !self.newcomers.is_empty()
    }

    /// Adds what a total was before a restart.
    pub fn resume(&mut self, entry: u32, figure: Figure, before: f64) {
        let Some(kind) = self.entries.get(entry).map(|entry| entry.kind) else {
            return;
        };
        let entry = &mut self.entries[entry];
        let sum: &mut Sum = match (kind, figure) {
            (Type::Timer | Type::Histogram | Type::Distribution, Figure::Count) => {
                &mut self.timers[entry.inner].count
            }
            (Type::Timer | Type::Histogram | Type::Distribution, _) => {
                &mut self.timers[entry.inner].sum
            }
            _ => &mut entry.value,
        };
        *sum = sum.plus(before).unwrap_or(*sum);
        if self.figures.counts_increase() && figure == Figure::Value {
            self.marks[entry.inner].total = before;
        }
    }

    /// Moves delayed entries to the front of the next pass.
    pub fn resume_delayed(&mut self) {
        self.dirty.append(&mut self.delayed);
    }

    /// Totals and gauges that changed, of at most `entries` entries. False when there are no more.
    pub fn take_changes(&mut self, entries: usize, out: &mut Vec<Change>) -> bool {
        let start = self.dirty.len().saturating_sub(entries);
        for index in start..self.dirty.len() {
            let at = self.dirty[index];
            // It may have been deleted, and its number may be another's by now.
            let Some(entry) = self.entries.get(at).filter(|entry| entry.is_dirty) else {
                continue;
            };
            let figures = self.figures.of(entry.kind).iter();
            let totals = figures
                .filter(|figure| figure.is_published_each_tick())
                .count();
            let sender = self.seats.sender(entry.payer);
            if !sender.take_bytes(SAMPLE_BYTES * totals as u64) {
                // It keeps its value, and further lines are added to it.
                sender.add_delayed(1);
                self.delayed.push(at);
                continue;
            }
            for (figure, handle) in self.figures.of(entry.kind).iter().zip(entry.handle..) {
                let value = match figure {
                    Figure::Value => entry.value.value(),
                    Figure::Count => self.timers[entry.inner].count.value(),
                    Figure::Sum => self.timers[entry.inner].sum.value(),
                    _ => continue,
                };
                out.push(Change {
                    handle,
                    value: Some(value),
                });
            }
            self.entries[at].is_dirty = false;
        }
        self.dirty.truncate(start);
        start > 0
    }

    /// Ends the interval of at most `entries` entries from number `from` on. Returns where to go on.
    pub fn close(&mut self, from: u32, entries: u32, out: &mut Vec<Change>) -> Option<u32> {
        let end = self.entries.end().min(from.saturating_add(entries));
        for at in from..end {
            let Some(entry) = self.entries.get(at) else {
                continue;
            };
            if !entry.is_touched && self.figures.deletes_idle(entry.kind) {
                self.remove(at);
                continue;
            }
            self.close_one(at, out);
            self.entries[at].is_touched = false;
        }
        if end < self.entries.end() {
            return Some(end);
        }
        self.cumulative.flush();
        if self.keys.is_wasteful() {
            self.keys.squeeze(
                self.entries
                    .iter_mut()
                    .filter_map(|entry| entry.key.as_mut()),
            );
        }
        None
    }

    fn close_one(&mut self, at: u32, out: &mut Vec<Change>) {
        let entry = &self.entries[at];
        if entry.is_touched {
            // An interval ends once, so its values cannot wait; later writes of the sender do.
            let figures = self.figures.of(entry.kind).iter();
            let of_interval = figures
                .filter(|figure| !figure.is_published_each_tick())
                .count();
            let sender = self.seats.sender(entry.payer);
            sender.charge(SAMPLE_BYTES * of_interval as u64);
        }
        let handles = entry.handle..;
        match entry.kind {
            Type::Gauge => {}
            Type::Counter | Type::Cumulative | Type::Meter => {
                if self.figures.counts_increase() {
                    let total = entry.value.value();
                    let before = std::mem::replace(&mut self.marks[entry.inner].total, total);
                    out.push(Change {
                        handle: entry.handle + 1,
                        value: Some(total - before),
                    });
                }
            }
            Type::Set => out.push(Change {
                handle: entry.handle,
                value: Some(self.sets[entry.inner].close(&mut self.budget)),
            }),
            Type::Timer | Type::Histogram | Type::Distribution => {
                let figures = self.figures.of(entry.kind).iter().zip(handles);
                let Some(interval) = self.timers[entry.inner].close() else {
                    let of_interval =
                        figures.filter(|(f, _)| !matches!(f, Figure::Count | Figure::Sum));
                    out.extend(of_interval.map(|(_, handle)| Change {
                        handle,
                        value: None,
                    }));
                    return;
                };
                interval.give_back(&mut self.budget);
                let mut first_percentile = entry.handle;
                for (figure, handle) in figures {
                    let value = match figure {
                        Figure::Min => interval.min,
                        Figure::Max => interval.max,
                        Figure::Percentile(0) => {
                            first_percentile = handle;
                            continue;
                        }
                        _ => continue,
                    };
                    out.push(Change {
                        handle,
                        value: Some(value),
                    });
                }
                interval.percentiles(&self.figures.percents, &mut |at, value| {
                    out.push(Change {
                        handle: first_percentile + at as Handle,
                        value: Some(value),
                    });
                });
            }
        }
    }

    /// Series that are gone, by their first number and how many they are in a row.
    pub fn take_gone(&mut self) -> Vec<(Handle, usize)> {
        std::mem::take(&mut self.gone)
    }

    /// Numbers that the pulse has let go may be used again.
    pub fn reuse(&mut self, gone: &[(Handle, usize)]) {
        for &(first, length) in gone {
            self.seats.reuse(first, length);
        }
    }
}
