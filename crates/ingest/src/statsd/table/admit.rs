//! The slow path of the table: the first line of a metric requests admission for its series and
//! creates its entry.
//!
//! A name may collide with another type of the same name, with another metric's series, or with
//! another input; the series then get labels that distinguish them. Either all series of a metric
//! are admitted or none.

use std::sync::Arc;

use pegel_metric::{DropReason, Series};
use pegel_wire::statsd::{StatsdMetric, StatsdType};

use super::changes::NewSeries;
use super::member_set::MemberSet;
use super::timer::TimerState;
use super::{
    CounterState, KeyRef, MetricEntry, SenderGroup, SeriesHandle, StatsdTable, TaggedName,
};
use crate::admission::{Admission, AdmissionError, AdmittedSeries, SeriesSpec};
use crate::compensated_sum::CompensatedSum;
use crate::name_owners::INPUT_LABEL;
use crate::reserved_names::{STATSD_TYPE_LABEL, USER_LABEL};
use crate::senders::Sender;

/// Metrics of programs have level 1.
pub(crate) const PROGRAM_LEVEL: u8 = 1;

/// The labels that distinguish a metric's series from others of the same name.
#[derive(Debug, Clone, Copy)]
pub(super) struct DisambiguatingLabels {
    /// Adds `statsd_type`: another type has the name.
    pub with_type: bool,
    /// Adds `input`: another input has the name.
    pub with_input: bool,
}

impl StatsdTable {
    /// Admits all series of the metric, or none of them.
    #[cold]
    pub(super) fn admit(
        &mut self,
        hash: u64,
        metric: &StatsdMetric<'_>,
        tags: &[u8],
        (writer, sender): (SenderGroup, &Arc<Sender>),
        admission: &Admission,
    ) -> Result<u32, SeriesConflict> {
        let mut naming = DisambiguatingLabels {
            with_type: !self.may_use_plain_name(metric.name, tags, metric.kind, writer),
            with_input: false,
        };
        loop {
            let offered =
                self.admit_series((metric.name, tags), metric.kind, naming, sender, admission);
            let taken = match offered {
                Ok(row) => {
                    return self.insert_entry(
                        hash,
                        metric,
                        tags,
                        (naming, writer),
                        (row, admission),
                    );
                }
                Err(taken) => taken,
            };
            match taken {
                SeriesConflict::OtherInput if !naming.with_input => naming.with_input = true,
                // A pushed metric takes precedence over one whose lines arrived another way.
                SeriesConflict::OtherMetric(other)
                    if writer != SenderGroup::STATSD && self.rename_entry_of(other, admission) => {}
                // Another metric has one of these series: `a.count` and the timer `a`, or because
                // of a rule.
                SeriesConflict::OtherMetric(_) if !naming.with_type => naming.with_type = true,
                other => return Err(other),
            }
        }
    }

    /// Returns whether this type may use the plain name: the first type of a name does.
    fn may_use_plain_name(
        &self,
        name: &[u8],
        tags: &[u8],
        kind: StatsdType,
        writer: SenderGroup,
    ) -> bool {
        let has_plain = |other: StatsdType| {
            let hash = self.hash(name, &[], other, writer);
            let entry = self.find(hash, name, &[], other, writer);
            entry.is_some_and(|at| self.entries[at].is_plain)
        };
        let tagged = self.tagged_names.get(&self.tagged_hash(name, writer));
        match tagged {
            // Also for lines without tags: one name must not have two types.
            Some(tagged) if tagged.kind != kind => false,
            Some(_) if !tags.is_empty() => true,
            _ => !StatsdType::ALL
                .iter()
                .any(|&other| other != kind && has_plain(other)),
        }
    }

    fn tagged_hash(&self, name: &[u8], writer: SenderGroup) -> u64 {
        let name = self.hasher.hash(name);
        self.hasher.combine(name, u64::from(writer.0))
    }

