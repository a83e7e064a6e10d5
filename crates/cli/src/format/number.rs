//! Formats numbers and times.

use jiff::Timestamp;
use pegel_metric::format_value;
use pegel_metric::quantity::group_thousands;

/// Formats a JSON number that is recognisable as a float: `9.0`; null if it is not finite.
pub(crate) fn json_float(value: f64) -> String {
    if value.is_finite() {
        format!("{value:?}")
    } else {
        "null".to_owned()
    }
}

/// Formats a JSON number, without a fraction if it is whole: `9`; null if it is not finite.
pub(crate) fn json_number(value: f64) -> String {
    if value.is_finite() {
        exact(value)
    } else {
        "null".to_owned()
    }
}

/// Returns the shortest text that parses to the same value.
pub(crate) fn exact(value: f64) -> String {
    let mut text = String::new();
    format_value(&mut text, value);
    text
}

/// Formats with at most six decimals and a blank between thousands. Smaller numbers have six
/// significant digits: further ones are rounding errors of sums.
pub(crate) fn human_readable(value: f64) -> String {
    if !value.is_finite() || value.abs() >= 1e15 {
        return exact(value);
    }
    if value != 0.0 && value.abs() < 1e-4 {
        return scientific(value, 5);
    }
    group_whole(&format!("{value:.6}"))
}

/// Formats a rate with four significant digits; whole from 1000 on.
pub(crate) fn human_rate(value: f64) -> String {
    match value.abs() {
        _ if !value.is_finite() => exact(value),
        size if size >= 1e15 => scientific(value, 3),
        0.0 => "0".to_owned(),
        size if size < 1e-4 => scientific(value, 3),
        size => {
            let decimals = (3 - size.log10().floor() as i32).clamp(0, 8) as usize;
            group_whole(&format!("{value:.decimals$}"))
        }
    }
}

/// Formats `4.4075e-5`, without trailing zeros.
fn scientific(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$e}");
    match text.split_once('e') {
        Some((digits, exponent)) => format!("{}e{exponent}", trim_zeros(digits)),
        None => text,
    }
}

fn trim_zeros(text: &str) -> &str {
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => text,
    }
}

/// Removes trailing zeros after the point, and puts blanks between thousands before it.
fn group_whole(text: &str) -> String {
    let text = trim_zeros(text);
    let (whole, fraction) = match text.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (text, None),
    };
    let (sign, digits) = match whole.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", whole),
    };
    let whole = group_thousands(digits, ' ');
    match fraction {
        Some(fraction) => format!("{sign}{whole}.{fraction}"),
        None => format!("{sign}{whole}"),
    }
}

/// Formats the time since `ts`; after two days, the date.
pub(crate) fn ago(ts: f64, now: f64) -> String {
    let seconds = now - ts;
    match seconds {
        // Tolerates a clock that is slightly behind.
        s if (-5.0..0.05).contains(&s) => "now".to_owned(),
        s if (0.0..10.0).contains(&s) => format!("{s:.1} s ago"),
        s if (0.0..120.0).contains(&s) => format!("{s:.0} s ago"),
        s if (0.0..7200.0).contains(&s) => format!("{:.0} min ago", s / 60.0),
        s if (0.0..172_800.0).contains(&s) => format!("{:.0} h ago", s / 3600.0),
        _ => utc(ts),
    }
}

/// Formats `2022-11-03 14:45:17Z`, or the number itself if it is out of range.
pub(crate) fn utc(ts: f64) -> String {
    format_time(ts, "%Y-%m-%d %H:%M:%SZ")
}

/// Formats `14:45:17.483`.
pub(crate) fn time_of_day(ts: f64) -> String {
    format_time(ts, "%H:%M:%S%.3f")
}

/// Formats `14:45:17Z`, with the date if the time belongs to a range of more than a day.
pub(crate) fn clock_time(ts: f64, range: f64) -> String {
    let format = if range > 86_400.0 {
        "%m-%d %H:%MZ"
    } else {
        "%H:%M:%SZ"
    };
    format_time(ts, format)
}

fn format_time(ts: f64, format: &str) -> String {
    // Round: not every millisecond is exact in a float, 41.36 is 41.3599….
    let time = Timestamp::from_millisecond((ts * 1000.0).round() as i64).ok();
    match time.filter(|_| ts >= 0.0) {
        Some(time) => time.strftime(format).to_string(),
        None => exact(ts),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn human_readable_numbers() {
        for (value, text) in [
            (0.0, "0"),
            (9.0, "9"),
            (12_441_600.0, "12 441 600"),
            (-1234.5, "-1 234.5"),
            (0.1 + 0.2, "0.3"),
            (1e-9, "1e-9"),
            (0.000_044_075_000_000_000_01, "4.4075e-5"),
            (-0.000_012_345_678, "-1.23457e-5"),
            (1000.0, "1 000"),
            (1e16, "10000000000000000"),
            (999.0, "999"),
            (f64::INFINITY, "+Inf"),
        ] {
            assert_eq!(human_readable(value), text);
        }
    }

    #[test]
    fn rates_have_four_digits() {
        for (value, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (0.123_456, "0.1235"),
            (12.3456, "12.35"),
            (999.96, "1 000"),
            (1_234_567.8, "1 234 568"),
            (0.000_012_346, "1.235e-5"),
        ] {
            assert_eq!(human_rate(value), text);
        }
    }

    #[test]
    fn json_numbers() {
        assert_eq!(json_float(9.0), "9.0");
        assert_eq!(json_number(9.0), "9");
        assert_eq!(json_number(10_343_854_648.0), "10343854648");
        assert_eq!(json_float(1_667_486_717.483), "1667486717.483");
        assert_eq!(json_float(f64::NAN), "null");
        for value in [1e300, 5e-324, 1e16, 0.1] {
            assert_eq!(json_float(value).parse(), Ok(value));
        }
    }

    #[test]
    fn times() {
        assert_eq!(utc(1_667_486_717.483), "2022-11-03 14:45:17Z");
        assert_eq!(utc(951_782_400.0), "2000-02-29 00:00:00Z");
        assert_eq!(utc(0.0), "1970-01-01 00:00:00Z");
        assert_eq!(utc(-1.0), "-1");
        assert_eq!(time_of_day(1_667_486_717.483), "14:45:17.483");
        for (seconds, text) in [
            (0.0, "now"),
            (0.24, "0.2 s ago"),
            (42.0, "42 s ago"),
            (300.0, "5 min ago"),
            (10_800.0, "3 h ago"),
        ] {
            assert_eq!(ago(1e9, 1e9 + seconds), text);
        }
        assert_eq!(ago(1e9, 2e9), "2001-09-09 01:46:40Z");
    }
}
