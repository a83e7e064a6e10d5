//! The last totals of senders that send cumulative counters: only the increase since the last total
//! counts.
//!
//! A *pair* is one name and one sender with the total that it sent last. Pairs are bounded, and
//! every operation takes constant time, because all of them happen under the table's lock: a hash
//! map finds a pair, one list orders all pairs by the interval of their last line, another links
//! the pairs of each name. The list of a deleted name is kept, and new pairs reuse its pairs one by
//! one.

use std::collections::HashMap;

use crate::slab::Slab;

/// The most pairs of a name and a sender that are kept.
pub(crate) const PAIRS_MAX: usize = 65_536;
/// The number of them reserved for trusted senders.
const PAIRS_RESERVED: usize = PAIRS_MAX / 8;
/// When all are in use, pairs without a line for this many intervals are replaced.
const SILENT_FLUSHES: u32 = 60;

/// The number of a name whose senders are counted separately.
pub(crate) type NameId = u32;

#[derive(Debug, Default)]
pub(crate) struct CumulativeTotals {
    index: HashMap<(NameId, u64), u32>,
    pairs: Slab<SenderTotal>,
    /// All pairs, the longest idle first.
    by_age: TotalList,
    names: Slab<TotalList>,
    /// Deleted names that still have pairs.
    deleted: Vec<NameId>,
    flushes: u32,
}

#[derive(Debug)]
struct SenderTotal {
    name: NameId,
    sender: u64,
    value: f64,
    /// The interval of its last line.
    flush: u32,
    links: [ListLinks; 2],
}

/// The index of each list in the links of a pair.
const AGE: usize = 0;
const NAME: usize = 1;

#[derive(Debug, Default, Clone, Copy)]
struct ListLinks {
    before: Option<u32>,
    after: Option<u32>,
}

#[derive(Debug, Default, Clone, Copy)]
struct TotalList {
    first: Option<u32>,
    last: Option<u32>,
}

impl TotalList {
    fn append(&mut self, pairs: &mut Slab<SenderTotal>, which: usize, at: u32) {
        pairs[at].links[which] = ListLinks {
            before: self.last,
            after: None,
        };
        match self.last {
            Some(last) => pairs[last].links[which].after = Some(at),
            None => self.first = Some(at),
        }
        self.last = Some(at);
    }

    fn unlink(&mut self, pairs: &mut Slab<SenderTotal>, which: usize, at: u32) {
        let ListLinks { before, after } = pairs[at].links[which];
        match before {
            Some(before) => pairs[before].links[which].after = after,
            None => self.first = after,
        }
        match after {
            Some(after) => pairs[after].links[which].before = before,
            None => self.last = before,
        }
    }
}

impl CumulativeTotals {
    pub(super) fn add_name(&mut self) -> NameId {
        self.names.add(TotalList::default())
    }

    /// Deletes a name. Its number is not reused as long as it has pairs.
    pub(super) fn remove_name(&mut self, name: NameId) {
        match self.names[name].first {
            Some(_) => self.deleted.push(name),
            None => drop(self.names.remove(name)),
        }
    }

    /// Returns what to subtract from the sender's total before it is added to the series: its last
    /// total, or 0 if the new total is smaller, because the sender restarted. `None` when there are
    /// too many pairs.
    pub(super) fn advance(
        &mut self,
        name: NameId,
        sender: u64,
        value: f64,
        is_trusted: bool,
    ) -> Option<f64> {
        if let Some(&at) = self.index.get(&(name, sender)) {
            let pair = &mut self.pairs[at];
            let known = if value >= pair.value { pair.value } else { 0.0 };
            pair.value = value;
            if pair.flush != self.flushes {
                pair.flush = self.flushes;
                self.by_age.unlink(&mut self.pairs, AGE, at);
                self.by_age.append(&mut self.pairs, AGE, at);
            }
            return Some(known);
        }
        let max = if is_trusted {
            PAIRS_MAX
        } else {
            PAIRS_MAX - PAIRS_RESERVED
        };
        if self.index.len() >= max && !self.make_room() {
            return None;
        }
        let at = self.pairs.add(SenderTotal {
            name,
            sender,
            value,
            flush: self.flushes,
            links: Default::default(),
        });
        self.by_age.append(&mut self.pairs, AGE, at);
        self.names[name].append(&mut self.pairs, NAME, at);
        self.index.insert((name, sender), at);
        Some(0.0)
    }

    pub(super) fn flush(&mut self) {
        self.flushes = self.flushes.wrapping_add(1);
    }