    /// Requests admission for all series of a metric.
    pub(super) fn admit_series(
        &self,
        (name, tags): (&[u8], &[u8]),
        kind: StatsdType,
        naming: DisambiguatingLabels,
        sender: &Arc<Sender>,
        admission: &Admission,
    ) -> Result<Vec<AdmittedSeries>, SeriesConflict> {
        let bad = |_| SeriesConflict::BadName;
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
        let mut conflict = None;
        for &figure in self.figures.for_type(kind) {
            name.truncate(length);
            name.push_str(self.figures.suffix(figure));
            let offer = SeriesSpec {
                name: &name,
                labels: &labels,
                identity: &identity,
                kind: self.figures.series_kind(kind, figure),
                help: "",
                level: PROGRAM_LEVEL,
                input: sender.input,
            };
            let admitted = match admission.admit(sender, &offer) {
                Ok(admitted) => admitted,
                Err(error) => {
                    conflict = Some(SeriesConflict::Refused(error));
                    break;
                }
            };
            if admitted.has_input_label && !naming.with_input {
                conflict = Some(SeriesConflict::OtherInput);
            } else if let Some(other) = self.series.find(admitted.series.text()) {
                conflict = Some(SeriesConflict::OtherMetric(other));
            }
            row.push(admitted);
            if conflict.is_some() {
                break;
            }
        }
        match conflict {
            None => Ok(row),
            Some(conflict) => {
                admission.take_back(row);
                Err(conflict)
            }
        }
    }

    fn insert_entry(
        &mut self,
        hash: u64,
        metric: &StatsdMetric<'_>,
        tags: &[u8],
        (naming, writer): (DisambiguatingLabels, SenderGroup),
        (mut row, admission): (Vec<AdmittedSeries>, &Admission),
    ) -> Result<u32, SeriesConflict> {
        let (kind, is_plain) = (metric.kind, !naming.with_type);
        // Most names equal the text of their only series, so that the key needs no copy.
        let is_text = |one: &AdmittedSeries| one.series.text().as_bytes() == metric.name;
        let key = if tags.is_empty() && row.first().is_some_and(is_text) {
            None
        } else {
            let key_bytes = metric.name.len() + tags.len();
            if let Err(error) = charge_key(&mut row, key_bytes, 0, admission) {
                admission.take_back(row);
                return Err(SeriesConflict::Refused(error));
            }
            let key = self.keys.add(metric.name, tags);
            Some(key.ok_or(SeriesConflict::BadName)?)
        };
        let series: Vec<Arc<Series>> = row.iter().map(|one| one.series.clone()).collect();
        let (handle, permit) = self.series.add(row);
        let state_index = match kind {
            StatsdType::Timer | StatsdType::Histogram | StatsdType::Distribution => {
                self.timers.add(TimerState::default())
            }
            StatsdType::Set => self.sets.add(MemberSet::default()),
            StatsdType::Gauge => 0,
            StatsdType::Cumulative => self.counter_states.add(CounterState {
                total: 0.0,
                name: self.cumulative.add_name(),
            }),
            _ if self.figures.counts_increase() => self.counter_states.add(CounterState::default()),
            _ => 0,
        };
        let at = self.entries.add(MetricEntry {
            key,
            value: CompensatedSum::default(),
            handle,
            state_index,
            permit,
            writer,
            kind,
            is_plain,
            is_dirty: false,
            // The entry must survive a flush in progress.
            is_touched: true,
        });
        self.index.insert(hash, at);
        if is_plain && !tags.is_empty() {
            let name = self.tagged_hash(metric.name, writer);
            let tagged = self.tagged_names.entry(name);
            tagged.or_insert(TaggedName { kind, entries: 0 }).entries += 1;
        }
        self.queue_new_series(at, series);
        Ok(at)
    }

    /// Queues the series of an entry for the next pass.
    pub(super) fn queue_new_series(&mut self, at: u32, series: Vec<Arc<Series>>) {
        let MetricEntry {
            kind,
            handle,
            permit,
            ..
        } = self.entries[at];
        let sender = self.series.sender(permit);
        let newcomers = series
            .into_iter()
            .zip(self.figures.for_type(kind))
            .zip(handle..);
        self.new_series
            .extend(newcomers.map(|((series, &figure), handle)| NewSeries {
                entry: at,
                handle,
                figure,
                resumes: figure.continues_after_restart(kind),
                series,
                sender: sender.clone(),
            }));
    }

