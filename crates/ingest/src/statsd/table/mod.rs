//! The statsd table: the current sums of all metrics, by name, tags and type.
//!
//! Threads that receive lines call [`StatsdTable::record`]; at each tick the program sampler takes
//! the changes out (`changes.rs`). Both hold one lock, for microseconds at a time: nothing in here
//! may block or do I/O. Each value of a line is either summed or dropped with a reason.
//!
//! The idea: a line for a known metric must cost one hash, one probe and no allocation, and a
//! hundred thousand counters must fit into a few megabytes. Each metric is a [`MetricEntry`] of
//! forty bytes in a slab and is referred to by its number. [`KeyIndex`], an open-addressing hash
//! table, maps the keyed hash of name, ordered tags, type and writer to that number. The name
//! itself is the text of the metric's series where possible; the bytes of all other keys lie
//! together in the [`KeyArena`]. The entry holds the total of a counter or the value of a gauge.
//! State that only some types need (timers, sets, last totals of counters) lies in slabs of its own
//! and is found by `state_index`. The series that a metric publishes, one for a counter and several
//! for a timer, have consecutive numbers in [`SeriesSlots`], from `handle` on. The first line that
//! changes an entry after a pass pushes its number onto `dirty`; a pass drains that list, so that
//! its cost depends on what changed and not on how many metrics exist. Only a line for an unknown
//! metric takes the slow path through admission (`admit.rs`), which queues the new series in
//! `new_series`. Buckets of timers and members of sets share one memory budget (`budget.rs`).

mod admit;
mod budget;
mod changes;
mod cumulative;
mod key_arena;
mod key_index;
mod member_set;
mod rename;
mod series_slots;
mod timer;

pub(crate) use admit::PROGRAM_LEVEL;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use pegel_metric::{DropReason, Input};
use pegel_wire::statsd::{DecimalNumber, NumberSign, StatsdMetric, StatsdType};

use self::budget::StatsdMemoryBudget;
pub(crate) use self::changes::{ChangedWriters, NewSeries, SeriesValueChange};
use self::cumulative::CumulativeTotals;
pub(crate) use self::key_arena::KEY_BYTES_MAX;
use self::key_arena::{KeyArena, KeyRef};
use self::key_index::KeyIndex;
use self::member_set::MemberSet;
pub(crate) use self::series_slots::SeriesHandle;
use self::series_slots::{PermitIndex, SeriesSlots};
use self::timer::{RecordError, TimerState};
use super::line_counts::LineCounts;
use super::statistics::StatisticSettings;
use crate::admission::Admission;
use crate::compensated_sum::CompensatedSum;
use crate::keyed_hasher::KeyedHasher;
use crate::senders::Sender;
use crate::slab::Slab;

/// The origin of a line.
#[derive(Debug, Clone)]
pub struct LineOrigin {
    /// The account that is charged.
    pub sender: Arc<Sender>,
    /// The socket or process that sent it: cumulative counters of different ones are tracked
    /// separately.
    pub id: u64,
}

impl LineOrigin {
    /// The bit of an id that marks a process; the others are its pid.
    pub(crate) const PROCESS: u64 = 1 << 63;

    /// Returns the process that sent the line, if the kernel reported it.
    pub(crate) fn pid(&self) -> Option<u32> {
        let pid = self.id as u32;
        (self.id & LineOrigin::PROCESS != 0 && pid != 0).then_some(pid)
    }
}

#[derive(Debug)]
pub(crate) struct StatsdTable {
    figures: StatisticSettings,
    hasher: KeyedHasher,
    index: KeyIndex,
    keys: KeyArena,
    entries: Slab<MetricEntry>,
    timers: Slab<TimerState>,
    sets: Slab<MemberSet>,
    /// Extra state of cumulative counters, and of others whose increase is published.
    counter_states: Slab<CounterState>,
    cumulative: CumulativeTotals,
    budget: StatsdMemoryBudget,
    member_hasher: RandomState,
    series: SeriesSlots,
    /// By the hash of the name: the type that has the plain name, for names with tags.
    tagged_names: HashMap<u64, TaggedName>,
    /// Entries of lines over statsd's own sockets that changed since the last pass of the program
    /// sampler.
    dirty: Vec<u32>,
    /// The same of pushes, whose senders wait until the values are in the log.
    dirty_pushes: Vec<u32>,
    /// Dirty entries whose senders have no write allowance at present.
    delayed: Vec<u32>,
    /// Series that the program sampler has not seen, and rows of removed series.
    new_series: Vec<NewSeries>,
    removed: Vec<(SeriesHandle, usize)>,
    ordered_tags: Vec<u8>,
    /// Users other than the agent's that pushed.
    users: Vec<Box<str>>,
}

