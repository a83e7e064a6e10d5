//! Calendar buckets, which start at midnight, on Sunday or on the first of a month.

use pegel_metric::Millis;

use crate::time_syntax::TimeUnit;
use crate::time_zone::TimeZone;
use pegel_metric::civil::{DAY_SECONDS, date_of, days_of, weekday_of};

/// Returns the starts of the buckets: the first at or before `start`, the last after `end`, so that each bucket
/// between them has an end. `None` if there are more than `count_max`.
///
/// Hours and shorter units are counted from each local midnight. Weeks start on Sunday. Multiples of days, weeks,
/// months or years are counted from 1 January of the year in which the query starts.
pub(crate) fn bucket_edges(
    start: Millis,
    end: Millis,
    (count, unit): (i64, TimeUnit),
    zone: &TimeZone,
    count_max: usize,
) -> Option<Vec<Millis>> {
    let start_second = start.div_euclid(1_000);
    let today = (start_second + zone.offset(start_second)).div_euclid(DAY_SECONDS);
    let year = date_of(today).0;
    let midnight = |day: i64| zone.local_to_utc(day * DAY_SECONDS) * 1_000;
    let new_year = days_of(year, 1, 1);
    let days = move |first: i64, step: i64| move |at: i64| midnight_of(zone, first, step, at);
    match unit {
        TimeUnit::Millisecond | TimeUnit::Second | TimeUnit::Minute | TimeUnit::Hour => {
            let step = count * unit.millis();
            if step <= 86_400_000 {
                edges_within_days(start, end, step, today, &midnight, count_max)
            } else {
                // Longer than a day: the count cannot restart at each midnight.
                collect_edges(start, end, count_max, &|at| midnight(new_year) + at * step)
            }
        }
        TimeUnit::Day if count == 1 => collect_edges(start, end, count_max, &days(today, 1)),
        TimeUnit::Day => collect_edges(start, end, count_max, &days(new_year, count)),
        TimeUnit::Week if count == 1 => {
            collect_edges(start, end, count_max, &days(today - weekday_of(today), 7))
        }
        TimeUnit::Week => {
            let first = new_year - weekday_of(new_year);
            collect_edges(start, end, count_max, &days(first, 7 * count))
        }
        TimeUnit::Month => collect_edges(start, end, count_max, &|at| {
            midnight(days_of(year, 1 + at * count, 1))
        }),
        TimeUnit::Year => collect_edges(start, end, count_max, &|at| {
            midnight(days_of(year + at * count, 1, 1))
        }),
    }
}

fn midnight_of(zone: &TimeZone, first: i64, step: i64, at: i64) -> Millis {
    zone.local_to_utc((first + at * step) * DAY_SECONDS) * 1_000
}

/// Collects edges by calling `nth` with increasing numbers from 0; `nth(0)` must lie at or before the start.
fn collect_edges(
    start: Millis,
    end: Millis,
    count_max: usize,
    nth: &dyn Fn(i64) -> Millis,
) -> Option<Vec<Millis>> {
    let mut edges = vec![nth(0)];
    for at in 1.. {
        let edge = nth(at);
        if edge <= start {
            edges.clear();
        }
        edges.push(edge);
        if edge > end {
            break;
        }
        if edges.len() > count_max {
            return None;
        }
    }
    Some(edges)
}

