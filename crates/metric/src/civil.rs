//! Converts dates of the Gregorian calendar to day numbers and back.

/// Days from 1 March of year 0, where the count below begins, to 1970-01-01.
const EPOCH_DAYS: i64 = 719_468;
/// One full cycle of leap years.
const ERA_YEARS: i64 = 400;
const ERA_DAYS: i64 = 146_097;

pub const DAY_SECONDS: i64 = 86_400;

/// Returns the days since 1970-01-01. The month may be any number: 13 is January of the next year.
pub fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = (
        year + (month - 1).div_euclid(12),
        (month - 1).rem_euclid(12),
    );
    // Years that begin in March end with the leap day.
    let (year, month) = match month {
        0 | 1 => (year - 1, month + 10),
        _ => (year, month - 2),
    };
    let era = year.div_euclid(ERA_YEARS);
    let year = year.rem_euclid(ERA_YEARS);
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    era * ERA_DAYS + year * 365 + year / 4 - year / 100 + day_of_year - EPOCH_DAYS
}

/// Returns year, month (1–12) and day (1–31) of a day counted from 1970-01-01.
pub fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + EPOCH_DAYS;
    let era = days.div_euclid(ERA_DAYS);
    let day = days.rem_euclid(ERA_DAYS);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (year, month) = match month {
        10 | 11 => (year + 1, month - 9),
        _ => (year, month + 3),
    };
    (era * ERA_YEARS + year, month, day)
}

pub fn is_leap(year: i64) -> bool {
    days_of(year, 3, 1) - days_of(year, 2, 28) == 2
}

/// Returns the weekday of a day counted from 1970-01-01; 0 is Sunday.
pub fn weekday_of(days: i64) -> i64 {
    (days + 4).rem_euclid(7)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_and_days_fit_each_other() {
        assert_eq!(days_of(1970, 1, 1), 0);
        assert_eq!(days_of(2000, 2, 29), 11_016);
        assert_eq!(days_of(2023, 14, 1), days_of(2024, 2, 1));
        assert_eq!(days_of(2023, -1, 1), days_of(2022, 11, 1));
        let mut expected = (1599, 12, 31);
        for days in days_of(1600, 1, 1)..days_of(2401, 1, 1) {
            let date = date_of(days);
            assert_eq!(days_of(date.0, date.1, date.2), days);
            let follows = match (date.1, date.2) {
                (1, 1) => expected.0 + 1 == date.0 && expected.1 == 12 && expected.2 == 31,
                (month, 1) => expected.1 + 1 == month && expected.2 >= 28,
                (month, day) => expected.1 == month && expected.2 + 1 == day,
            };
            assert!(follows, "{expected:?} {date:?}");
            expected = date;
        }
    }

    #[test]
    fn leap_years_and_weekdays() {
        assert_eq!(
            [1900, 2000, 2023, 2024].map(is_leap),
            [false, true, false, true]
        );
        assert_eq!(weekday_of(days_of(2023, 11, 14)), 2, "a Tuesday");
        assert_eq!(weekday_of(days_of(1969, 12, 28)), 0);
    }
}
