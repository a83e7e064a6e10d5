//! The last totals of those who send their own: only what was added since counts.

use std::collections::HashMap;

/// How many pairs of a series and a sender are remembered.
const PAIRS_MAX: usize = 65_536;
/// When there are that many, senders that said nothing for this many flushes are taken for gone.
const SILENT_FLUSHES: u32 = 60;

#[derive(Debug, Default)]
pub(crate) struct Cumulative {
    last: HashMap<(u32, u64), Last>,
    flushes: u32,
}

#[derive(Debug)]
struct Last {
    value: f64,
    flush: u32,
}

impl Cumulative {
    /// What to take off the sender's total before it is added to the series: its last one, or nothing where
    /// it is smaller than that, because the sender started anew. `None` when there are too many senders to
    /// tell apart.
    pub fn step(&mut self, entry: u32, sender: u64, value: f64) -> Option<f64> {
        let flush = self.flushes;
        if let Some(last) = self.last.get_mut(&(entry, sender)) {
            let known = if value >= last.value { last.value } else { 0.0 };
            *last = Last { value, flush };
            return Some(known);
        }
        if self.last.len() >= PAIRS_MAX {
            self.last
                .retain(|_, last| flush.wrapping_sub(last.flush) < SILENT_FLUSHES);
            if self.last.len() >= PAIRS_MAX {
                return None;
            }
        }
        self.last.insert((entry, sender), Last { value, flush });
        Some(0.0)
    }

    pub fn flush(&mut self) {
        self.flushes = self.flushes.wrapping_add(1);
    }

    pub fn forget(&mut self, entry: u32) {
        self.last.retain(|(of, _), _| *of != entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_added_counts() {
        let mut totals = Cumulative::default();
        let known = [10.0, 15.0, 15.0, 4.0, 6.0].map(|value| totals.step(0, 1, value));
        assert_eq!(known, [0.0, 10.0, 15.0, 0.0, 4.0].map(Some));
    }

    #[test]
    fn senders_and_series_do_not_mix() {
        let mut totals = Cumulative::default();
        for (entry, sender, value, known) in [
            (0, 1, 100.0, 0.0),
            (0, 2, 7.0, 0.0),
            (1, 1, 3.0, 0.0),
            (0, 1, 101.0, 100.0),
            (0, 2, 8.0, 7.0),
        ] {
            assert_eq!(totals.step(entry, sender, value), Some(known));
        }
    }

    #[test]
    fn senders_without_end_are_refused_until_some_are_silent() {
        let mut totals = Cumulative::default();
        for sender in 0..PAIRS_MAX as u64 {
            assert_eq!(totals.step(0, sender, 1.0), Some(0.0));
        }
        assert_eq!(totals.step(0, u64::MAX, 1.0), None);
        (0..SILENT_FLUSHES).for_each(|_| totals.flush());
        assert_eq!(
            totals.step(0, 0, 2.0),
            Some(1.0),
            "one of them is not silent"
        );
        assert_eq!(totals.step(0, u64::MAX, 1.0), Some(0.0));
        assert_eq!(totals.last.len(), 2);
    }
}
