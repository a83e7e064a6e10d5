//! The expected current values: what `Store::latest` must return.
//!
//! Some results depend on when the store removed a series that was no longer live: on rotation, or
//! by a restart after its block was written. Those are marked as inexact, and checked less
//! strictly.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use pegel_metric::{Millis, Series};
use pegel_store::LatestValue;

use super::naive_store::NaiveStore;

/// The time for which an ungrouped series stays current.
const UNGROUPED_LIVE_MS: Millis = 5 * 60 * 1000;

/// The newest sample of each series: its time and the bits of its value.
pub(super) type NewestSamples = HashMap<Arc<Series>, (Millis, u64)>;

#[derive(Debug, Default)]
pub(super) struct ExpectedCurrentValues {
    groups: Vec<ExpectedGroup>,
    loose: HashMap<Arc<Series>, ExpectedValue>,
    /// Series that were in a group at some time.
    grouped: HashSet<Arc<Series>>,
    /// Points ahead of the clock, which become current when their time has come.
    ahead: BTreeMap<(Millis, Arc<Series>), f64>,
    /// Series with points that were current before the clock was set back, and were ahead of it
    /// when the store was opened again.
    is_ahead_again: HashSet<Arc<Series>>,
    /// Whether the clock was set back since the store was opened: current points may be ahead of it
    /// now.
    was_set_back: bool,
}

#[derive(Debug, Default)]
struct ExpectedGroup {
    live_for: Millis,
    time: Millis,
    is_sure: bool,
    values: HashMap<Arc<Series>, ExpectedValue>,
}

#[derive(Debug, Clone, Copy)]
struct ExpectedValue {
    bits: u64,
    seen: Millis,
    changed: Millis,
    /// Otherwise the store may report a later time than `changed`.
    changed_is_exact: bool,
    is_sure: bool,
}

impl ExpectedValue {
    fn new(bits: u64, time: Millis) -> ExpectedValue {
        ExpectedValue {
            bits,
            seen: time,
            changed: time,
            changed_is_exact: true,
            is_sure: true,
        }
    }

    fn take(&mut self, bits: u64, time: Millis) {
        if !self.is_sure {
            // The store may know another previous value, or none.
            *self = ExpectedValue::new(bits, time);
            self.changed = Millis::MIN;
            self.changed_is_exact = false;
        } else if bits != self.bits {
            *self = ExpectedValue::new(bits, time);
        } else {
            self.seen = time;
        }
    }

    fn accepts(&self, latest: &LatestValue) -> bool {
        let changed_fits = if self.changed_is_exact {
            latest.last_changed == self.changed
        } else {
            // It may also be after `seen`: a row after a step back of the clock is older than its
            // past.
            self.changed <= latest.last_changed
        };
        latest.value.to_bits() == self.bits && latest.last_sampled == self.seen && changed_fits
    }
}

impl ExpectedCurrentValues {
    pub(super) fn row(
        &mut self,
        group: usize,
        live_for: Millis,
        time: Millis,
        row: &[(Arc<Series>, f64)],
    ) {
        if self.groups.len() <= group {
            self.groups.resize_with(group + 1, ExpectedGroup::default);
        }
        let known = &mut self.groups[group];
        let mut values = HashMap::new();
        for (series, value) in row {
            let bits = value.to_bits();
            self.grouped.insert(series.clone());
            let now = match known.values.get(series) {
                Some(now) => {
                    let mut now = ExpectedValue {
                        is_sure: known.is_sure,
                        ..*now
                    };
                    now.take(bits, time);
                    now
                }
                None => ExpectedValue::new(bits, time),
            };
            values.insert(series.clone(), now);
        }
        *known = ExpectedGroup {
            live_for,
            time,
            is_sure: true,
            values,
        };
    }

    pub(super) fn point(&mut self, series: &Arc<Series>, time: Millis, value: f64, clock: Millis) {
        if time > clock {
            self.ahead.insert((time, series.clone()), value);
            return;
        }
        let bits = value.to_bits();
        match self.loose.get_mut(series) {
            None => drop(
                self.loose
                    .insert(series.clone(), ExpectedValue::new(bits, time)),
            ),
            Some(now) if time >= now.seen || now.seen > clock => now.take(bits, time),
            Some(_) => {}
        }
    }

    /// Applies a change: points that are due become current.
    pub(super) fn changed(&mut self, clock: Millis) {
        while let Some(entry) = self.ahead.first_entry()
            && entry.key().0 <= clock
        {
            let ((time, series), value) = entry.remove_entry();
            self.point(&series, time, value, clock);
        }
    }

