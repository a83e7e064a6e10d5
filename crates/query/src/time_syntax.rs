//! Parses times and durations in OpenTSDB's syntax.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use pegel_metric::Millis;

use crate::error::OpentsdbError;
use crate::time_zone::find_time_zone;

const ACCEPTED_TIMES: &str = "seconds (1700000000, 1700000000.250), milliseconds (1700000000250), 1h-ago, now, or 2023/11/14-22:13:20";
/// Numbers up to this many digits are seconds.
const SECONDS_DIGITS_MAX: usize = 10;
/// Far beyond any sample, and small enough for overflow-free arithmetic.
const MILLIS_DIGITS_MAX: usize = 15;

/// A unit of time in `5m`, `1dc`, `2h-ago`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeUnit {
    Millisecond,
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Year,
}

impl TimeUnit {
    const ALL: [(TimeUnit, &'static str, Millis); 8] = [
        (TimeUnit::Millisecond, "ms", 1),
        (TimeUnit::Second, "s", 1_000),
        (TimeUnit::Minute, "m", 60_000),
        (TimeUnit::Hour, "h", 3_600_000),
        (TimeUnit::Day, "d", 86_400_000),
        (TimeUnit::Week, "w", 7 * 86_400_000),
        (TimeUnit::Month, "n", 30 * 86_400_000),
        (TimeUnit::Year, "y", 365 * 86_400_000),
    ];

    /// Returns the length of the unit. Months have 30 days and years 365, except in calendar
    /// intervals.
    pub fn millis(self) -> Millis {
        TimeUnit::ALL
            .into_iter()
            .find_map(|(unit, _, millis)| (unit == self).then_some(millis))
            .unwrap_or(1)
    }
}

/// Parses `5m` into a count and a unit.
pub(crate) fn parse_duration(text: &str) -> Result<(Millis, TimeUnit), OpentsdbError> {
    let wrong = |why: &str| {
        OpentsdbError::bad_request(format!("Invalid duration: {text}")).with_details(format!(
            "{why}; a duration is a number and one of ms, s, m, h, d, w, n, y"
        ))
    };
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: Millis = match number.parse() {
        Ok(0) => return Err(wrong("it must be more than zero")),
        Ok(number) => number,
        Err(_) => return Err(wrong("it must begin with a whole number")),
    };
    let known = TimeUnit::ALL.into_iter().find(|(_, name, _)| *name == unit);
    let Some((unit, _, millis)) = known else {
        return Err(wrong("unknown unit"));
    };
    // A million years is enough; anything longer could overflow.
    match number.checked_mul(millis) {
        Some(span) if span <= 32_000_000_000_000_000 => Ok((number, unit)),
        _ => Err(wrong("it is too long")),
    }
}

/// Parses a time. `zone` applies to dates.
pub(crate) fn parse_time(
    text: &str,
    now: Millis,
    zone: &TimeZone,
) -> Result<Millis, OpentsdbError> {
    let text = text.trim();
    if text == "now" {
        return Ok(now);
    }
    if let Some(span) = text.strip_suffix("-ago") {
        let (number, unit) = parse_duration(span)?;
        return Ok(now.saturating_sub(number * unit.millis()).max(0));
    }
    let found = if text.contains(['/', ':']) {
        parse_date(text, zone)
    } else {
        parse_number(text)
    };
    found.ok_or_else(|| {
        OpentsdbError::bad_request(format!("Invalid date: {text}")).with_details(ACCEPTED_TIMES)
    })
}

/// Parses the time zone and the two ends of a range; without an end it extends to now.
pub(crate) fn parse_time_range(
    zone: Option<&str>,
    (start, end): (Option<&str>, Option<&str>),
    now: Millis,
) -> Result<(TimeZone, Option<Millis>, Millis), OpentsdbError> {
    let zone = find_time_zone(zone.unwrap_or_default())?;
    let parse = |text: Option<&str>| {
        let text = text.filter(|text| !text.is_empty());
        text.map(|text| parse_time(text, now, &zone)).transpose()
    };
    let (start, end) = (parse(start)?, parse(end)?);
    Ok((zone, start, end.unwrap_or(now)))
}

fn parse_number(text: &str) -> Option<Millis> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if let Some((seconds, fraction)) = text.split_once('.') {
        if !is_number(seconds) || !is_number(fraction) || seconds.len() > SECONDS_DIGITS_MAX {
            return None;
        }
        // 1700000000.0 and numbers with microseconds denote the same time.
        let millis: Millis = format!("{fraction:0<3}")[..3].parse().ok()?;
        return Some(seconds.parse::<Millis>().ok()? * 1_000 + millis);
    }
    if !is_number(text) {
        return None;
    }
    let number: Millis = text.parse().ok()?;
    match text.trim_start_matches('0').len() {
        0..=SECONDS_DIGITS_MAX => Some(number * 1_000),
        digits => (digits <= MILLIS_DIGITS_MAX).then_some(number),
    }
}

