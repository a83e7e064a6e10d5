//! How a metric that was not seen before gets its series.

use std::sync::Arc;

use pegel_metric::{Reason, Series};
use pegel_wire::statsd::{Metric, Type};

use super::changes::Newcomer;
use super::set::Set;
use super::sum::Sum;
use super::timer::Timer;
use super::{Entry, Handle, Mark, Table, Tagged, Writer};
use crate::gate::{Admitted, Gate, Offer};
use crate::owners::INPUT_LABEL;
use crate::reserved::{STATSD_TYPE_LABEL, USER_LABEL};
use crate::senders::Sender;

/// Programs' own metrics are level 1.
pub(crate) const LEVEL: u8 = 1;

/// The labels that distinguish a metric's series from others of the same name.
#[derive(Debug, Clone, Copy)]
pub(super) struct Naming {
    /// Adds `statsd_type`: another type has the name.
    pub with_type: bool,
    /// Adds `input`: another input has the name.
    pub with_input: bool,
}

impl Table {
    /// All series of the metric, or none of them.
    #[cold]
    pub(super) fn admit(
        &mut self,
        hash: u64,
        metric: &Metric<'_>,
        tags: &[u8],
        (writer, sender): (Writer, &Arc<Sender>),
        gate: &Gate,
    ) -> Result<u32, Reason> {
        let mut naming = Naming {
            with_type: !self.may_be_plain(metric.name, tags, metric.kind, writer),
            with_input: false,
        };
        loop {
            let offered = self.offer((metric.name, tags), metric.kind, naming, sender, gate);
            let taken = match offered {
                Ok(row) => {
                    let row = self.enter(hash, metric, tags, (naming, writer), row);
                    return row.map_err(Taken::reason);
                }
                Err(taken) => taken,
            };
            match taken {
                Taken::ByInput if !naming.with_input => naming.with_input = true,
                // A pushed metric takes precedence over one whose lines came another way.
                Taken::By(other)
                    if writer != Writer::STATSD && self.rename_entry_of(other, gate) => {}
                // Another metric has one of these series: `a.count` and the timer `a`, or because of a rule.
                Taken::By(_) if !naming.with_type => naming.with_type = true,
                other => return Err(other.reason()),
            }
        }
    }

    /// The first type of a name has it without a label.
    fn may_be_plain(&self, name: &[u8], tags: &[u8], kind: Type, writer: Writer) -> bool {
        let has_plain = |other: Type| {
            let hash = self.hash(name, &[], other, writer);
            let entry = self.find(hash, name, &[], other, writer);
            entry.is_some_and(|at| self.entries[at].is_plain)
        };
        let tagged = self.tagged.get(&self.tagged_hash(name, writer));
        match tagged {
            // Also for lines without tags: the name is what must not have two types.
            Some(tagged) if tagged.kind != kind => false,
            Some(_) if !tags.is_empty() => true,
            _ => !Type::ALL
                .iter()
                .any(|&other| other != kind && has_plain(other)),
        }
    }

    fn tagged_hash(&self, name: &[u8], writer: Writer) -> u64 {
        let name = self.secret.hash(name);
        self.secret.join(name, u64::from(writer.0))
    }

    /// Requests admission for all series of a metric.
    pub(super) fn offer(
        &self,
        (name, tags): (&[u8], &[u8]),
        kind: Type,
        naming: Naming,
        sender: &Arc<Sender>,
        gate: &Gate,
    ) -> Result<Vec<Admitted>, Taken> {
        let bad = |_| Taken::No(Reason::BadName);
        let mut name = std::str::from_utf8(name).map_err(bad)?.to_owned();
        let tags = std::str::from_utf8(tags).map_err(bad)?;
        let labels: Vec<(&str, &str)> = tags
            .split(',')
            .filter_map(|tag| tag.split_once(':'))
            .collect();
        let mut identity: Vec<_> = sender
            .user()
            .map(|user| (USER_LABEL, user))
            .into_iter()
            .collect();
        if naming.with_type {
            identity.push((STATSD_TYPE_LABEL, kind.as_str()));
        }
        if naming.with_input {
            identity.push((INPUT_LABEL, sender.input.as_str()));
        }
        let length = name.len();
        let mut row = Vec::new();
        for &figure in self.figures.of(kind) {
            name.truncate(length);
            name.push_str(self.figures.suffix(figure));
            let offer = Offer {
                name: &name,
                labels: &labels,
                identity: &identity,
                kind: self.figures.series_kind(kind, figure),
                help: "",
                level: LEVEL,
                input: sender.input,
            };
            let admitted = gate
                .admit(sender, &offer)
                .map_err(|refusal| Taken::No(refusal.reason()))?;
            if admitted.has_input_label && !naming.with_input {
                return Err(Taken::ByInput);
            }
            if let Some(other) = self.seats.find(admitted.series.text()) {
                return Err(Taken::By(other));
            }
            row.push(admitted);
        }
        Ok(row)
    }

