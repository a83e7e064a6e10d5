//! Calendar buckets, which start at midnight, on Sunday or on the first of a month.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};
use pegel_metric::Millis;

use crate::time_syntax::TimeUnit;

const DAY: Millis = 86_400_000;

/// Returns the starts of the buckets: the first at or before `start`, the last after `end`, so that
/// each bucket between them has an end. `None` if there are more than `count_max`.
///
/// Hours and shorter units are counted from each local midnight. Weeks start on Sunday. Multiples
/// of days, weeks, months or years are counted from 1 January of the year in which the query
/// starts.
pub(crate) fn bucket_edges(
    start: Millis,
    end: Millis,
    (count, unit): (i64, TimeUnit),
    zone: &TimeZone,
    count_max: usize,
) -> Option<Vec<Millis>> {
    let first_time = Timestamp::from_millisecond(start).unwrap_or(Timestamp::MAX);
    let today = zone.to_datetime(first_time).date();
    let new_year = today.first_of_year();
    let step = Span::new();
    let (first, step) = match unit {
        TimeUnit::Millisecond | TimeUnit::Second | TimeUnit::Minute | TimeUnit::Hour => {
            let step = count * unit.millis();
            if step <= DAY {
                return edges_within_days(start, end, step, (today, zone), count_max);
            }
            // Longer than a day: the count cannot restart at each midnight.
            let first = midnight(zone, Some(new_year));
            return collect_edges(start, end, count_max, &|at| first + at * step);
        }
        TimeUnit::Day if count == 1 => (today, step.try_days(1)),
        TimeUnit::Day => (new_year, step.try_days(count)),
        TimeUnit::Week if count == 1 => (sunday_before(today), step.try_weeks(1)),
        TimeUnit::Week => (sunday_before(new_year), step.try_weeks(count)),
        TimeUnit::Month => (new_year, step.try_months(count)),
        TimeUnit::Year => (new_year, step.try_years(count)),
    };
    collect_edges(start, end, count_max, &|at| {
        let day = match (&step, at) {
            (_, 0) => Some(first),
            (Ok(step), at) => {
                let since_first = step.checked_mul(at);
                since_first.and_then(|span| first.checked_add(span)).ok()
            }
            (Err(_), _) => None,
        };
        midnight(zone, day)
    })
}

/// Returns the start of a day. Days after the year 9999 (`None`) begin after every sample.
fn midnight(zone: &TimeZone, day: Option<Date>) -> Millis {
    let start = day.and_then(|day| zone.to_timestamp(day.into()).ok());
    start.map_or(Millis::MAX, Timestamp::as_millisecond)
}

fn sunday_before(day: Date) -> Date {
    let days = i64::from(day.weekday().to_sunday_zero_offset());
    day.saturating_sub(Span::new().days(days))
}

/// Collects edges by calling `nth` with increasing numbers from 0; `nth(0)` must lie at or before
/// the start.
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
    (mut day, zone): (Date, &TimeZone),
    count_max: usize,
) -> Option<Vec<Millis>> {
    let mut edges = Vec::new();
    loop {
        let tomorrow = day.tomorrow().ok();
        let (from, to) = (midnight(zone, Some(day)), midnight(zone, tomorrow));
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
        // Without a tomorrow the loop above goes on to the end of the range.
        day = tomorrow?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time_zone::find_time_zone;
    use jiff::civil::date;

    fn at(year: i16, month: i8, day: i8, hour: i64) -> Millis {
        midnight(&TimeZone::UTC, Some(date(year, month, day))) + hour * 3_600_000
    }

    #[test]
    fn days_weeks_months_and_years_in_utc() {
        let (start, end) = (at(2023, 11, 14, 5), at(2023, 11, 16, 7));
        let edges = |span| bucket_edges(start, end, span, &TimeZone::UTC, 1_000).expect("few");
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
        let zone = find_time_zone("Europe/Berlin").expect("a zone");
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
                &TimeZone::UTC,
                1_000
            ),
            None
        );
        assert_eq!(
            bucket_edges(start, end, (1, TimeUnit::Day), &TimeZone::UTC, 1_000),
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
            for count in [1, 2, 5, 40, 1_000_000] {
                let found =
                    bucket_edges(start, end, (count, unit), &TimeZone::UTC, 10_000).expect("few");
                assert!(found[0] <= start && start < found[1], "{count} {unit:?}");
                assert!(found[found.len() - 1] > end && found[found.len() - 2] <= end);
                assert!(found.is_sorted_by(|a, b| a < b));
            }
        }
    }
}