#[derive(Debug, Default)]
struct CounterState {
    /// The total at the last flush.
    total: f64,
    /// For a cumulative counter: its number in the table of last totals.
    name: cumulative::NameId,
}

#[derive(Debug)]
struct TaggedName {
    kind: StatsdType,
    entries: u32,
}

/// The group of senders whose lines an entry sums. Lines that a user pushes are kept separate from
/// all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SenderGroup(u16);

impl SenderGroup {
    /// Lines over statsd's own sockets, of all senders.
    const STATSD: SenderGroup = SenderGroup(0);
    /// Pushes of the agent's user; the numbers of other users follow.
    const OWN_PUSHES: SenderGroup = SenderGroup(1);
}

#[derive(Debug)]
struct MetricEntry {
    /// `None` if the key is the text of the first series.
    key: Option<KeyRef>,
    /// The total of a counter, the value of a gauge.
    value: CompensatedSum,
    /// The first of its series.
    handle: SeriesHandle,
    /// The index of its timer, set or counter state.
    state_index: u32,
    permit: PermitIndex,
    writer: SenderGroup,
    kind: StatsdType,
    /// Whether its series lack the label `statsd_type`.
    is_plain: bool,
    is_dirty: bool,
    /// Whether a line arrived since the last flush.
    is_touched: bool,
}

impl StatsdTable {
    pub(super) fn new(figures: StatisticSettings, memory: usize) -> StatsdTable {
        let hasher = KeyedHasher::new();
        StatsdTable {
            figures,
            hasher,
            index: KeyIndex::new(),
            keys: KeyArena::default(),
            entries: Slab::default(),
            timers: Slab::default(),
            sets: Slab::default(),
            counter_states: Slab::default(),
            cumulative: CumulativeTotals::default(),
            budget: StatsdMemoryBudget::new(memory),
            member_hasher: RandomState::new(),
            series: SeriesSlots::new(hasher),
            tagged_names: HashMap::new(),
            dirty: Vec::new(),
            dirty_pushes: Vec::new(),
            delayed: Vec::new(),
            new_series: Vec::new(),
            removed: Vec::new(),
            ordered_tags: Vec::new(),
            users: Vec::new(),
        }
    }

    /// Records a metric. Each of its values is kept, or dropped with a reason.
    #[inline]
    pub(super) fn record(
        &mut self,
        metric: &StatsdMetric<'_>,
        origin: &LineOrigin,
        admission: &Admission,
        counts: &mut LineCounts,
    ) {
        if metric.tags().is_empty() {
            return self.record_values(metric, &[], origin, admission, counts);
        }
        match metric.tags().ordered() {
            Ok(tags) => self.record_values(metric, tags, origin, admission, counts),
            Err(_) => {
                let mut tags = std::mem::take(&mut self.ordered_tags);
                tags.clear();
                metric.tags().append_ordered(&mut tags);
                self.record_values(metric, &tags, origin, admission, counts);
                self.ordered_tags = tags;
            }
        }
    }

    fn record_values(
        &mut self,
        metric: &StatsdMetric<'_>,
        tags: &[u8],
        origin: &LineOrigin,
        admission: &Admission,
        counts: &mut LineCounts,
    ) {
        let writer = self.writer(&origin.sender);
        let hash = self.hash(metric.name, tags, metric.kind, writer);
        let found = match self.find(hash, metric.name, tags, metric.kind, writer) {
            Some(at) => Ok(at),
            None => self.admit(hash, metric, tags, (writer, &origin.sender), admission),
        };
        let at = match found {
            Ok(at) => at,
            Err(conflict) => {
                counts.count_dropped(conflict.reason(), values_of(metric));
                return counts.set_admission_error(conflict.into_error());
            }
        };
        if writer != SenderGroup::STATSD && !self.try_charge_push(at, &origin.sender) {
            return counts.count_dropped(DropReason::SenderRate, values_of(metric));
        }
        if metric.is_packed() {
            for number in metric.values() {
                counts.count_result(self.add(at, metric, number, origin));
            }
        } else {
            counts.count_result(self.add(at, metric, metric.first(), origin));
        }
    }

    /// Charges the sender of a push for the next sample of an entry. An acknowledged value cannot
    /// be delayed, so the line is refused if this returns false.
    fn try_charge_push(&self, at: u32, sender: &Sender) -> bool {
        let entry = &self.entries[at];
        entry.is_dirty || sender.try_charge(self.sample_bytes(entry.kind))
    }

    pub(super) fn figures(&self) -> &StatisticSettings {
        &self.figures
    }

    /// Sets the sender to which the memory of the next lines is charged.
    pub(super) fn set_sender(&mut self, sender: &Sender) {
        self.budget.set_trusted(sender.is_trusted());
    }

