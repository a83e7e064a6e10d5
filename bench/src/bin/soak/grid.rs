//! Which nominal times of the node's samples are stored.

use std::collections::BTreeSet;

/// Counts the nominal times from the first to the last one that is stored, and those of them that are not. Samples at
/// other times, such as the first one of an agent, stand for no nominal time.
pub fn count(times: impl IntoIterator<Item = i64>, rate: i64) -> Option<(i64, i64)> {
    let nominal = times.into_iter().filter(|time| time % rate == 0);
    let stored: BTreeSet<i64> = nominal.collect();
    let count = (stored.last()? - stored.first()?) / rate + 1;
    Some((count, count - stored.len() as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_off_the_grid_hides_no_missed_one() {
        assert_eq!(count([], 100), None);
        assert_eq!(count([7], 100), None);
        assert_eq!(count([37, 100, 200, 300], 100), Some((3, 0)));
        assert_eq!(count([37, 100, 300, 400], 100), Some((4, 1)));
        assert_eq!(count([100, 150, 300], 100), Some((3, 1)));
        assert_eq!(count([100, 100, 300], 100), Some((3, 1)), "a duplicate");
    }
}
