//! What statsd metrics amount to at this moment, by name, tags and type.
//!
//! Listeners put lines in, the pulse takes changes out; both hold the lock for microseconds. A known name
//! costs one hash and one probe, and no allocation. A hundred thousand counters take a few megabytes: an entry is
//! forty bytes, a name is the text of its series where it can be, and the bytes of all other keys lie together.

mod admit;
mod budget;
mod changes;
mod cumulative;
mod hash;
mod index;
mod keys;
mod rename;
mod seats;
mod set;
mod slab;
mod sum;
mod timer;

pub(crate) use admit::LEVEL;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use pegel_metric::{Input, Reason};
use pegel_wire::statsd::{Metric, Number, Sign, Type};

use self::budget::Budget;
pub(crate) use self::changes::{Change, Newcomer};
use self::cumulative::Cumulative;
use self::hash::Secret;
use self::index::Index;
use self::keys::{Key, Keys};
pub(crate) use self::seats::Handle;
use self::seats::{Payer, Seats};
use self::set::Set;
use self::slab::Slab;
use self::sum::Sum;
use self::timer::{Full, Timer};
use super::figures::Figures;
use super::tally::Tally;
use crate::gate::Gate;
use crate::senders::Sender;

/// Who sent a line.
#[derive(Debug, Clone)]
pub struct Origin {
    /// On whose account it goes.
    pub sender: Arc<Sender>,
    /// The socket or process that it came from: cumulative counters of two of them do not mix.
    pub id: u64,
}

#[derive(Debug)]
pub(crate) struct Table {
    figures: Figures,
    secret: Secret,
    index: Index,
    keys: Keys,
    entries: Slab<Entry>,
    timers: Slab<Timer>,
    sets: Slab<Set>,
    /// Extra state of cumulative counters, and of others whose increase is published.
    marks: Slab<Mark>,
    cumulative: Cumulative,
    budget: Budget,
    members: RandomState,
    seats: Seats,
    /// By the hash of their name: the type that has the plain name, for names with tags.
    tagged: HashMap<u64, Tagged>,
    /// Entries that changed since the pulse looked.
    dirty: Vec<u32>,
    /// Dirty entries whose senders may not write them yet.
    delayed: Vec<u32>,
    /// Series that it has not seen, and rows of series that are gone.
    newcomers: Vec<Newcomer>,
    gone: Vec<(Handle, usize)>,
    ordered_tags: Vec<u8>,
    /// Users other than the agent's who pushed.
    users: Vec<Box<str>>,
}

#[derive(Debug, Default)]
struct Mark {
    /// The total at the last flush.
    total: f64,
    /// For a cumulative counter: its number in the table of last totals.
    name: cumulative::Name,
}

#[derive(Debug)]
struct Tagged {
    kind: Type,
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
struct Entry {
    /// None where it is the text of the first series.
    key: Option<Key>,
    /// The total of a counter, the value of a gauge.
    value: Sum,
    /// The first of its series.
    handle: Handle,
    /// Its timer, its set or its mark.
    inner: u32,
    payer: Payer,
    writer: Writer,
    kind: Type,
    /// Without the label `statsd_type`.
    is_plain: bool,
    is_dirty: bool,
    /// Since the last flush.
    is_touched: bool,
}

impl Table {
    pub fn new(figures: Figures, memory: usize) -> Table {
        let secret = Secret::new();
        Table {
            figures,
            secret,
            index: Index::new(),
            keys: Keys::default(),
            entries: Slab::default(),
            timers: Slab::default(),
            sets: Slab::default(),
            marks: Slab::default(),
            cumulative: Cumulative::default(),
            budget: Budget::new(memory),
            members: RandomState::new(),
            seats: Seats::new(secret),
            tagged: HashMap::new(),
            dirty: Vec::new(),
            delayed: Vec::new(),
            newcomers: Vec::new(),
            gone: Vec::new(),
            ordered_tags: Vec::new(),
            users: Vec::new(),
        }
    }

    /// Takes a metric in. Each of its values is kept, or dropped for a reason.
    #[inline]
    pub fn record(&mut self, metric: &Metric<'_>, origin: &Origin, gate: &Gate, tally: &mut Tally) {
        if metric.tags().is_empty() {
            return self.put(metric, &[], origin, gate, tally);
        }
        match metric.tags().ordered() {
            Ok(tags) => self.put(metric, tags, origin, gate, tally),
            Err(_) => {
                let mut tags = std::mem::take(&mut self.ordered_tags);
                tags.clear();
                metric.tags().append_ordered(&mut tags);
                self.put(metric, &tags, origin, gate, tally);
                self.ordered_tags = tags;
            }
        }
    }