    #[inline]
    fn writer(&mut self, sender: &Sender) -> SenderGroup {
        match sender.user() {
            _ if sender.input != Input::Push => SenderGroup::STATSD,
            None => SenderGroup::OWN_PUSHES,
            Some(user) => self.writer_of(user),
        }
    }

    fn writer_of(&mut self, user: &str) -> SenderGroup {
        let known = self.users.iter().position(|known| **known == *user);
        let at = known.unwrap_or_else(|| {
            self.users.push(user.into());
            self.users.len() - 1
        });
        // Only users in `allow_users` and root push: there are far fewer than 2^16.
        let at = u16::try_from(at).unwrap_or(u16::MAX);
        SenderGroup(at.saturating_add(SenderGroup::OWN_PUSHES.0 + 1))
    }

    #[inline]
    fn hash(&self, name: &[u8], tags: &[u8], kind: StatsdType, writer: SenderGroup) -> u64 {
        let name = self.hasher.hash(name);
        let name = match tags {
            [] => name,
            tags => self.hasher.combine(name, self.hasher.hash(tags)),
        };
        self.hasher
            .combine(name, kind as u64 | u64::from(writer.0) << 8)
    }

    #[inline]
    fn find(
        &self,
        hash: u64,
        name: &[u8],
        tags: &[u8],
        kind: StatsdType,
        writer: SenderGroup,
    ) -> Option<u32> {
        self.index.find(hash, |at| {
            let entry = &self.entries[at];
            entry.kind == kind
                && entry.writer == writer
                && match entry.key {
                    Some(key) => self.keys.matches(key, name, tags),
                    None => tags.is_empty() && key_arena::bytes_equal(self.first_text(entry), name),
                }
        })
    }

    #[inline]
    fn first_text(&self, entry: &MetricEntry) -> &[u8] {
        self.series
            .text(entry.handle)
            .unwrap_or_default()
            .as_bytes()
    }

    fn name_and_tags(&self, entry: &MetricEntry) -> (&[u8], &[u8]) {
        match entry.key {
            Some(key) => (self.keys.name(key), self.keys.tags(key)),
            None => (self.first_text(entry), &[]),
        }
    }

    #[inline]
    fn add(
        &mut self,
        at: u32,
        metric: &StatsdMetric<'_>,
        number: DecimalNumber,
        origin: &LineOrigin,
    ) -> Result<(), DropReason> {
        let entry = &mut self.entries[at];
        let refused = DropReason::BadValue;
        match entry.kind {
            StatsdType::Counter | StatsdType::Meter => {
                let more = number.value * metric.weight;
                entry.value = entry.value.plus(more).ok_or(refused)?;
            }
            StatsdType::Gauge if number.sign == NumberSign::None => {
                entry.value = CompensatedSum::of(number.value)
            }
            StatsdType::Gauge => entry.value = entry.value.plus(number.value).ok_or(refused)?,
            StatsdType::Cumulative => {
                if number.value < 0.0 {
                    return Err(refused);
                }
                let name = self.counter_states[entry.state_index].name;
                let is_trusted = origin.sender.is_trusted();
                let known = self
                    .cumulative
                    .advance(name, origin.id, number.value, is_trusted);
                let known = known.ok_or(DropReason::SenderLimit)?;
                let more = entry
                    .value
                    .plus(number.value)
                    .and_then(|sum| sum.plus(-known));
                entry.value = more.ok_or(refused)?;
            }
            StatsdType::Timer | StatsdType::Histogram | StatsdType::Distribution => {
                let timer = &mut self.timers[entry.state_index];
                timer
                    .record(number.value, metric.weight, &mut self.budget)
                    .map_err(reason_for_error)?;
            }
            StatsdType::Set => {
                let member = self.member_hasher.hash_one(metric.member());
                let set = &mut self.sets[entry.state_index];
                set.insert(member, &mut self.budget)
                    .map_err(reason_for_error)?;
            }
        }
        entry.is_touched = true;
        self.mark_dirty(at);
        Ok(())
    }

    #[inline]
    fn mark_dirty(&mut self, at: u32) {
        let entry = &mut self.entries[at];
        if !std::mem::replace(&mut entry.is_dirty, true) {
            match entry.writer {
                SenderGroup::STATSD => self.dirty.push(at),
                _ => self.dirty_pushes.push(at),
            }
        }
    }
}

fn reason_for_error(full: RecordError) -> DropReason {
    match full {
        RecordError::Overflow => DropReason::BadValue,
        RecordError::Memory => DropReason::Memory,
    }
}

fn values_of(metric: &StatsdMetric<'_>) -> u64 {
    if metric.is_packed() {
        metric.values().count() as u64
    } else {
        1
    }
}
