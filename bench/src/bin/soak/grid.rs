//! Counts the nominal sample times that are missing from the store.

use std::collections::BTreeSet;

/// Returns the number of nominal times between the first and the last stored one, and how many of
/// them are missing. Samples at other times, such as the first one of an agent, are ignored.
pub(crate) fn count(times: impl IntoIterator<Item = i64>, rate: i64) -> Option<(i64, i64)> {
    let nominal = times.into_iter().filter(|time| time % rate == 0);
    let stored: BTreeSet<i64> = nominal.collect();
    let count = (stored.last()? - stored.first()?) / rate + 1;
    Some((count, count - stored.len() as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_off_the_grid_do_not_hide_missing_ones() {
        assert_eq!(count([], 100), None);
        assert_eq!(count([7], 100), None);
        assert_eq!(count([37, 100, 200, 300], 100), Some((3, 0)));
        assert_eq!(count([37, 100, 300, 400], 100), Some((4, 1)));
        assert_eq!(count([100, 150, 300], 100), Some((3, 1)));
        assert_eq!(count([100, 100, 300], 100), Some((3, 1)), "a duplicate");
    }
}
