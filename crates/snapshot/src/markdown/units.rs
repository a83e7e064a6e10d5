//! Formats numbers with units.

pub(super) use pegel_metric::quantity::{bytes, decimal_bytes as disk_bytes, three_digits};

/// Formats a speed: `100 Gbit/s`.
pub(super) fn mbit(count: u64) -> String {
    match count {
        0..1000 => format!("{count} Mbit/s"),
        _ => format!("{} Gbit/s", three_digits(count as f64 / 1000.0)),
    }
}

/// Formats a duration: `3 days 4 h`, `5 h 6 min`, `7 min`, `8 s`.
pub(super) fn uptime(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min"),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (1, hours, _) => format!("1 day {hours} h"),
        (days, hours, _) => format!("{days} days {hours} h"),
    }
}

/// Formats a count with its noun: `1 core`, `2 cores`.
pub(super) fn plural(count: usize, word: &str) -> String {
    format!("{count} {word}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_units() {
        assert_eq!(
            [mbit(100), mbit(25_000), mbit(2500)],
            ["100 Mbit/s", "25 Gbit/s", "2.5 Gbit/s"]
        );
        assert_eq!(
            [
                uptime(5),
                uptime(125),
                uptime(7260),
                uptime(90_000),
                uptime(273_600)
            ],
            ["5 s", "2 min", "2 h 1 min", "1 day 1 h", "3 days 4 h"]
        );
        assert_eq!(
            [plural(1, "core"), plural(2, "core")],
            ["1 core", "2 cores"]
        );
    }
}
