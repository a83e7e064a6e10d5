//! The series that a parent reduces, interned once, so that ticks and partial results carry a small
//! key instead of a text.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use pegel_metric::{MetricKind, Millis};

/// The most series of a table, whatever its limit. All keys are below.
pub const SERIES_KEYS_MAX: usize = 1 << 20;

/// The agent itself among the children that define series: it may fill the table.
const OWN_CHILD: u32 = 0;

/// A series that is reduced over nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReducedSeries {
    /// The name and all labels, without `host`.
    pub text: Arc<str>,
    /// As in the first definition. Cells of all children are made according to it.
    pub kind: MetricKind,
    pub unit: Arc<str>,
    pub help: Arc<str>,
}

impl ReducedSeries {
    pub fn is_counter(&self) -> bool {
        self.kind == MetricKind::Counter
    }

    pub fn name(&self) -> &str {
        self.text.split('{').next().unwrap_or_default()
    }
}

/// Interns the texts of reduced series.
///
/// Keys count up from 0. Each definition by a child is one use of the key; a series without uses
/// keeps its key until [`ReducedSeriesTable::reclaim`], so that ticks that are still open and
/// children that reconnect find it. When the table is full, new series are refused and counted.
/// So are those of a child that added as many as are left for all others.
#[derive(Debug)]
pub struct ReducedSeriesTable {
    series_max: usize,
    key_by_text: HashMap<Arc<str>, u32>,
    entries: Vec<Option<TableEntry>>,
    free_keys: Vec<u32>,
    /// The number of series that each child added; 0 is the agent itself.
    added: HashMap<u32, usize, AssignedKeyHash>,
    refused: u64,
}

#[derive(Debug)]
struct TableEntry {
    series: Arc<ReducedSeries>,
    /// The child that defined it first.
    child: u32,
    uses: u32,
    /// When the last use ended; only valid without uses.
    released: Millis,
}

impl ReducedSeriesTable {
    pub fn new(series_max: usize) -> ReducedSeriesTable {
        ReducedSeriesTable {
            series_max: series_max.min(SERIES_KEYS_MAX),
            key_by_text: HashMap::new(),
            entries: Vec::new(),
            free_keys: Vec::new(),
            added: HashMap::default(),
            refused: 0,
        }
    }

    /// Returns the key of a series and counts one use of it. The kind, unit and help of the first
    /// definition are kept. `None`: the table is full, or the child added too many.
    pub fn intern(
        &mut self,
        child: u32,
        text: &str,
        kind: MetricKind,
        unit: &str,
        help: &str,
    ) -> Option<u32> {
        if let Some(&key) = self.key_by_text.get(text) {
            if let Some(entry) = self.entry_mut(key) {
                entry.uses = entry.uses.saturating_add(1);
            }
            return Some(key);
        }
        let left = self.series_max - self.key_by_text.len();
        let added = self.added.entry(child).or_default();
        if left == 0 || (child != OWN_CHILD && *added >= left) {
            self.refused += 1;
            return None;
        }
        *added += 1;
        let text: Arc<str> = text.into();
        let entry = TableEntry {
            series: Arc::new(ReducedSeries {
                text: Arc::clone(&text),
                kind,
                unit: unit.into(),
                help: help.into(),
            }),
            child,
            uses: 1,
            released: 0,
        };
        let key = self.free_keys.pop().unwrap_or(self.entries.len() as u32);
        if key as usize == self.entries.len() {
            self.entries.push(None);
        }
        self.entries[key as usize] = Some(entry);
        self.key_by_text.insert(text, key);
        Some(key)
    }

    /// Ends one use of a key, at the time `now`.
    pub fn release(&mut self, key: u32, now: Millis) {
        if let Some(entry) = self.entry_mut(key) {
            entry.uses = entry.uses.saturating_sub(1);
            entry.released = now;
        }
    }

    /// Removes the series whose last use ended before `before`, and returns their keys, which new
    /// series will get. No open tick may contain them any more.
    pub fn reclaim(&mut self, before: Millis) -> Vec<u32> {
        let mut removed = Vec::new();
        for (key, slot) in self.entries.iter_mut().enumerate() {
            let is_unused = |entry: &mut TableEntry| entry.uses == 0 && entry.released < before;
            if let Some(entry) = slot.take_if(is_unused) {
                self.key_by_text.remove(&entry.series.text);
                if let Some(added) = self.added.get_mut(&entry.child) {
                    *added = added.saturating_sub(1);
                }
                removed.push(key as u32);
            }
        }
        self.added.retain(|_, added| *added > 0);
        self.free_keys.extend(&removed);
        removed
    }

