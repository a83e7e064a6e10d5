//! Updates of the words of a slot: plain atomics, so that threads and signal handlers may run them
//! at any time, and a reader sees each word whole. Words of one slot may be slightly out of step.

use crate::atomic::{AtomicU64, Ordering::Relaxed};
use crate::bucket::bucket_of;
use crate::layout::word;

/// The words for the smallest and largest value are XORed with these, so that zeroed memory means
/// unset.
pub(crate) const MIN_UNSET: u64 = f64::INFINITY.to_bits();
pub(crate) const MAX_UNSET: u64 = f64::NEG_INFINITY.to_bits();

/// Adds to a whole number. An amount with the highest bit set was negative before a cast and is
/// ignored.
#[inline]
pub(crate) fn add(line: &[AtomicU64; word::LINE], value: &AtomicU64, amount: u64) {
    if amount >> 63 == 0 {
        value.fetch_add(amount, Relaxed);
    } else {
        line[word::IGNORED].fetch_add(1, Relaxed);
    }
}

/// Adds to a floating point number; retries until no other update intervened.
#[inline]
pub(crate) fn add_float(cell: &AtomicU64, amount: f64) {
    let mut seen = cell.load(Relaxed);
    loop {
        let sum = (f64::from_bits(seen) + amount).to_bits();
        match cell.compare_exchange_weak(seen, sum, Relaxed, Relaxed) {
            Ok(_) => return,
            Err(now) => seen = now,
        }
    }
}

/// Keeps the better of two numbers; usually a single load.
#[inline]
fn update_extreme(cell: &AtomicU64, none: u64, value: f64, is_better: impl Fn(f64, f64) -> bool) {
    let mut seen = cell.load(Relaxed);
    while is_better(value, f64::from_bits(seen ^ none)) {
        match cell.compare_exchange_weak(seen, value.to_bits() ^ none, Relaxed, Relaxed) {
            Ok(_) => return,
            Err(now) => seen = now,
        }
    }
}

/// Records one value of a histogram: `line` is the first of its slot, `buckets` follow.
#[inline]
pub(crate) fn record(line: &[AtomicU64; word::LINE], buckets: &[AtomicU64], value: f64) {
    if !value.is_finite() {
        line[word::IGNORED].fetch_add(1, Relaxed);
        return;
    }
    if let Some(bucket) = buckets.get(bucket_of(value)) {
        bucket.fetch_add(1, Relaxed);
    }
    add_float(&line[word::SUM], value);
    update_extreme(&line[word::MIN], MIN_UNSET, value, |new, old| new < old);
    update_extreme(&line[word::MAX], MAX_UNSET, value, |new, old| new > old);
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;
    use crate::bucket::BUCKETS;

    #[test]
    fn a_histogram_starts_from_zeroed_memory() {
        let line: [AtomicU64; 8] = Default::default();
        let buckets: Vec<AtomicU64> = (0..BUCKETS).map(|_| AtomicU64::new(0)).collect();
        for value in [2.0, -3.0, 0.5, f64::NAN, f64::INFINITY] {
            record(&line, &buckets, value);
        }
        let count: u64 = buckets.iter().map(|bucket| bucket.load(Relaxed)).sum();
        assert_eq!(count, 3);
        assert_eq!(f64::from_bits(line[word::SUM].load(Relaxed)), -0.5);
        assert_eq!(
            f64::from_bits(line[word::MIN].load(Relaxed) ^ MIN_UNSET),
            -3.0
        );
        assert_eq!(
            f64::from_bits(line[word::MAX].load(Relaxed) ^ MAX_UNSET),
            2.0
        );
        assert_eq!(line[word::IGNORED].load(Relaxed), 2);
    }

    #[test]
    fn a_negative_amount_is_not_a_huge_one() {
        let line: [AtomicU64; 8] = Default::default();
        add(&line, &line[word::VALUE], 5);
        add(&line, &line[word::VALUE], -1_i64 as u64);
        assert_eq!(line[word::VALUE].load(Relaxed), 5);
        assert_eq!(line[word::IGNORED].load(Relaxed), 1);
    }
}