    pub(super) fn set_back(&mut self, clock: Millis) {
        self.was_set_back = true;
        for loose in self.loose.values_mut() {
            loose.is_sure &= loose.seen <= clock;
        }
        self.clock(clock);
    }

    /// Called when the clock ran ahead of the writer, which may have treated live groups as expired
    /// and lost their times of change.
    pub(super) fn mark_change_times_inexact(&mut self) {
        for group in &mut self.groups {
            let values = group.values.values_mut();
            values.for_each(|now| now.changed_is_exact = false);
        }
    }

    /// Called when the clock moved: series that are no longer live may have been removed.
    pub(super) fn clock(&mut self, now: Millis) {
        for group in &mut self.groups {
            group.is_sure &= now - group.time <= group.live_for;
        }
        for loose in self.loose.values_mut() {
            loose.is_sure &= now - loose.seen <= UNGROUPED_LIVE_MS;
        }
    }

    /// Called when the store was reopened: series with samples only in blocks are not current any
    /// more.
    pub(super) fn reopened(&mut self, clock: Millis, naive: &NaiveStore) {
        self.changed(clock);
        let series = self.loose.keys();
        let is_ahead =
            |series: &&Arc<Series>| naive.newest(series, Millis::MAX) > naive.newest(series, clock);
        self.is_ahead_again.extend(series.filter(is_ahead).cloned());
        self.was_set_back = false;
        self.groups
            .iter_mut()
            .for_each(|group| group.is_sure = false);
        self.loose
            .values_mut()
            .for_each(|loose| loose.is_sure = false);
    }

    /// Compares with the current values of the store. `retained` holds the newest sample of each
    /// series that retention by bytes has left; `None` if no sample can be missing.
    pub(super) fn check(
        &self,
        visits: Vec<(Arc<Series>, LatestValue)>,
        now: Millis,
        naive: &NaiveStore,
        retained: Option<&NewestSamples>,
    ) {
        let mut visited: BTreeMap<Arc<Series>, LatestValue> = BTreeMap::new();
        for (series, latest) in visits {
            let again = visited.insert(series.clone(), latest);
            assert!(
                again.is_none(),
                "{series} is current twice: {latest:?}, {again:?}"
            );
        }
        let mut wanted: BTreeMap<&Arc<Series>, Vec<ExpectedValue>> = BTreeMap::new();
        for group in &self.groups {
            if now - group.time <= group.live_for {
                for (series, value) in &group.values {
                    let is_sure = group.is_sure;
                    let value = ExpectedValue {
                        is_sure,
                        seen: group.time,
                        ..*value
                    };
                    wanted.entry(series).or_default().push(value);
                }
            }
        }
        for (series, value) in &self.loose {
            if now - value.seen <= UNGROUPED_LIVE_MS {
                wanted.entry(series).or_default().push(*value);
            }
        }
        for (series, latest) in &visited {
            let known = wanted.get(series).map_or(&[][..], |known| known);
            let is_clear = !known.is_empty() && !self.is_ahead_again.contains(series);
            let is_sure = is_clear && known.iter().all(|now| now.is_sure);
            let newest = known.iter().map(|now| now.seen).max();
            // Of a series that is both in a group and ungrouped the newest value wins, of equal
            // times the last.
            let fits = known.iter().any(|now| match known.len() {
                1 => now.accepts(latest),
                _ => Some(latest.last_sampled) == newest && now.changed <= latest.last_changed,
            });
            if !self.grouped.contains(series) && !self.was_set_back {
                let shown = (latest.last_sampled, latest.value.to_bits());
                let newest = naive.newest(series, now);
                let left = retained.map(|retained| retained.get(series));
                let is_newest_left =
                    left.is_some_and(|left| left.is_none_or(|left| left.0 <= shown.0));
                assert!(
                    newest == Some(shown) || is_newest_left,
                    "{series} is {shown:?}, not {newest:?}; retained: {left:?}"
                );
            }
            let is_stored = naive.get(series, latest.last_sampled) == Some(latest.value.to_bits());
            assert!(
                is_stored && (fits || !is_sure),
                "{series} is {latest:?}, not {known:?}; stored then: {:?}",
                naive.get(series, latest.last_sampled).map(f64::from_bits)
            );
        }
        for (series, known) in wanted {
            let is_clear = !self.is_ahead_again.contains(series);
            let is_sure = is_clear && known.iter().any(|now| now.is_sure);
            assert!(
                !is_sure || visited.contains_key(series),
                "{series} is not current, but {known:?}"
            );
        }
    }
}