    fn put(
        &mut self,
        metric: &Metric<'_>,
        tags: &[u8],
        origin: &Origin,
        gate: &Gate,
        tally: &mut Tally,
    ) {
        let writer = self.writer(&origin.sender);
        let hash = self.hash(metric.name, tags, metric.kind, writer);
        let found = match self.find(hash, metric.name, tags, metric.kind, writer) {
            Some(at) => Ok(at),
            None => self.admit(hash, metric, tags, (writer, &origin.sender), gate),
        };
        let at = match found {
            Ok(at) => at,
            Err(reason) => return tally.dropped(reason, values_of(metric)),
        };
        if metric.is_packed() {
            for number in metric.values() {
                tally.took(self.add(at, metric, number, origin));
            }
        } else {
            tally.took(self.add(at, metric, metric.first(), origin));
        }
    }

    pub fn figures(&self) -> &Figures {
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
    fn hash(&self, name: &[u8], tags: &[u8], kind: Type, writer: Writer) -> u64 {
        let name = self.secret.hash(name);
        let name = match tags {
            [] => name,
            tags => self.secret.join(name, self.secret.hash(tags)),
        };
        self.secret
            .join(name, kind as u64 | u64::from(writer.0) << 8)
    }

    #[inline]
    fn find(&self, hash: u64, name: &[u8], tags: &[u8], kind: Type, writer: Writer) -> Option<u32> {
        self.index.find(hash, |at| {
            let entry = &self.entries[at];
            entry.kind == kind
                && entry.writer == writer
                && match entry.key {
                    Some(key) => self.keys.is(key, name, tags),
                    None => tags.is_empty() && keys::is_same(self.first_text(entry), name),
                }
        })
    }

    #[inline]
    fn first_text(&self, entry: &Entry) -> &[u8] {
        self.seats.text(entry.handle).unwrap_or_default().as_bytes()
    }

    fn name_and_tags(&self, entry: &Entry) -> (&[u8], &[u8]) {
        match entry.key {
            Some(key) => (self.keys.name(key), self.keys.tags(key)),
            None => (self.first_text(entry), &[]),
        }
    }

    #[inline]
    fn add(
        &mut self,
        at: u32,
        metric: &Metric<'_>,
        number: Number,
        origin: &Origin,
    ) -> Result<(), Reason> {
        let entry = &mut self.entries[at];
        let refused = Reason::BadValue;
        match entry.kind {
            Type::Counter | Type::Meter => {
                let more = number.value * metric.weight;
                entry.value = entry.value.plus(more).ok_or(refused)?;
            }
            Type::Gauge if number.sign == Sign::None => entry.value = Sum::of(number.value),
            Type::Gauge => entry.value = entry.value.plus(number.value).ok_or(refused)?,
            Type::Cumulative => {
                if number.value < 0.0 {
                    return Err(refused);
                }
                let name = self.marks[entry.inner].name;
                let is_trusted = origin.sender.is_trusted();
                let known = self
                    .cumulative
                    .step(name, origin.id, number.value, is_trusted);
                let known = known.ok_or(Reason::SenderLimit)?;
                let more = entry
                    .value
                    .plus(number.value)
                    .and_then(|sum| sum.plus(-known));
                entry.value = more.ok_or(refused)?;
            }
            Type::Timer | Type::Histogram | Type::Distribution => {
                let timer = &mut self.timers[entry.inner];
                timer
                    .record(number.value, metric.weight, &mut self.budget)
                    .map_err(reason)?;
            }
            Type::Set => {
                let member = self.members.hash_one(metric.member());
                let set = &mut self.sets[entry.inner];
                set.insert(member, &mut self.budget).map_err(reason)?;
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

fn reason(full: Full) -> Reason {
    match full {
        Full::Range => Reason::BadValue,
        Full::Memory => Reason::Memory,
    }
}

fn values_of(metric: &Metric<'_>) -> u64 {
    match metric.is_packed() {
        true => metric.values().count() as u64,
        false => 1,
    }
}
