//! Formats numbers with units.

/// Formats bytes in binary units: `64 GiB`, `1.5 TiB`, `512 B`.
pub(super) fn bytes(count: u64) -> String {
    scaled(
        count as f64,
        1024.0,
        ["B", "KiB", "MiB", "GiB", "TiB", "PiB"],
    )
}

/// Formats bytes in decimal units, as disk vendors do: `960 GB`, `3.84 TB`.
pub(super) fn disk_bytes(count: u64) -> String {
    scaled(count as f64, 1000.0, ["B", "kB", "MB", "GB", "TB", "PB"])
}

/// Formats a speed: `100 Gbit/s`.
pub(super) fn mbit(count: u64) -> String {
    match count {
        0..1000 => format!("{count} Mbit/s"),
        _ => format!("{} Gbit/s", three_digits(count as f64 / 1000.0)),
    }
}

fn scaled(mut value: f64, step: f64, names: [&str; 6]) -> String {
    let mut unit = 0;
    while value >= step && unit + 1 < names.len() {
        value /= step;
        unit += 1;
    }
    format!("{} {}", three_digits(value), names[unit])
}

/// Formats a number with up to two decimals, about three significant digits.
pub(super) fn three_digits(value: f64) -> String {
    let places = match value {
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    };
    let text = format!("{value:.places$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
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
            [
                bytes(0),
                bytes(1023),
                bytes(64 << 30),
                bytes(1_649_267_441_664)
            ],
            ["0 B", "1023 B", "64 GiB", "1.5 TiB"]
        );
        assert_eq!(
            [disk_bytes(960_197_124_096), disk_bytes(3_840_755_982_336)],
            ["960 GB", "3.84 TB"]
        );
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
