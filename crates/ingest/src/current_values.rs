//! The current values of programs' metrics, from which the store is sampled.
//!
//! The lanes and the statsd source each own one [`CurrentValues`] and set values in it; at each
//! tick the program sampler calls [`CurrentValues::emit`]. Series are arranged in groups of at most
//! [`GROUP_SERIES`]. A group whose values changed since the last tick emits a row with all its
//! values; an unchanged one emits a row every [`IDLE_WRITE_INTERVAL`], so that a hundred thousand
//! idle series cost almost nothing. Counters continue from their totals in the store after a
//! restart.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use pegel_metric::{GroupSeries, Level, MetricKind, Millis, SampleGroup, Series, Slot, Tick};
use pegel_store::Store;

use crate::admission::SeriesPermit;

/// Small enough that one busy series does not drag many idle ones into every row.
const GROUP_SERIES: usize = 256;
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
    /// Groups that may have room.
    groups_with_room: Vec<u32>,
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
    /// Its slot while it is published.
    slot: Option<ValueSlot>,
    /// Its charge while it is published.
    permit: Option<SeriesPermit>,
}

#[derive(Debug)]
struct ValueGroup {
    group: SampleGroup,
    is_changed: bool,
    has_room: bool,
    last_written: Millis,
}

impl CurrentValues {
    /// Continues the values of the same name of a previous agent: counters resume from their last
    /// totals.
    pub fn new(name: &'static str, store: &Store, now: Millis) -> CurrentValues {
        let prefix = format!("{name}-");
        let mut restored = HashMap::new();
        let mut left_over = Vec::new();
        for (members, values) in store.last_group_rows(&prefix) {
            for (series, value) in members.series.iter().zip(values) {
                if let (MetricKind::Counter, Some(value)) = (series.family().kind, value) {
                    let known = RestoredTotal {
                        series: series.clone(),
                        value,
                        slot: None,
                        permit: None,
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
            groups_with_room: Vec::new(),
            restored,
            restored_until: now + RESTORED_MS,
            stale_groups: left_over,
        }
    }

    /// Adds a series that is not present yet. Returns its slot, and the total that it had before a
    /// restart.
    pub fn add(&mut self, series: Arc<Series>) -> (ValueSlot, Option<f64>) {
        let restored = self.restored.remove(series.text());
        let value = restored.as_ref().map(|restored| restored.value);
        if let Some(restored) = restored
            && let Some(place) = restored.slot
        {
            if restored.series.family().kind == series.family().kind {
                return (place, value);
            }
            self.remove(place);
        }
        (self.assign_slot(series), value)
    }

    /// Publishes the totals from before a restart that `charge` permits, until their series is
    /// added or they are dropped. Those with short names come first, so that a few with very long
    /// ones do not use up the limit.
    pub fn publish_restored(
        &mut self,
        now: Millis,
        mut charge: impl FnMut(&Series) -> Option<SeriesPermit>,
    ) {
        self.restored_until = now + PUBLISHED_RESTORED_MS;
        let restored = std::mem::take(&mut self.restored);
        let mut restored: Vec<(Box<str>, RestoredTotal)> = restored.into_iter().collect();
        restored.sort_unstable_by_key(|(text, _)| text.len());
        for (text, mut one) in restored {
            one.permit = charge(&one.series);
            if one.permit.is_some() {
                let place = self.assign_slot(one.series.clone());
                self.set(place, one.value);
                one.slot = Some(place);
                self.restored.insert(text, one);
            }
        }
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

    /// Renames totals from before a restart. `rename` returns the new series of a total that must
    /// be renamed.
    pub fn rename_restored(&mut self, rename: impl Fn(&Series) -> Option<Arc<Series>>) {
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
            if self.restored.contains_key(series.text()) {
                continue;
            }
            let place = self.assign_slot(series.clone());
            self.set(place, one.value);
            let value = one.value;
            let restored = RestoredTotal {
                series,
                value,
                slot: Some(place),
                permit: one.permit,
            };
            self.restored
                .insert(restored.series.text().into(), restored);
        }
    }

    fn assign_slot(&mut self, series: Arc<Series>) -> ValueSlot {
        let at = match self.groups_with_room.last() {
            Some(&at) => at as usize,
            None => self.add_group(),
        };
        let shelf = &mut self.groups[at];
        let place = ValueSlot {
            group: at as u32,
            slot: shelf.group.add(series),
        };
        if shelf.group.len() == GROUP_SERIES {
            shelf.has_room = false;
            self.groups_with_room.pop();
        }
        place
    }

    fn add_group(&mut self) -> usize {
        let at = self.groups.len();
        let name = format!("{}-{at}", self.name);
        self.stale_groups.retain(|group| **group != *name);
        self.groups.push(ValueGroup {
            group: SampleGroup::new(&name, LEVEL_MAX, LIVE_MS),
            is_changed: false,
            has_room: true,
            last_written: Millis::MIN,
        });
        self.groups_with_room.push(at as u32);
        at
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
        if !shelf.has_room {
            shelf.has_room = true;
            self.groups_with_room.push(place.group);
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
        for shelf in &mut self.groups {
            // A clock that was set back must not silence an idle group.
            let is_due =
                now.saturating_sub(shelf.last_written) >= heartbeat || now < shelf.last_written;
            if shelf.is_changed || (is_due && !shelf.group.is_empty()) {
                shelf.group.append_to(tick);
                shelf.is_changed = false;
                shelf.last_written = now;
            }
        }
    }
}