    /// Removes one pair: of a deleted name, else the one that was idle longest, if it was idle long
    /// enough.
    fn make_room(&mut self) -> bool {
        let of_deleted = self.deleted.last().and_then(|&name| self.names[name].first);
        let silent = self.by_age.first.filter(|&at| {
            let silence = self.flushes.wrapping_sub(self.pairs[at].flush);
            silence >= SILENT_FLUSHES
        });
        let Some(at) = of_deleted.or(silent) else {
            return false;
        };
        let name = self.pairs[at].name;
        self.by_age.unlink(&mut self.pairs, AGE, at);
        self.names[name].unlink(&mut self.pairs, NAME, at);
        if let Some(pair) = self.pairs.remove(at) {
            self.index.remove(&(name, pair.sender));
        }
        if of_deleted.is_some() && self.names[name].first.is_none() {
            self.deleted.pop();
            self.names.remove(name);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: usize = PAIRS_MAX - PAIRS_RESERVED;

    #[test]
    fn only_what_was_added_counts() {
        let mut totals = CumulativeTotals::default();
        let name = totals.add_name();
        let known = [10.0, 15.0, 15.0, 4.0, 6.0].map(|value| totals.advance(name, 1, value, false));
        assert_eq!(known, [0.0, 10.0, 15.0, 0.0, 4.0].map(Some));
    }

    #[test]
    fn senders_and_series_do_not_mix() {
        let mut totals = CumulativeTotals::default();
        let names = [totals.add_name(), totals.add_name()];
        for (name, sender, value, known) in [
            (0, 1, 100.0, 0.0),
            (0, 2, 7.0, 0.0),
            (1, 1, 3.0, 0.0),
            (0, 1, 101.0, 100.0),
            (0, 2, 8.0, 7.0),
        ] {
            let found = totals.advance(names[name], sender, value, false);
            assert_eq!(found, Some(known));
        }
    }

    #[test]
    fn senders_without_end_are_refused_until_some_are_silent() {
        let mut totals = CumulativeTotals::default();
        let name = totals.add_name();
        for sender in 0..OPEN as u64 {
            assert_eq!(totals.advance(name, sender, 1.0, false), Some(0.0));
        }
        assert_eq!(totals.advance(name, u64::MAX, 1.0, false), None);
        (0..SILENT_FLUSHES).for_each(|_| totals.flush());
        assert_eq!(totals.advance(name, 0, 2.0, false), Some(1.0), "not silent");
        // Each new pair replaces one, in the order in which they became idle.
        for sender in 1..OPEN as u64 {
            assert_eq!(
                totals.advance(name, u64::MAX - sender, 1.0, false),
                Some(0.0)
            );
        }
        assert_eq!(totals.advance(name, u64::MAX, 1.0, false), None);
        assert_eq!(
            totals.advance(name, 0, 3.0, false),
            Some(2.0),
            "still known"
        );
        assert_eq!(totals.index.len(), OPEN);
    }

    #[test]
    fn a_part_is_kept_for_trusted_senders() {
        let mut totals = CumulativeTotals::default();
        let name = totals.add_name();
        for sender in 0..OPEN as u64 {
            totals.advance(name, sender, 1.0, false).expect("room");
        }
        assert_eq!(totals.advance(name, u64::MAX, 1.0, false), None);
        for sender in OPEN as u64..PAIRS_MAX as u64 {
            assert_eq!(totals.advance(name, sender, 1.0, true), Some(0.0));
        }
        assert_eq!(totals.advance(name, u64::MAX, 1.0, true), None);
    }

    /// Deleting a name is one push onto a list, however many pairs it has; each later pair frees
    /// one of them.
    #[test]
    fn the_pairs_of_a_deleted_name_make_room_one_by_one() {
        let mut totals = CumulativeTotals::default();
        let [old, new] = [totals.add_name(), totals.add_name()];
        for sender in 0..OPEN as u64 {
            totals.advance(old, sender, 1.0, false).expect("room");
        }
        totals.remove_name(old);
        assert_eq!(totals.index.len(), OPEN, "nothing is walked");
        assert_ne!(totals.add_name(), old, "its pairs are still there");
        for sender in 0..OPEN as u64 {
            assert_eq!(totals.advance(new, sender, 1.0, false), Some(0.0));
            assert_eq!(totals.index.len(), OPEN);
        }
        assert_eq!(totals.advance(new, u64::MAX, 1.0, false), None);
        assert!(totals.deleted.is_empty());
        assert_eq!(totals.add_name(), old, "a number without pairs is free");
    }
}