fn edges_within_days(
    start: Millis,
    end: Millis,
    step: Millis,
    first_day: i64,
    midnight: &dyn Fn(i64) -> Millis,
    count_max: usize,
) -> Option<Vec<Millis>> {
    let mut edges = Vec::new();
    for day in first_day.. {
        let (from, to) = (midnight(day), midnight(day + 1));
        // Skip directly to the first bucket in the range.
        let skipped = (start - from).max(0) / step;
        let mut edge = from + skipped * step;
        while edge < to {
            edges.push(edge);
            if edge > end {
                return Some(edges);
            }
            if edges.len() > count_max {
                return None;
            }
            edge += step;
        }
    }
    Some(edges)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(year: i64, month: i64, day: i64, hour: i64) -> Millis {
        (days_of(year, month, day) * DAY_SECONDS + hour * 3_600) * 1_000
    }

    fn berlin() -> Option<TimeZone> {
        TimeZone::from_name("Europe/Berlin").ok()
    }

    #[test]
    fn days_weeks_months_and_years_in_utc() {
        let (start, end) = (at(2023, 11, 14, 5), at(2023, 11, 16, 7));
        let edges = |span| bucket_edges(start, end, span, &TimeZone::utc(), 1_000).expect("few");
        assert_eq!(
            edges((1, TimeUnit::Day)),
            [14, 15, 16, 17].map(|day| at(2023, 11, day, 0))
        );
        // 14 November 2023 is a Tuesday; its week began on the 12th.
        assert_eq!(
            edges((1, TimeUnit::Week)),
            [at(2023, 11, 12, 0), at(2023, 11, 19, 0)]
        );
        assert_eq!(
            edges((1, TimeUnit::Month)),
            [at(2023, 11, 1, 0), at(2023, 12, 1, 0)]
        );
        // Quarters from 1 January.
        assert_eq!(
            edges((3, TimeUnit::Month)),
            [at(2023, 10, 1, 0), at(2024, 1, 1, 0)]
        );
        assert_eq!(
            edges((1, TimeUnit::Year)),
            [at(2023, 1, 1, 0), at(2024, 1, 1, 0)]
        );
        // 14 November is day 317, counted from 0; 315 is a multiple of 5.
        assert_eq!(edges((5, TimeUnit::Day))[0], at(2023, 11, 12, 0));
        assert_eq!(
            edges((12, TimeUnit::Hour))[..3],
            [
                at(2023, 11, 14, 0),
                at(2023, 11, 14, 12),
                at(2023, 11, 15, 0)
            ]
        );
        // 7 hours do not divide a day: the fourth bucket of each day is short.
        assert_eq!(
            edges((7, TimeUnit::Hour))[..5],
            [0, 7, 14, 21, 24].map(|hour| at(2023, 11, 14, hour))
        );
    }

    #[test]
    fn days_follow_the_clocks_of_the_zone() {
        let Some(zone) = berlin() else { return };
        // Daylight saving starts on 31 March 2024: that day has 23 hours.
        let (start, end) = (at(2024, 3, 30, 12), at(2024, 3, 31, 23));
        let days = bucket_edges(start, end, (1, TimeUnit::Day), &zone, 100).expect("few");
        assert_eq!(
            days,
            [
                at(2024, 3, 29, 23),
                at(2024, 3, 30, 23),
                at(2024, 3, 31, 22),
                at(2024, 4, 1, 22)
            ]
        );
        let hours = bucket_edges(start, end, (1, TimeUnit::Hour), &zone, 100).expect("few");
        assert!(hours.windows(2).all(|pair| pair[1] - pair[0] == 3_600_000));
    }

    #[test]
    fn too_many_are_too_many() {
        let (start, end) = (0, at(2023, 1, 1, 0));
        assert_eq!(
            bucket_edges(
                start,
                end,
                (1, TimeUnit::Millisecond),
                &TimeZone::utc(),
                1_000
            ),
            None
        );
        assert_eq!(
            bucket_edges(start, end, (1, TimeUnit::Day), &TimeZone::utc(), 1_000),
            None
        );
    }

    #[test]
    fn a_bucket_holds_the_start_and_one_follows_the_end() {
        let (start, end) = (at(2023, 5, 3, 1) + 1, at(2023, 9, 2, 3));
        for unit in [
            TimeUnit::Hour,
            TimeUnit::Day,
            TimeUnit::Week,
            TimeUnit::Month,
            TimeUnit::Year,
        ] {
            for count in [1, 2, 5, 40] {
                let found =
                    bucket_edges(start, end, (count, unit), &TimeZone::utc(), 10_000).expect("few");
                assert!(found[0] <= start && start < found[1], "{count} {unit:?}");
                assert!(found[found.len() - 1] > end && found[found.len() - 2] <= end);
                assert!(found.is_sorted_by(|a, b| a < b));
            }
        }
    }
}
