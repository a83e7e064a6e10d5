//! The current values of programs' metrics, from which the store is sampled.
//!
//! The lanes and the statsd source each own one [`CurrentValues`] and set values in it; at each
//! tick the program sampler calls [`CurrentValues::emit`]. Series are arranged in groups of at most
//! [`GROUP_SERIES`]. A group whose values changed since the last tick emits a row with all its
//! values; an unchanged one emits a row every [`IDLE_WRITE_INTERVAL`], so that a hundred thousand
//! idle series cost almost nothing. Counters continue from their totals in the store after a
//! restart.
//!
//! The series of a group belong to one sender, whose account is part of the group's name: a
//! restart finds there to whom a total is charged, and storing the values of one sender does not
//! store those of others. Lanes have a journal for that and give no sender.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use pegel_metric::{
    GroupSeries, Input, Level, MetricKind, Millis, SampleGroup, Series, Slot, Tick,
};
use pegel_store::Store;

use crate::restored_charges::RestoredCharge;
use crate::senders::{ROW_BYTES, Sender};

/// Small enough that one busy series does not drag many idle ones into every row.
const GROUP_SERIES: usize = 256;
/// The same for pushes, each of which is written at once: a new name repeats those of its group in
/// the log.
const PUSHED_GROUP_SERIES: usize = 64;
/// How often an unchanged group is written.
pub const IDLE_WRITE_INTERVAL: Duration = Duration::from_secs(60);
/// How long values stay live after an agent that did not shut down.
const LIVE_MS: Millis = 10 * 60 * 1000;
/// Totals from before a restart are dropped if their series is not added within this time.
const RESTORED_MS: Millis = 10 * 60 * 1000;
/// The same for totals that are published meanwhile: as long as the store keeps samples by default.
const PUBLISHED_RESTORED_MS: Millis = 2 * 24 * 3600 * 1000;
const LEVEL_MAX: Level = Level::MAX;

/// The position of a series in [`CurrentValues`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValueSlot {
    group: u32,
    slot: Slot,
}

#[derive(Debug)]
pub struct CurrentValues {
    name: &'static str,
    groups: Vec<ValueGroup>,
    /// Groups that may have room, by their sender.
    groups_with_room: HashMap<SenderKey, Vec<u32>>,
    /// Groups without a sender and without series.
    free_groups: Vec<u32>,
    /// Totals of counters from before a restart whose series was not added since, by series.
    restored: HashMap<Box<str>, RestoredTotal>,
    restored_until: Millis,
    /// Groups of the previous agent that are not in use here.
    stale_groups: Vec<Arc<str>>,
}

#[derive(Debug)]
struct RestoredTotal {
    series: Arc<Series>,
    value: f64,
    /// The account of its sender; `None` if the group has no sender.
    account: Option<Arc<str>>,
    /// Its slot while it is published.
    slot: Option<ValueSlot>,
    /// Its charge while it is published.
    charge: Option<RestoredCharge>,
}

/// Identifies the sender of a group by its address; 0 for no sender. The group holds the sender, so
/// that no other one gets the address.
type SenderKey = usize;

fn sender_key(sender: Option<&Arc<Sender>>) -> SenderKey {
    sender.map_or(0, |sender| Arc::as_ptr(sender).addr())
}

/// Returns the name of a group: `statsd-3 push uid 1000`, and `lanes-3` without a sender.
fn group_name(name: &str, at: usize, sender: Option<&Arc<Sender>>) -> String {
    match sender {
        Some(sender) => format!("{name}-{at} {} {}", sender.input.as_str(), sender.name),
        None => format!("{name}-{at}"),
    }
}

/// Returns the account in the name of a group.
fn account_in(group: &str) -> Option<&str> {
    let (_, sender) = group.split_once(' ')?;
    sender.split_once(' ').map(|(_input, account)| account)
}

#[derive(Debug)]
struct ValueGroup {
    group: SampleGroup,
    sender: Option<Arc<Sender>>,
    is_changed: bool,
    /// Whether series were added since the last row: the log then repeats their names.
    has_new_series: bool,
    /// Whether a series was removed since the last row: it may be in another group by now.
    has_lost_series: bool,
    has_room: bool,
    last_written: Millis,
}

impl ValueGroup {
    /// Returns the most series that it may have.
    fn capacity(&self) -> usize {
        match &self.sender {
            Some(sender) if sender.input == Input::Push => PUSHED_GROUP_SERIES,
            _ => GROUP_SERIES,
        }
    }

    /// Returns about how many bytes the next row adds to the log, besides its changed values.
    fn row_bytes(&mut self) -> u64 {
        let mut bytes = ROW_BYTES + self.group.len().div_ceil(8) as u64;
        if self.has_new_series {
            let series = self.group.members().series.iter();
            bytes += series.map(|one| one.text().len() as u64).sum::<u64>();
        }
        bytes
    }
}

