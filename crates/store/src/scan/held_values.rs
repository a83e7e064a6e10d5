//! Repeats the values of programs' groups between their rows.
//!
//! The sampler of programs writes a row of a group when a value changes, and else once a minute. At
//! every tick in between the values were the same, so that a reader who counts samples must find
//! them there.
//!
//! The row of a tick that was sampled late has the time of reading, shortly after the nominal time.
//! The value before it must not be repeated at that nominal time: the tick would count twice, once
//! with an old value. So a value is repeated at a nominal time only if no row follows before the
//! next one.

use pegel_metric::{Millis, is_stale};

/// How long after a row of an idle group the next one follows at the latest, unless the agent
/// stopped.
pub(super) const IDLE_ROW_MAX: Millis = 65_000;

/// Returns the samples within `range` and the values repeated at multiples of `interval`. A gap
/// that is longer than an idle group's is one of the agent, and is not filled. After the last row
/// values hold until `now`, except at a nominal time less than half an interval ago, whose row may
/// still arrive. Fails with `None` beyond `count_max` samples.
pub(super) fn repeat_held(
    samples: &[(Millis, f64)],
    interval: Millis,
    (start, end): (Millis, Millis),
    now: Millis,
    count_max: usize,
) -> Option<Vec<(Millis, f64)>> {
    let interval = interval.max(1);
    let mut repeated = Vec::with_capacity(samples.len());
    for (index, &(time, value)) in samples.iter().enumerate() {
        if (start..=end).contains(&time) {
            repeated.push((time, value));
        }
        let until = match samples.get(index + 1) {
            Some((next, _)) if next - time <= IDLE_ROW_MAX => next - interval,
            None if now - time <= IDLE_ROW_MAX => now - interval / 2,
            _ => continue,
        };
        if is_stale(value) {
            continue;
        }
        let mut tick = (time.max(start - 1).div_euclid(interval) + 1) * interval;
        while tick <= until.min(end) {
            repeated.push((tick, value));
            tick += interval;
        }
        if repeated.len() > count_max {
            return None;
        }
    }
    Some(repeated)
}

#[cfg(test)]
mod tests {
    use pegel_metric::STALE_NAN;

    use super::*;

    fn times(samples: &[(Millis, f64)], range: (Millis, Millis), now: Millis) -> Vec<Millis> {
        let repeated = repeat_held(samples, 10_000, range, now, 100).expect("few");
        repeated.iter().map(|(time, _)| *time).collect()
    }

    #[test]
    fn values_hold_from_row_to_row() {
        let rows = [(5_000, 1.0), (40_000, 2.0), (41_000, 3.0)];
        let repeated = repeat_held(&rows, 10_000, (0, 60_000), 55_000, 100).expect("few");
        let expected = [
            (5_000, 1.0),
            (10_000, 1.0),
            (20_000, 1.0),
            (30_000, 1.0),
            (40_000, 2.0),
            (41_000, 3.0),
            (50_000, 3.0),
        ];
        assert_eq!(repeated, expected);
    }

    #[test]
    fn a_late_row_takes_the_place_of_its_tick() {
        let late = [(10_000, 1.0), (20_700, 2.0), (30_000, 3.0), (43_000, 4.0)];
        assert_eq!(
            times(&late, (0, 60_000), 49_000),
            [10_000, 20_700, 30_000, 43_000]
        );
        let idle_before = [(10_000, 1.0), (40_700, 2.0)];
        assert_eq!(
            times(&idle_before, (0, 40_900), 40_900),
            [10_000, 20_000, 30_000, 40_700]
        );
    }

    #[test]
    fn a_tick_whose_row_may_still_arrive_is_not_filled() {
        let rows = [(10_000, 1.0)];
        assert_eq!(times(&rows, (0, 60_000), 24_999), [10_000]);
        assert_eq!(times(&rows, (0, 60_000), 25_000), [10_000, 20_000]);
    }

    #[test]
    fn rows_outside_the_range_count() {
        let rows = [(5_000, 1.0), (60_000, 2.0)];
        assert_eq!(times(&rows, (21_000, 45_000), 60_000), [30_000, 40_000]);
        assert_eq!(
            times(&rows[..1], (21_000, 45_000), 60_000),
            [30_000, 40_000]
        );
    }

    #[test]
    fn gaps_of_the_agent_and_ends_of_series_are_not_filled() {
        let rows = [(5_000, 1.0), (100_000, 2.0)];
        assert_eq!(times(&rows, (0, 100_000), 100_000), [5_000, 100_000]);
        assert_eq!(times(&rows[..1], (0, 30_000), 1_000_000), [5_000]);
        let ended = [(5_000, 1.0), (20_000, STALE_NAN)];
        assert_eq!(times(&ended, (0, 50_000), 50_000), [5_000, 10_000, 20_000]);
        assert!(repeat_held(&rows[..1], 1, (0, 9_000), 9_000, 10).is_none());
    }
}