    /// Returns what [`charge_key`] charged for an entry with this key and these series.
    pub(super) fn charged_key_bytes(&self, key: Option<KeyRef>, handle: SeriesHandle) -> u64 {
        let text = self.series.text(handle).unwrap_or_default();
        key.map_or(0, |key| bytes_beyond_text(key.len(), text))
    }

    /// Removes an entry and queues the removal of its series for the program sampler.
    pub(super) fn remove(&mut self, at: u32) {
        let Some(entry) = self.entries.remove(at) else {
            return;
        };
        let (name, tags) = self.name_and_tags(&entry);
        let hash = self.hash(name, tags, entry.kind, entry.writer);
        let name_hash = self.tagged_hash(name, entry.writer);
        if entry.is_plain
            && !tags.is_empty()
            && let Some(tagged) = self.tagged_names.get_mut(&name_hash)
        {
            tagged.entries -= 1;
            if tagged.entries == 0 {
                self.tagged_names.remove(&name_hash);
            }
        }
        self.index.remove(hash, at);
        if let Some(key) = entry.key {
            self.keys.remove(key);
        }
        let length = self.figures.for_type(entry.kind).len();
        let key_bytes = self.charged_key_bytes(entry.key, entry.handle);
        self.series.release_key(entry.permit, key_bytes);
        self.series.remove(entry.handle, length, entry.permit);
        self.removed.push((entry.handle, length));
        match entry.kind {
            StatsdType::Timer | StatsdType::Histogram | StatsdType::Distribution => {
                let interval = self
                    .timers
                    .remove(entry.state_index)
                    .and_then(|mut timer| timer.close_interval());
                if let Some(interval) = interval {
                    interval.give_back(&mut self.budget);
                }
            }
            StatsdType::Set => {
                if let Some(mut set) = self.sets.remove(entry.state_index) {
                    set.close(&mut self.budget);
                }
            }
            StatsdType::Gauge => {}
            StatsdType::Cumulative => {
                if let Some(mark) = self.counter_states.remove(entry.state_index) {
                    self.cumulative.remove_name(mark.name);
                }
            }
            _ if self.figures.counts_increase() => {
                self.counter_states.remove(entry.state_index);
            }
            _ => {}
        }
    }
}

/// Charges the sender of a row for the part of its key that exceeds the text of its first series:
/// tags without values, and those that rules remove, are in no text. `charged` bytes of it are
/// charged already.
pub(super) fn charge_key(
    row: &mut [AdmittedSeries],
    key_bytes: usize,
    charged: u64,
    admission: &Admission,
) -> Result<(), AdmissionError> {
    let Some(first) = row.first_mut() else {
        return Ok(());
    };
    let bytes = bytes_beyond_text(key_bytes, first.series.text());
    admission.charge_key(&mut first.permit, bytes.saturating_sub(charged))
}

fn bytes_beyond_text(key_bytes: usize, text: &str) -> u64 {
    key_bytes.saturating_sub(text.len()) as u64
}

/// The reason why a metric has no series.
pub(super) enum SeriesConflict {
    /// A series belongs to another metric of the table.
    OtherMetric(SeriesHandle),
    /// A name belongs to another input.
    OtherInput,
    /// The name or a tag cannot be used.
    BadName,
    Refused(AdmissionError),
}

impl SeriesConflict {
    pub(super) fn reason(&self) -> DropReason {
        match self {
            SeriesConflict::Refused(error) => error.reason(),
            _ => DropReason::BadName,
        }
    }

    /// Returns the error of admission, which describes the reason exactly.
    pub(super) fn into_error(self) -> Option<AdmissionError> {
        match self {
            SeriesConflict::Refused(error) => Some(error),
            _ => None,
        }
    }
}
