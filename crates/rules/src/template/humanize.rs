//! The functions that write numbers for people, as Prometheus does.

use super::go_format::format_g;

const LARGE: [&str; 8] = ["k", "M", "G", "T", "P", "E", "Z", "Y"];
const SMALL: [&str; 8] = ["m", "u", "n", "p", "f", "a", "z", "y"];
const BINARY: [&str; 8] = ["ki", "Mi", "Gi", "Ti", "Pi", "Ei", "Zi", "Yi"];

fn four_digits(value: f64) -> String {
    format_g(value, Some(4))
}

/// Writes a number with an SI prefix: `1.235k`.
pub(super) fn humanize(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return four_digits(value);
    }
    if value.abs() < 1.0 {
        return small(value);
    }
    scaled(value, 1_000.0, &LARGE)
}

/// Writes a number with a binary prefix: `1.206ki`.
pub(super) fn humanize1024(value: f64) -> String {
    if value.abs() <= 1.0 || !value.is_finite() {
        return four_digits(value);
    }
    scaled(value, 1_024.0, &BINARY)
}

fn scaled(mut value: f64, base: f64, prefixes: &[&'static str]) -> String {
    let mut prefix = "";
    for next in prefixes {
        if value.abs() < base {
            break;
        }
        prefix = next;
        value /= base;
    }
    format!("{}{prefix}", four_digits(value))
}

fn small(mut value: f64) -> String {
    let mut prefix = "";
    for next in SMALL {
        if value.abs() >= 1.0 {
            break;
        }
        prefix = next;
        value *= 1_000.0;
    }
    format!("{}{prefix}", four_digits(value))
}

/// Writes seconds as a duration: `1d 2h 3m 4s`.
pub(super) fn humanize_duration(value: f64) -> String {
    if !value.is_finite() {
        return four_digits(value);
    }
    if value == 0.0 {
        return "0s".to_owned();
    }
    if value.abs() < 1.0 {
        return format!("{}s", small(value));
    }
    let sign = if value < 0.0 { "-" } else { "" };
    let magnitude = value.abs();
    let whole = magnitude as i64;
    let (seconds, minutes) = (whole % 60, whole / 60 % 60);
    let (hours, days) = (whole / 3_600 % 24, whole / 86_400);
    if days != 0 {
        format!("{sign}{days}d {hours}h {minutes}m {seconds}s")
    } else if hours != 0 {
        format!("{sign}{hours}h {minutes}m {seconds}s")
    } else if minutes != 0 {
        format!("{sign}{minutes}m {seconds}s")
    } else {
        format!("{sign}{}s", four_digits(magnitude))
    }
}

/// Writes a ratio as a percentage: `12.5%`.
pub(super) fn humanize_percentage(value: f64) -> String {
    format!("{}%", four_digits(value * 100.0))
}

/// Writes seconds since 1970 as a date and time in UTC.
pub(super) fn humanize_timestamp(value: f64) -> Result<String, String> {
    if !value.is_finite() {
        return Ok(four_digits(value));
    }
    let overflows = || {
        format!(
            "{} cannot be represented as a nanoseconds timestamp since it overflows int64",
            format_g(value, None)
        )
    };
    let nanos = value * 1e9;
    if nanos.abs() >= i64::MAX as f64 {
        return Err(overflows());
    }
    let time = jiff::Timestamp::from_nanosecond(i128::from(nanos as i64));
    let time = time.map_err(|_| overflows())?;
    let text = time.strftime("%Y-%m-%d %H:%M:%S").to_string();
    // Prometheus keeps milliseconds, and Go omits trailing zeros.
    let millis = time.as_millisecond().rem_euclid(1_000);
    let fraction = format!(".{millis:03}");
    let fraction = fraction.trim_end_matches('0').trim_end_matches('.');
    Ok(format!("{text}{fraction} +0000 UTC"))
}
