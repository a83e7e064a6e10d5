//! What statsd metrics amount to at this moment, by name, tags and type.
//!
//! Listeners put lines in, the pulse takes changes out; both hold the lock for microseconds. A known name
//! costs one hash and one probe, and no allocation. A hundred thousand counters take a few megabytes: an entry is
//! forty bytes, a name is the text of its series where it can be, and the bytes of all other keys lie together.

mod admit;
mod budget;
mod changes;
mod compensated_sum;
mod cumulative;
mod key_arena;
mod key_index;
mod keyed_hasher;
mod member_set;
mod rename;
mod series_slots;
mod slab;
mod timer;

pub(crate) use admit::PROGRAM_LEVEL;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use pegel_metric::{DropReason, Input};
use pegel_wire::statsd::{DecimalNumber, NumberSign, StatsdMetric, StatsdType};

use self::budget::StatsdMemoryBudget;
pub(crate) use self::changes::{NewSeries, SeriesValueChange};
use self::compensated_sum::CompensatedSum;
use self::cumulative::CumulativeTotals;
use self::key_arena::{KeyArena, KeyRef};
use self::key_index::KeyIndex;
use self::keyed_hasher::KeyedHasher;
use self::member_set::MemberSet;
pub(crate) use self::series_slots::SeriesHandle;
use self::series_slots::{PermitIndex, SeriesSlots};
use self::slab::Slab;
use self::timer::{RecordError, TimerState};
use super::line_counts::LineCounts;
use super::statistics::StatisticSettings;
use crate::admission::Admission;
use crate::senders::Sender;

/// Who sent a line.
#[derive(Debug, Clone)]
pub struct LineOrigin {
    /// On whose account it goes.
    pub sender: Arc<Sender>,
    /// The socket or process that it came from: cumulative counters of two of them do not mix.
    pub id: u64,
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
    /// By the hash of their name: the type that has the plain name, for names with tags.
    tagged_names: HashMap<u64, TaggedName>,
    /// Entries that changed since the pulse looked.
    dirty: Vec<u32>,
    /// Dirty entries whose senders may not write them yet.
    delayed: Vec<u32>,
    /// Series that it has not seen, and rows of series that are gone.
    new_series: Vec<NewSeries>,
    removed: Vec<(SeriesHandle, usize)>,
    ordered_tags: Vec<u8>,
    /// Users other than the agent's who pushed.
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

/// Whose lines an entry takes. Those that a user pushes are kept separate from all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Writer(u16);

impl Writer {
    /// Everyone's statsd lines.
    const STATSD: Writer = Writer(0);
    /// Pushes of the agent's user; those of the other users follow.
    const OWN_PUSHES: Writer = Writer(1);
}

#[derive(Debug)]
struct MetricEntry {
    /// None where it is the text of the first series.
    key: Option<KeyRef>,
    /// The total of a counter, the value of a gauge.
    value: CompensatedSum,
    /// The first of its series.
    handle: SeriesHandle,
    /// Its timer, its set or its mark.
    state_index: u32,
    permit: PermitIndex,
    writer: Writer,
    kind: StatsdType,
    /// Without the label `statsd_type`.
    is_plain: bool,
    is_dirty: bool,
    /// Since the last flush.
    is_touched: bool,
}

impl StatsdTable {
    pub fn new(figures: StatisticSettings, memory: usize) -> StatsdTable {
        let secret = KeyedHasher::new();
        StatsdTable {
            figures,
            hasher: secret,
            index: KeyIndex::new(),
            keys: KeyArena::default(),
            entries: Slab::default(),
            timers: Slab::default(),
            sets: Slab::default(),
            counter_states: Slab::default(),
            cumulative: CumulativeTotals::default(),
            budget: StatsdMemoryBudget::new(memory),
            member_hasher: RandomState::new(),
            series: SeriesSlots::new(secret),
            tagged_names: HashMap::new(),
            dirty: Vec::new(),
            delayed: Vec::new(),
            new_series: Vec::new(),
            removed: Vec::new(),
            ordered_tags: Vec::new(),
            users: Vec::new(),
        }
    }

    /// Takes a metric in. Each of its values is kept, or dropped for a reason.
    #[inline]
    pub fn record(
        &mut self,
        metric: &StatsdMetric<'_>,
        origin: &LineOrigin,
        gate: &Admission,
        tally: &mut LineCounts,
    ) {
        if metric.tags().is_empty() {
            return self.record_values(metric, &[], origin, gate, tally);
        }
        match metric.tags().ordered() {
            Ok(tags) => self.record_values(metric, tags, origin, gate, tally),
            Err(_) => {
                let mut tags = std::mem::take(&mut self.ordered_tags);
                tags.clear();
                metric.tags().append_ordered(&mut tags);
                self.record_values(metric, &tags, origin, gate, tally);
                self.ordered_tags = tags;
            }
        }
    }

    fn record_values(
        &mut self,
        metric: &StatsdMetric<'_>,
        tags: &[u8],
        origin: &LineOrigin,
        gate: &Admission,
        tally: &mut LineCounts,
    ) {
        let writer = self.writer(&origin.sender);
        let hash = self.hash(metric.name, tags, metric.kind, writer);
        let found = match self.find(hash, metric.name, tags, metric.kind, writer) {
            Some(at) => Ok(at),
            None => self.admit(hash, metric, tags, (writer, &origin.sender), gate),
        };
        let at = match found {
            Ok(at) => at,
            Err(reason) => return tally.count_dropped(reason, values_of(metric)),
        };
        if metric.is_packed() {
            for number in metric.values() {
                tally.count_result(self.add(at, metric, number, origin));
            }
        } else {
            tally.count_result(self.add(at, metric, metric.first(), origin));
        }
    }

    pub fn figures(&self) -> &StatisticSettings {
        &self.figures
    }

    /// Sets the sender to which the memory of the next lines is charged.
    pub fn set_sender(&mut self, sender: &Sender) {
        self.budget.set_trusted(sender.is_trusted());
    }

    #[inline]
    fn writer(&mut self, sender: &Sender) -> Writer {
        match sender.user() {
            _ if sender.input != Input::Push => Writer::STATSD,
            None => Writer::OWN_PUSHES,
            Some(user) => self.writer_of(user),
        }
    }

    fn writer_of(&mut self, user: &str) -> Writer {
        let known = self.users.iter().position(|known| **known == *user);
        let at = known.unwrap_or_else(|| {
            self.users.push(user.into());
            self.users.len() - 1
        });
        // Only users in `allow_users` and root come here: there are never as many.
        let at = u16::try_from(at).unwrap_or(u16::MAX);
        Writer(at.saturating_add(Writer::OWN_PUSHES.0 + 1))
    }

    #[inline]
    fn hash(&self, name: &[u8], tags: &[u8], kind: StatsdType, writer: Writer) -> u64 {
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
        writer: Writer,
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
        if !entry.is_dirty {
            entry.is_dirty = true;
            self.dirty.push(at);
        }
        Ok(())
    }
}

fn reason_for_error(full: RecordError) -> DropReason {
    match full {
        RecordError::Overflow => DropReason::BadValue,
        RecordError::Memory => DropReason::Memory,
    }
}

fn values_of(metric: &StatsdMetric<'_>) -> u64 {
    match metric.is_packed() {
        true => metric.values().count() as u64,
        false => 1,
    }
}