    fn enter(
        &mut self,
        hash: u64,
        metric: &Metric<'_>,
        tags: &[u8],
        (naming, writer): (Naming, Writer),
        row: Vec<Admitted>,
    ) -> Result<u32, Taken> {
        let (kind, is_plain) = (metric.kind, !naming.with_type);
        // Most names are the text of their only series, which has it already.
        let is_text = |one: &Admitted| one.series.text().as_bytes() == metric.name;
        let key = match tags.is_empty() && row.first().is_some_and(is_text) {
            true => None,
            false => {
                let key = self.keys.add(metric.name, tags);
                Some(key.ok_or(Taken::No(Reason::BadName))?)
            }
        };
        let series: Vec<Arc<Series>> = row.iter().map(|one| one.series.clone()).collect();
        let (handle, payer) = self.seats.add(row);
        let inner = match kind {
            Type::Timer | Type::Histogram | Type::Distribution => self.timers.add(Timer::default()),
            Type::Set => self.sets.add(Set::default()),
            Type::Gauge => 0,
            Type::Cumulative => self.marks.add(Mark {
                total: 0.0,
                name: self.cumulative.add_name(),
            }),
            _ if self.figures.counts_increase() => self.marks.add(Mark::default()),
            _ => 0,
        };
        let at = self.entries.add(Entry {
            key,
            value: Sum::default(),
            handle,
            inner,
            payer,
            writer,
            kind,
            is_plain,
            is_dirty: false,
            // It must outlive the flush that may be going on.
            is_touched: true,
        });
        self.index.insert(hash, at);
        if is_plain && !tags.is_empty() {
            let name = self.tagged_hash(metric.name, writer);
            let tagged = self.tagged.entry(name);
            tagged.or_insert(Tagged { kind, entries: 0 }).entries += 1;
        }
        self.introduce(at, series);
        Ok(at)
    }

    /// Queues the series of an entry for the next pass.
    pub(super) fn introduce(&mut self, at: u32, series: Vec<Arc<Series>>) {
        let Entry { kind, handle, .. } = self.entries[at];
        let newcomers = series.into_iter().zip(self.figures.of(kind)).zip(handle..);
        self.newcomers
            .extend(newcomers.map(|((series, &figure), handle)| Newcomer {
                entry: at,
                handle,
                figure,
                resumes: figure.resumes(kind),
                series,
            }));
    }

    /// Takes an entry out. The pulse is told which of its series are gone.
    pub(super) fn remove(&mut self, at: u32) {
        let Some(entry) = self.entries.remove(at) else {
            return;
        };
        let (name, tags) = self.name_and_tags(&entry);
        let hash = self.hash(name, tags, entry.kind, entry.writer);
        let name_hash = self.tagged_hash(name, entry.writer);
        if entry.is_plain
            && !tags.is_empty()
            && let Some(tagged) = self.tagged.get_mut(&name_hash)
        {
            tagged.entries -= 1;
            if tagged.entries == 0 {
                self.tagged.remove(&name_hash);
            }
        }
        self.index.remove(hash, at);
        if let Some(key) = entry.key {
            self.keys.remove(key);
        }
        let length = self.figures.of(entry.kind).len();
        self.seats.remove(entry.handle, length, entry.payer);
        self.gone.push((entry.handle, length));
        match entry.kind {
            Type::Timer | Type::Histogram | Type::Distribution => {
                let interval = self
                    .timers
                    .remove(entry.inner)
                    .and_then(|mut timer| timer.close());
                if let Some(interval) = interval {
                    interval.give_back(&mut self.budget);
                }
            }
            Type::Set => {
                if let Some(mut set) = self.sets.remove(entry.inner) {
                    set.close(&mut self.budget);
                }
            }
            Type::Gauge => {}
            Type::Cumulative => {
                if let Some(mark) = self.marks.remove(entry.inner) {
                    self.cumulative.remove_name(mark.name);
                }
            }
            _ if self.figures.counts_increase() => drop(self.marks.remove(entry.inner)),
            _ => {}
        }
    }
}

/// Why there is no series.
pub(super) enum Taken {
    /// By another metric of the table.
    By(Handle),
    /// By another input.
    ByInput,
    No(Reason),
}

impl Taken {
    fn reason(self) -> Reason {
        match self {
            Taken::By(_) | Taken::ByInput => Reason::BadName,
            Taken::No(reason) => reason,
        }
    }
}
