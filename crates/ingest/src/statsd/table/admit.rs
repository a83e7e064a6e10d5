//! How a metric that was not seen before gets its series.

use std::sync::Arc;

use pegel_metric::{Input, Reason, Series};
use pegel_wire::statsd::{Metric, Type};

use super::changes::Newcomer;
use super::set::Set;
use super::sum::Sum;
use super::timer::Timer;
use super::{Entry, Mark, Origin, Table, Tagged};
use crate::gate::{Admitted, Gate, Offer};

/// Programs' own metrics are level 1.
pub(crate) const LEVEL: u8 = 1;
const TYPE_LABEL: &str = "statsd_type";

impl Table {
    /// All series of the metric, or none of them.
    #[cold]
    pub(super) fn admit(
        &mut self,
        hash: u64,
        metric: &Metric<'_>,
        tags: &[u8],
        origin: &Origin,
        gate: &Gate,
    ) -> Result<u32, Reason> {
        let kind = metric.kind;
        let is_plain = self.may_be_plain(metric.name, tags, kind);
        let admitted = match self.offer(metric, tags, is_plain, origin, gate) {
            // Another metric has one of these series: `a.count` and the timer `a`, or by a rule.
            Err(Taken::Yes) if is_plain => {
                return self
                    .offer(metric, tags, false, origin, gate)
                    .and_then(|row| self.enter(hash, metric, tags, false, row))
                    .map_err(Taken::reason);
            }
            other => other.map_err(Taken::reason)?,
        };
        self.enter(hash, metric, tags, is_plain, admitted)
            .map_err(Taken::reason)
    }

    /// The first type of a name has it without a label.
    fn may_be_plain(&self, name: &[u8], tags: &[u8], kind: Type) -> bool {
        let has_plain = |other: Type| {
            let hash = self.hash(name, &[], other);
            let entry = self.find(hash, name, &[], other);
            entry.is_some_and(|at| self.entries[at].is_plain)
        };
        let tagged = self.tagged.get(&self.secret.hash(name));
        match tagged {
            // Also for lines without tags: the name is what must not have two types.
            Some(tagged) if tagged.kind != kind => false,
            Some(_) if !tags.is_empty() => true,
            _ => !Type::ALL
                .iter()
                .any(|&other| other != kind && has_plain(other)),
        }
    }

    fn offer(
        &self,
        metric: &Metric<'_>,
        tags: &[u8],
        is_plain: bool,
        origin: &Origin,
        gate: &Gate,
    ) -> Result<Vec<Admitted>, Taken> {
        let bad = |_| Taken::No(Reason::BadName);
        let mut name = std::str::from_utf8(metric.name).map_err(bad)?.to_owned();
        let tags = std::str::from_utf8(tags).map_err(bad)?;
        let mut labels: Vec<(&str, &str)> = tags
            .split(',')
            .filter_map(|tag| tag.split_once(':'))
            .collect();
        if !is_plain {
            labels.push((TYPE_LABEL, metric.kind.as_str()));
        }
        let length = name.len();
        let mut row = Vec::new();
        for &figure in self.figures.of(metric.kind) {
            name.truncate(length);
            name.push_str(self.figures.suffix(figure));
            let offer = Offer {
                name: &name,
                labels: &labels,
                kind: self.figures.series_kind(metric.kind, figure),
                help: "",
                level: LEVEL,
                input: Input::Statsd,
            };
            let admitted = gate
                .admit(&origin.sender, &offer)
                .map_err(|refusal| Taken::No(refusal.reason()))?;
            if self.seats.is_taken(&admitted.series) {
                return Err(Taken::Yes);
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
        is_plain: bool,
        row: Vec<Admitted>,
    ) -> Result<u32, Taken> {
        let kind = metric.kind;
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
            kind,
            is_plain,
            is_dirty: false,
            // It must outlive the flush that may be going on.
            is_touched: true,
        });
        self.index.insert(hash, at);
        if is_plain && !tags.is_empty() {
            let tagged = self.tagged.entry(self.secret.hash(metric.name));
            tagged.or_insert(Tagged { kind, entries: 0 }).entries += 1;
        }
        let figures = self.figures.of(kind);
        let newcomers = series.into_iter().zip(figures).zip(handle..);
        self.newcomers
            .extend(newcomers.map(|((series, &figure), handle)| Newcomer {
                entry: at,
                handle,
                figure,
                resumes: figure.resumes(kind),
                series,
            }));
        Ok(at)
    }

    /// Takes an entry out. The pulse is told which of its series are gone.
    pub(super) fn remove(&mut self, at: u32) {
        let Some(entry) = self.entries.remove(at) else {
            return;
        };
        let (name, tags) = self.name_and_tags(&entry);
        let (hash, name_hash) = (self.hash(name, tags, entry.kind), self.secret.hash(name));
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
enum Taken {
    /// Another metric has it.
    Yes,
    No(Reason),
}

impl Taken {
    fn reason(self) -> Reason {
        match self {
            Taken::Yes => Reason::BadName,
            Taken::No(reason) => reason,
        }
    }
}
