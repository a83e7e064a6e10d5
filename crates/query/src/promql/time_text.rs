//! Times and durations in the forms that Prometheus' API accepts.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use pegel_metric::Millis;

use super::MILLIS_MAX;

/// The first and the last time of Prometheus, which its clients send for "any time".
const TIME_MIN: &str = "-292273086-05-16T16:47:06Z";
const TIME_MAX: &str = "292277025-08-18T07:12:54.999999999Z";

/// Parses a time: seconds since 1970, with or without fraction, or RFC 3339.
pub fn parse_time(text: &str) -> Option<Millis> {
    if let Ok(seconds) = text.parse::<f64>() {
        return millis(seconds);
    }
    match text.trim_start_matches('+') {
        TIME_MIN => return Some(-MILLIS_MAX),
        TIME_MAX => return Some(MILLIS_MAX),
        _ => {}
    }
    let time = text.parse().ok().or_else(|| parse_last_days(text))?;
    Some(Timestamp::as_millisecond(time))
}

/// Parses a time of the last two days of the year 9999, which `jiff` does not have: some clients
/// send the last second for "any time".
fn parse_last_days(text: &str) -> Option<Timestamp> {
    let time: DateTime = text.strip_suffix('Z')?.parse().ok()?;
    (text.contains('T') && time > Timestamp::MAX.to_zoned(TimeZone::UTC).datetime())
        .then_some(Timestamp::MAX)
}

/// Parses a duration: seconds, with or without fraction, or `1h30m`.
pub fn parse_duration(text: &str) -> Option<Millis> {
    if let Ok(seconds) = text.parse::<f64>() {
        return millis(seconds);
    }
    if text.is_empty() {
        return None;
    }
    let mut total: Millis = 0;
    let mut rest = text;
    let mut last_unit = Millis::MAX;
    while !rest.is_empty() {
        let digits = rest.find(|next: char| !next.is_ascii_digit())?;
        let number: Millis = rest[..digits].parse().ok()?;
        let after = &rest[digits..];
        let length = after
            .find(|next: char| next.is_ascii_digit())
            .unwrap_or(after.len());
        let unit = unit_millis(&after[..length])?;
        if unit >= last_unit {
            return None;
        }
        last_unit = unit;
        total = total.checked_add(number.checked_mul(unit)?)?;
        rest = &after[length..];
    }
    (total <= MILLIS_MAX).then_some(total)
}

/// Returns a time in RFC 3339, in UTC.
pub fn format_time(time: Millis) -> String {
    Timestamp::from_millisecond(time).map_or_else(|_| time.to_string(), |time| time.to_string())
}

fn unit_millis(unit: &str) -> Option<Millis> {
    Some(match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        "w" => 7 * 86_400_000,
        "y" => 365 * 86_400_000,
        _ => return None,
    })
}

fn millis(seconds: f64) -> Option<Millis> {
    let millis = (seconds * 1_000.0).round();
    (millis.abs() <= MILLIS_MAX as f64).then_some(millis as Millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_or_dates() {
        for (text, expected) in [
            ("4", Some(4_000)),
            ("1435781451.781", Some(1_435_781_451_781)),
            ("-0.5", Some(-500)),
            ("1.5e9", Some(1_500_000_000_000)),
            ("2015-07-01T20:10:51.781Z", Some(1_435_781_451_781)),
            ("2015-07-01T22:10:51.781+02:00", Some(1_435_781_451_781)),
            ("9999-12-30T22:00:00Z", Some(253_402_207_200_000)),
            ("9999-12-31T23:59:59Z", Some(253_402_207_200_999)),
            ("9999-12-32T00:00:00Z", None),
            ("9999-12-31Z", None),
            ("-292273086-05-16T16:47:06Z", Some(-MILLIS_MAX)),
            ("+292277025-08-18T07:12:54.999999999Z", Some(MILLIS_MAX)),
            ("NaN", None),
            ("inf", None),
            ("1e300", None),
            ("yesterday", None),
            ("", None),
        ] {
            assert_eq!(parse_time(text), expected, "{text}");
        }
    }

    #[test]
    fn durations_are_seconds_or_units_from_large_to_small() {
        for (text, expected) in [
            ("15", Some(15_000)),
            ("0.25", Some(250)),
            ("500ms", Some(500)),
            ("1h30m", Some(5_400_000)),
            ("1y2w3d4h5m6s7ms", Some(33_019_506_007)),
            ("1m1h", None),
            ("1m1m", None),
            ("1", Some(1_000)),
            ("m", None),
            ("5x", None),
            ("", None),
            ("99999999999999y", None),
        ] {
            assert_eq!(parse_duration(text), expected, "{text}");
        }
    }
}
