//! Checks the times of stored samples against the nominal times of their rate.

use std::collections::BTreeMap;

/// How many nominal times have a sample.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct GridCount {
    /// Nominal times between the first and the last sample.
    pub nominal: i64,
    /// Those without a sample.
    pub absent: i64,
    /// Those with more than one sample.
    pub repeated: i64,
}

/// Counts the nominal times, in steps of `rate`, that have a sample; `None` without samples. A
/// sample carries its nominal time or, if it was read late, a time before the next one.
pub(crate) fn count(times: impl IntoIterator<Item = i64>, rate: i64) -> Option<GridCount> {
    let mut samples: BTreeMap<i64, usize> = BTreeMap::new();
    for time in times {
        *samples.entry(time.div_euclid(rate)).or_default() += 1;
    }
    let (first, last) = (samples.first_key_value()?.0, samples.last_key_value()?.0);
    let nominal = last - first + 1;
    Some(GridCount {
        nominal,
        absent: nominal - samples.len() as i64,
        repeated: samples.values().filter(|count| **count > 1).count() as i64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_samples_are_neither_missing_nor_hide_missing_ones() {
        for (times, what, expected) in [
            (&[7][..], "one sample", (1, 0, 0)),
            (&[37, 100, 200, 300], "the first one between", (4, 0, 0)),
            (&[37, 100, 300, 400], "200 is absent", (5, 1, 0)),
            (&[100, 250, 399], "late", (3, 0, 0)),
            (&[100, 150, 300], "late, and 200 is absent", (3, 1, 1)),
            (&[100, 100, 300], "a duplicate", (3, 1, 1)),
            (&[100, 200, 250, 290], "three of 200", (2, 0, 1)),
        ] {
            let found = count(times.iter().copied(), 100).expect("samples");
            let found = (found.nominal, found.absent, found.repeated);
            assert_eq!(found, expected, "{what}");
        }
        assert_eq!(count([], 100), None);
    }
}