impl CurrentValues {
    /// Continues the values of the same name of a previous agent: counters resume from their last
    /// totals.
    pub fn new(name: &'static str, store: &Store, now: Millis) -> CurrentValues {
        let prefix = format!("{name}-");
        let mut restored = HashMap::new();
        let mut left_over = Vec::new();
        for (members, values) in store.last_group_rows(&prefix) {
            let account: Option<Arc<str>> = account_in(&members.group).map(Arc::from);
            for (series, value) in members.series.iter().zip(values) {
                if let (MetricKind::Counter, Some(value)) = (series.family().kind, value) {
                    let known = RestoredTotal {
                        series: series.clone(),
                        value,
                        account: account.clone(),
                        slot: None,
                        charge: None,
                    };
                    // The group that was written last comes last.
                    restored.insert(series.text().into(), known);
                }
            }
            left_over.push(members.group.clone());
        }
        CurrentValues {
            name,
            groups: Vec::new(),
            groups_with_room: HashMap::new(),
            free_groups: Vec::new(),
            restored,
            restored_until: now + RESTORED_MS,
            stale_groups: left_over,
        }
    }

    /// Adds a series of a sender that is not present yet. Returns its slot, and the total that it
    /// had before a restart.
    pub fn add(
        &mut self,
        series: Arc<Series>,
        sender: Option<&Arc<Sender>>,
    ) -> (ValueSlot, Option<f64>) {
        let restored = self.restored.remove(series.text());
        let value = restored.as_ref().map(|restored| restored.value);
        let published = restored.and_then(|restored| Some((restored.slot?, restored)));
        let Some((place, restored)) = published else {
            return (self.assign_slot(series, sender), value);
        };
        let is_same_kind = restored.series.family().kind == series.family().kind;
        let group = &self.groups[place.group as usize];
        if is_same_kind && sender_key(group.sender.as_ref()) == sender_key(sender) {
            return (place, value);
        }
        self.remove(place);
        let moved = self.assign_slot(series, sender);
        if is_same_kind {
            self.set(moved, restored.value);
        }
        (moved, value)
    }

    /// Publishes the totals from before a restart, until their series is added or they are dropped.
    /// `charge` charges a total to its sender; the account of the sender is known if it was stored.
    pub fn publish_restored(
        &mut self,
        now: Millis,
        mut charge: impl FnMut(&Series, Option<&str>) -> RestoredCharge,
    ) {
        self.restored_until = now + PUBLISHED_RESTORED_MS;
        let mut restored = std::mem::take(&mut self.restored);
        for one in restored.values_mut() {
            let charge = charge(&one.series, one.account.as_deref());
            self.publish(one, charge);
        }
        self.restored = restored;
    }

    fn publish(&mut self, total: &mut RestoredTotal, charge: RestoredCharge) {
        let place = self.assign_slot(total.series.clone(), Some(charge.sender()));
        self.set(place, total.value);
        total.slot = Some(place);
        total.charge = Some(charge);
    }

    /// Drops the totals from before a restart for which `is_unwanted` returns true, and stops
    /// publishing them.
    pub fn remove_restored(&mut self, is_unwanted: impl Fn(&Series) -> bool) {
        let mut restored = std::mem::take(&mut self.restored);
        restored.retain(|_, one| {
            let stays = !is_unwanted(&one.series);
            if !stays && let Some(place) = one.slot {
                self.remove(place);
            }
            stays
        });
        self.restored = restored;
    }

    /// Renames published totals from before a restart. `rename` returns the new series of a total
    /// that must be renamed, `charge` charges it to its sender.
    pub fn rename_restored(
        &mut self,
        rename: impl Fn(&Series) -> Option<Arc<Series>>,
        charge: impl Fn(&Arc<Sender>, &Series) -> RestoredCharge,
    ) {
        let renamed: Vec<(Box<str>, Arc<Series>)> = self
            .restored
            .iter()
            .filter_map(|(text, one)| Some((text.clone(), rename(&one.series)?)))
            .collect();
        for (text, series) in renamed {
            let Some(mut one) = self.restored.remove(&text) else {
                continue;
            };
            if let Some(place) = one.slot.take() {
                self.remove(place);
            }
            let Some(old) = one.charge.take() else {
                continue;
            };
            if self.restored.contains_key(series.text()) {
                continue;
            }
            let sender = old.sender().clone();
            drop(old);
            one.series = series;
            let charge = charge(&sender, &one.series);
            self.publish(&mut one, charge);
            self.restored.insert(one.series.text().into(), one);
        }
    }

    fn assign_slot(&mut self, series: Arc<Series>, sender: Option<&Arc<Sender>>) -> ValueSlot {
        let key = sender_key(sender);
        let with_room = self.groups_with_room.get(&key).and_then(|all| all.last());
        let at = match with_room {
            Some(&at) => at as usize,
            None => self.add_group(sender),
        };
        let shelf = &mut self.groups[at];
        let place = ValueSlot {
            group: at as u32,
            slot: shelf.group.add(series),
        };
        shelf.has_new_series = true;
        if shelf.group.len() == shelf.capacity() {
            shelf.has_room = false;
            if let Some(with_room) = self.groups_with_room.get_mut(&key) {
                with_room.pop();
            }
        }
        place
    }