/// Parses `yyyy/MM/dd[-HH:mm[:ss]]`, with a dash or a space in the middle.
fn parse_date(text: &str, zone: &TimeZone) -> Option<Millis> {
    let text = text.replacen('-', " ", 1);
    let format = match text.len() {
        10 => "%Y/%m/%d",
        16 => "%Y/%m/%d %H:%M",
        19 => "%Y/%m/%d %H:%M:%S",
        _ => return None,
    };
    let local = DateTime::strptime(format, &text).ok()?;
    // The parser also accepts signs, missing zeros and leap seconds.
    if local.strftime(format).to_string() != text {
        return None;
    }
    Some(zone.to_timestamp(local).ok()?.as_millisecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Millis = 1_700_000_000_123;

    #[test]
    fn reads_what_the_manual_lists() {
        for (text, expected) in [
            // Ten digits or fewer are seconds, more are milliseconds.
            ("1364410924", 1_364_410_924_000),
            ("1364410924250", 1_364_410_924_250),
            ("1364410924.250", 1_364_410_924_250),
            ("1364410924.5", 1_364_410_924_500),
            ("0", 0),
            ("now", NOW),
            // Back from now: milliseconds, and months of 30, years of 365 days.
            ("250ms-ago", NOW - 250),
            ("90s-ago", NOW - 90_000),
            ("5m-ago", NOW - 300_000),
            ("1h-ago", NOW - 3_600_000),
            ("2d-ago", NOW - 172_800_000),
            ("1w-ago", NOW - 604_800_000),
            ("1n-ago", NOW - 2_592_000_000),
            ("1y-ago", NOW - 31_536_000_000),
            ("900y-ago", 0),
            // 2013-01-23 is day 15,728 after 1970-01-01.
            ("2013/01/23", 15_728 * 86_400_000),
            ("2013/01/23-12:50", 15_728 * 86_400_000 + 46_200_000),
            ("2013/01/23 12:50:42", 15_728 * 86_400_000 + 46_242_000),
            ("2013/01/23-12:50:42", 15_728 * 86_400_000 + 46_242_000),
        ] {
            let found = parse_time(text, NOW, &TimeZone::UTC).expect(text);
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn refuses_what_is_no_time() {
        for text in [
            "",
            "x",
            "-1",
            "1h",
            "h-ago",
            "0s-ago",
            "1x-ago",
            "-5m-ago",
            "99999999999999999999",
            "1234567890123456",
            "1.2.3",
            ".5",
            "12345678901.5",
            "1e9",
            "2013/13/01",
            "2013/02/30",
            "2013/1/23",
            "2013/01/23-24:00",
            "2013/01/23-12",
            "2013/01/23-12:50:42:1",
            "12:50",
            "2013/01/23-12:50:60",
            "+013/01/23",
            "2013/1/23  12:50",
            "99999999999999y-ago",
        ] {
            let problem = parse_time(text, NOW, &TimeZone::UTC).expect_err(text);
            assert_eq!(problem.status(), 400, "{text}");
        }
    }

    #[test]
    fn spans_have_a_number_and_a_unit() {
        assert_eq!(
            parse_duration("15s").expect("valid"),
            (15, TimeUnit::Second)
        );
        assert_eq!(
            parse_duration("200ms").expect("valid"),
            (200, TimeUnit::Millisecond)
        );
        for text in [
            "",
            "s",
            "1",
            "0s",
            "1.5s",
            "1 s",
            "1sec",
            "-1s",
            "9999999999999999y",
        ] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
