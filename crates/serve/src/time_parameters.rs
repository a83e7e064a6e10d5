//! Parses times and durations in query parameters.

use pegel_config::TimeSpan;
use pegel_metric::Millis;

use crate::api_error::ApiError;

const ACCEPTS: &str = "seconds (1700000000, 1700000000.5), milliseconds (1700000000000), now, or relative to now: -5m, -90s, -2h, -1d";
/// Numbers from here on are milliseconds: as seconds they would lie after the year 5138.
const MILLIS_FROM: f64 = 1e11;
/// Far beyond any sample, and exact as a double.
const MILLIS_MAX: f64 = 1e15;

/// Parses a time: seconds or milliseconds since 1970, `now`, or relative to now (`-5m`).
pub(crate) fn parse_time(key: &str, text: &str, now: Millis) -> Result<Millis, ApiError> {
    let wrong =
        |problem: &str| ApiError::bad_request(format!("{key}={text}: {problem}")).hint(ACCEPTS);
    if text == "now" {
        return Ok(now);
    }
    if let Some(back) = text.strip_prefix('-') {
        if !back.ends_with(|c: char| c.is_ascii_alphabetic()) {
            return Err(wrong("a time relative to now requires a unit"));
        }
        return Ok(now.saturating_sub(parse_duration(key, back)?));
    }
    let number: f64 = text.parse().map_err(|_| wrong("not a time"))?;
    let millis = if number >= MILLIS_FROM {
        number
    } else {
        number * 1000.0
    };
    if !(0.0..=MILLIS_MAX).contains(&millis) {
        return Err(wrong("not a time"));
    }
    Ok(millis.round() as Millis)
}

/// Parses a duration of at least 1 ms: `10s`, `500ms`, plain seconds.
pub(crate) fn parse_duration(key: &str, text: &str) -> Result<Millis, ApiError> {
    let accepts = "a length of time such as 500ms, 10s, 5m, 2h; a plain number is seconds";
    let span: TimeSpan = text
        .parse()
        .map_err(|error| ApiError::bad_request(format!("{key}: {error}")).hint(accepts))?;
    match Millis::try_from(span.duration().as_millis()) {
        Ok(millis) if millis > 0 => Ok(millis),
        _ => Err(ApiError::bad_request(format!("{key}={text}: less than 1 ms")).hint(accepts)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Millis = 1_700_000_000_123;

    #[test]
    fn reads_seconds_milliseconds_and_what_is_relative() {
        for (text, expected) in [
            ("1700000000", 1_700_000_000_000),
            ("1700000000.5", 1_700_000_000_500),
            ("1700000000123", NOW),
            ("99999999999", 99_999_999_999_000),
            ("100000000000", 100_000_000_000),
            ("0", 0),
            ("now", NOW),
            ("-5m", NOW - 300_000),
            ("-1.5s", NOW - 1_500),
            ("-1d", NOW - 86_400_000),
        ] {
            assert_eq!(parse_time("start", text, NOW), Ok(expected), "{text}");
        }
    }

    #[test]
    fn refuses_what_is_no_time() {
        for text in [
            "",
            "x",
            "-5",
            "-",
            "--5m",
            "nan",
            "inf",
            "1e300",
            "-5y",
            "2023-11-14",
            "5m",
        ] {
            let failure = parse_time("start", text, NOW).expect_err(text);
            assert!(failure.message().starts_with("start"), "{failure:?}");
        }
    }

    #[test]
    fn reads_lengths() {
        for (text, expected) in [
            ("10s", 10_000),
            ("500ms", 500),
            ("0.25", 250),
            ("2m", 120_000),
        ] {
            assert_eq!(parse_duration("step", text), Ok(expected), "{text}");
        }
        for text in ["", "0", "-1s", "1us", "abc", "1000y", "nan", "inf"] {
            assert!(parse_duration("step", text).is_err(), "{text}");
        }
    }
}