    fn add_group(&mut self, sender: Option<&Arc<Sender>>) -> usize {
        let free = self.free_groups.pop().map(|at| at as usize);
        let at = free.unwrap_or(self.groups.len());
        let name = group_name(self.name, at, sender);
        self.stale_groups.retain(|group| **group != *name);
        let group = ValueGroup {
            group: SampleGroup::new(&name, LEVEL_MAX, LIVE_MS),
            sender: sender.cloned(),
            is_changed: false,
            has_new_series: false,
            has_lost_series: false,
            has_room: true,
            last_written: Millis::MIN,
        };
        match free {
            Some(at) => self.groups[at] = group,
            None => self.groups.push(group),
        }
        let with_room = self.groups_with_room.entry(sender_key(sender));
        with_room.or_default().push(at as u32);
        at
    }

    /// Makes a group of a sender usable for others. It has no series, and the store knows.
    fn free_group(&mut self, at: usize) {
        let Some(sender) = self.groups[at].sender.take() else {
            return;
        };
        let key = sender_key(Some(&sender));
        if let Some(with_room) = self.groups_with_room.get_mut(&key) {
            with_room.retain(|with_room| *with_room as usize != at);
            if with_room.is_empty() {
                self.groups_with_room.remove(&key);
            }
        }
        self.free_groups.push(at as u32);
    }

    #[inline]
    pub fn set(&mut self, place: ValueSlot, value: f64) {
        let shelf = &mut self.groups[place.group as usize];
        if shelf.group.get(place.slot).map(f64::to_bits) != Some(value.to_bits()) {
            shelf.group.set(place.slot, value);
            shelf.is_changed = true;
        }
    }

    /// Returns whether the series has this value.
    pub fn has_value(&self, place: ValueSlot, value: f64) -> bool {
        let held = self.groups[place.group as usize].group.get(place.slot);
        held.map(f64::to_bits) == Some(value.to_bits())
    }

    /// Removes the value of a series for now; the series keeps its slot.
    pub fn clear(&mut self, place: ValueSlot) {
        let shelf = &mut self.groups[place.group as usize];
        if shelf.group.get(place.slot).is_some() {
            shelf.group.unset(place.slot);
            shelf.is_changed = true;
        }
    }

    /// Removes a series. It is absent from the next tick on; its stored samples stay.
    pub fn remove(&mut self, place: ValueSlot) {
        let shelf = &mut self.groups[place.group as usize];
        shelf.group.retire(place.slot);
        shelf.is_changed = true;
        shelf.has_lost_series = true;
        if !shelf.has_room {
            shelf.has_room = true;
            let key = sender_key(shelf.sender.as_ref());
            let with_room = self.groups_with_room.entry(key);
            with_room.or_default().push(place.group);
        }
    }

    /// Returns the number of series.
    pub fn len(&self) -> usize {
        self.groups.iter().map(|shelf| shelf.group.len()).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds rows for groups that changed, and for those that were idle for [`IDLE_WRITE_INTERVAL`].
    pub fn emit(&mut self, tick: &mut Tick) {
        let now = tick.time;
        for name in self.stale_groups.drain(..) {
            tick.append_empty(Arc::new(GroupSeries {
                group: name,
                series: Vec::new(),
                stale_after: 0,
            }));
        }
        if !self.restored.is_empty() && now > self.restored_until {
            self.remove_restored(|_| true);
            self.restored = HashMap::new();
        }
        let heartbeat = IDLE_WRITE_INTERVAL.as_millis() as Millis;
        for at in 0..self.groups.len() {
            let shelf = &self.groups[at];
            // A clock that was set back must not silence an idle group.
            let is_due =
                now.saturating_sub(shelf.last_written) >= heartbeat || now < shelf.last_written;
            if shelf.is_changed || (is_due && !shelf.group.is_empty()) {
                self.emit_group(at, tick);
            }
        }
    }

    /// Adds rows for the changed groups of senders that wait until their values are in the log, and
    /// charges the rows to them. Groups of other senders are left to the next tick, except those
    /// that lost a series: no series may be in two groups.
    pub fn emit_awaited(&mut self, tick: &mut Tick) {
        if !self.stale_groups.is_empty() {
            return self.emit(tick);
        }
        for at in 0..self.groups.len() {
            let shelf = &mut self.groups[at];
            let sender = shelf.sender.clone();
            let awaited = sender.filter(|sender| sender.input == Input::Push && shelf.is_changed);
            if let Some(sender) = &awaited {
                sender.charge(shelf.row_bytes());
            }
            if awaited.is_some() || shelf.has_lost_series {
                self.emit_group(at, tick);
            }
        }
    }

    fn emit_group(&mut self, at: usize, tick: &mut Tick) {
        let shelf = &mut self.groups[at];
        shelf.group.append_to(tick);
        shelf.is_changed = false;
        shelf.has_new_series = false;
        shelf.has_lost_series = false;
        shelf.last_written = tick.time;
        if shelf.group.is_empty() {
            self.free_group(at);
        }
    }
}
