//! Parts of a date, from seconds since 1970 in UTC.

/// A date in the Gregorian calendar.
struct CivilDate {
    year: i128,
    /// From 1.
    month: i128,
    /// From 1.
    day: i128,
}

const DAY: i128 = 86_400;

/// Converts a time to its date. Counts eras of 400 years, which all have the same length, from
/// the first of March, so that the leap day is the last day of a year.
fn civil_date(seconds: i128) -> CivilDate {
    let days = seconds.div_euclid(DAY) + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    CivilDate {
        year: year_of_era + era * 400 + i128::from(month <= 2),
        month,
        day: day_of_year - (153 * shifted_month + 2) / 5 + 1,
    }
}

/// Returns a value as whole seconds. What does not fit into 64 bits becomes the time that Go on
/// x86 makes of it.
pub(super) fn seconds(value: f64) -> i128 {
    if value >= i64::MIN as f64 && value < i64::MAX as f64 {
        value as i128
    } else {
        1 << 63
    }
}

fn is_leap(year: i128) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

pub(super) fn year(seconds: i128) -> f64 {
    civil_date(seconds).year as f64
}

pub(super) fn month(seconds: i128) -> f64 {
    civil_date(seconds).month as f64
}

pub(super) fn day_of_month(seconds: i128) -> f64 {
    civil_date(seconds).day as f64
}

/// Returns the day of the week; Sunday is 0.
pub(super) fn day_of_week(seconds: i128) -> f64 {
    (seconds.div_euclid(DAY) + 4).rem_euclid(7) as f64
}

pub(super) fn day_of_year(seconds: i128) -> f64 {
    const BEFORE: [i128; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let date = civil_date(seconds);
    let leap = i128::from(date.month > 2 && is_leap(date.year));
    (BEFORE[(date.month - 1) as usize] + date.day + leap) as f64
}

pub(super) fn days_in_month(seconds: i128) -> f64 {
    let date = civil_date(seconds);
    match date.month {
        2 if is_leap(date.year) => 29.0,
        2 => 28.0,
        4 | 6 | 9 | 11 => 30.0,
        _ => 31.0,
    }
}

pub(super) fn hour(seconds: i128) -> f64 {
    (seconds.rem_euclid(DAY) / 3_600) as f64
}

pub(super) fn minute(seconds: i128) -> f64 {
    (seconds.rem_euclid(3_600) / 60) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_known_dates() {
        // Tuesday, 14 November 2023, 22:13:20.
        let time = 1_700_000_000;
        let parts = [
            year,
            month,
            day_of_month,
            day_of_week,
            day_of_year,
            days_in_month,
            hour,
            minute,
        ];
        let of = |time: i128| parts.map(|part| part(time));
        assert_eq!(of(time), [2023.0, 11.0, 14.0, 2.0, 318.0, 30.0, 22.0, 13.0]);
        // Thursday, 29 February 2024, midnight.
        assert_eq!(
            of(1_709_164_800),
            [2024.0, 2.0, 29.0, 4.0, 60.0, 29.0, 0.0, 0.0]
        );
        // Thursday, 1 January 1970; the last second of 1969.
        assert_eq!(of(0), [1970.0, 1.0, 1.0, 4.0, 1.0, 31.0, 0.0, 0.0]);
        assert_eq!(of(-1), [1969.0, 12.0, 31.0, 3.0, 365.0, 31.0, 23.0, 59.0]);
        // As on Prometheus' usual platform.
        let parts = of(seconds(f64::NAN));
        assert_eq!(
            parts,
            [292_277_026_596.0, 12.0, 4.0, 0.0, 339.0, 31.0, 15.0, 30.0]
        );
    }
}