    pub fn get(&self, key: u32) -> Option<&Arc<ReducedSeries>> {
        let entry = self.entries.get(key as usize)?.as_ref()?;
        Some(&entry.series)
    }

    pub fn key(&self, text: &str) -> Option<u32> {
        self.key_by_text.get(text).copied()
    }

    pub fn len(&self) -> usize {
        self.key_by_text.len()
    }

    pub fn is_empty(&self) -> bool {
        self.key_by_text.is_empty()
    }

    /// Returns the number of refused definitions.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    fn entry_mut(&mut self, key: u32) -> Option<&mut TableEntry> {
        self.entries.get_mut(key as usize)?.as_mut()
    }
}

/// A fast hash for numbers that this agent assigns, to series and nodes: a child cannot choose
/// collisions.
pub(crate) type AssignedKeyHash = BuildHasherDefault<AssignedKeyHasher>;

#[derive(Debug, Default)]
pub(crate) struct AssignedKeyHasher(u64);

impl Hasher for AssignedKeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32(u32::from(byte));
        }
    }

    fn write_u32(&mut self, key: u32) {
        // A hash map uses the highest and the lowest bits: multiply, then fold.
        let product = (self.0 ^ u64::from(key)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ (product >> 32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn intern(table: &mut ReducedSeriesTable, text: &str) -> Option<u32> {
        table.intern(OWN_CHILD, text, MetricKind::Gauge, "bytes", "Help.")
    }

    #[test]
    fn a_text_has_one_key_and_its_first_definition() {
        let mut table = ReducedSeriesTable::new(10);
        assert!(table.is_empty());
        assert_eq!(intern(&mut table, "a{b=\"c\"}"), Some(0));
        assert_eq!(intern(&mut table, "b"), Some(1));
        assert_eq!(
            table.intern(7, "a{b=\"c\"}", MetricKind::Counter, "", ""),
            Some(0)
        );
        let series = table.get(0).unwrap();
        assert_eq!(
            (series.name(), &*series.unit, series.is_counter()),
            ("a", "bytes", false)
        );
        assert_eq!(
            (table.get(2), table.key("b"), table.len()),
            (None, Some(1), 2)
        );
    }

    #[test]
    fn a_full_table_refuses_and_counts_until_unused_series_are_reclaimed() {
        let mut table = ReducedSeriesTable::new(2);
        for text in ["a", "b", "a"] {
            assert!(intern(&mut table, text).is_some());
        }
        assert_eq!(intern(&mut table, "c"), None);
        assert_eq!((intern(&mut table, "d"), table.refused()), (None, 2));
        assert_eq!(
            intern(&mut table, "b"),
            Some(1),
            "known series are not refused"
        );
        table.release(0, 100);
        assert!(table.reclaim(1_000).is_empty(), "still in use once");
        table.release(0, 200);
        assert!(table.reclaim(200).is_empty(), "released too recently");
        assert_eq!(table.reclaim(201), [0]);
        assert_eq!((table.get(0), table.key("a")), (None, None));
        assert_eq!(intern(&mut table, "c"), Some(0));
        assert_eq!(&*table.get(0).unwrap().text, "c");
        table.release(99, 0);
        assert!(ReducedSeriesTable::new(usize::MAX).series_max <= SERIES_KEYS_MAX);
    }

    #[test]
    fn a_child_with_very_many_series_leaves_half_of_the_room_to_others() {
        let mut table = ReducedSeriesTable::new(100);
        let mut define = |child: u32, number: u32| {
            let text = format!("s{child}_{number}");
            table
                .intern(child, &text, MetricKind::Gauge, "", "")
                .is_some()
        };
        assert_eq!((0..1000).filter(|number| define(1, *number)).count(), 50);
        assert_eq!((0..1000).filter(|number| define(2, *number)).count(), 25);
        assert!(define(3, 0), "a child with few series");
        assert!(define(1, 7), "a series that is known");
        assert_eq!((0..1000).filter(|number| define(0, *number)).count(), 24);
        (0..50).for_each(|key| table.release(key, 5));
        table.release(7, 5);
        assert_eq!(table.reclaim(6).len(), 50);
        assert!(intern(&mut table, "new").is_some());
        let text = |number: u32| format!("again{number}");
        let again = (0..1000).filter(|number| {
            let interned = table.intern(1, &text(*number), MetricKind::Gauge, "", "");
            interned.is_some()
        });
        assert_eq!(again.count(), 25, "its share counts what it has");
    }
}
