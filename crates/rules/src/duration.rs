//! Durations as Prometheus writes them: `1h30m`, `90s`, `500ms`, `0`.

use std::time::Duration;

/// Units from the largest to the smallest, in milliseconds. A duration names each at most once, in
/// this order.
const UNITS: [(&str, u64); 7] = [
    ("y", 365 * 86_400_000),
    ("w", 7 * 86_400_000),
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

pub(crate) const ACCEPTS: &str = "a duration such as 30s, 5m, 1h30m or 1d";

/// Parses a duration.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let malformed = || format!("not a valid duration string: {text:?}");
    let mut total: u64 = 0;
    let mut units = UNITS.iter();
    let mut rest = text;
    if rest.is_empty() {
        return Err(malformed());
    }
    while !rest.is_empty() {
        let digits = rest.find(|next: char| !next.is_ascii_digit());
        let (number, tail) = rest.split_at(digits.ok_or_else(malformed)?);
        let end = tail.find(|next: char| next.is_ascii_digit());
        let (unit, tail) = tail.split_at(end.unwrap_or(tail.len()));
        let number: u64 = number.parse().map_err(|_| malformed())?;
        let (_, millis) = units
            .find(|(name, _)| *name == unit)
            .ok_or_else(malformed)?;
        let part = number.checked_mul(*millis);
        let sum = part.and_then(|part| total.checked_add(part));
        // As in Prometheus, the largest duration is about 292 years.
        total = sum
            .filter(|sum| *sum <= i64::MAX as u64 / 1_000_000)
            .ok_or_else(|| "duration out of range".to_owned())?;
        rest = tail;
    }
    Ok(Duration::from_millis(total))
}

/// Writes a duration in the same form.
pub(crate) fn format_duration(duration: Duration) -> String {
    let mut millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if millis == 0 {
        return "0s".to_owned();
    }
    let mut text = String::new();
    for (unit, size) in UNITS {
        // Years and weeks are used only for exact multiples: `90d` stays `90d`.
        let is_exact_only = matches!(unit, "y" | "w");
        if millis >= size && (!is_exact_only || millis.is_multiple_of(size)) {
            text.push_str(&format!("{}{unit}", millis / size));
            millis %= size;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written_as_prometheus_does() {
        for (text, millis) in [
            ("0", 0),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("1d", 86_400_000),
            ("10d", 864_000_000),
            ("2w", 14 * 86_400_000),
            ("1y", 365 * 86_400_000),
            ("1s500ms", 1_500),
        ] {
            let duration = parse_duration(text).expect(text);
            assert_eq!(duration, Duration::from_millis(millis));
            if text != "0" {
                assert_eq!(format_duration(duration), text);
            }
        }
        for text in [
            "",
            "5",
            "m",
            "1m1h",
            "1m1m",
            "-1m",
            "1.5m",
            "1 m",
            "9999999999y",
        ] {
            assert!(parse_duration(text).is_err(), "{text:?}");
        }
        assert_eq!(format_duration(Duration::ZERO), "0s");
    }
}
