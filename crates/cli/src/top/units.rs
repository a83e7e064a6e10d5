//! Formats values in few characters and a steady width: three digits, a prefix, a unit.

use pegel_metric::{Family, MetricKind};

use crate::format::number;

const BINARY: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
const DECIMAL: [&str; 7] = ["", "k", "M", "G", "T", "P", "E"];

/// Formats bytes: `1.53 GiB`, at most eight characters.
pub fn bytes(value: f64) -> String {
    let (number, step) = scaled(value, 1024.0);
    match step {
        0 => format!("{value:.0} B"),
        _ => format!("{number} {}", BINARY[step]),
    }
}

pub fn bytes_per_second(value: f64) -> String {
    format!("{}/s", bytes(value))
}

/// Formats a number with decimal prefix and unit: `12.4 kW`, at most six characters plus the unit.
pub fn decimal(value: f64, unit: &str) -> String {
    let (number, step) = scaled(value, 1000.0);
    let suffix = format!("{}{unit}", DECIMAL[step]);
    if suffix.is_empty() {
        number
    } else {
        format!("{number} {suffix}")
    }
}

/// Formats a fraction of one as `12.3 %`.
pub fn percent(share: f64) -> String {
    match share * 100.0 {
        value if !value.is_finite() => non_finite(value),
        value if value.abs() >= 99.95 => format!("{value:.0} %"),
        value => format!("{value:.1} %"),
    }
}

/// Formats seconds as `12.3 ms`, `4.56 s`, `3 h 25 min`, `12 d 04 h`.
pub fn duration(seconds: f64) -> String {
    let whole = seconds.abs();
    match whole {
        s if !s.is_finite() => non_finite(seconds),
        0.0 => "0 s".to_owned(),
        s if s < 1e-3 => format!("{} µs", digits(seconds * 1e6)),
        s if s < 1.0 => format!("{} ms", digits(seconds * 1e3)),
        s if s < 600.0 => format!("{} s", digits(seconds)),
        s if s < 7200.0 => format!("{:.0} min", seconds / 60.0),
        s if s < 172_800.0 => {
            let minutes = (s / 60.0) as u64;
            format!("{} h {:02} min", minutes / 60, minutes % 60)
        }
        s => {
            let hours = (s / 3600.0) as u64;
            format!("{} d {:02} h", hours / 24, hours % 24)
        }
    }
}

/// Formats a value in the unit of its family.
pub fn value(value: f64, family: &Family) -> String {
    match unit(family) {
        DisplayUnit::Bytes => bytes(value),
        // A gauge of this size is a time in seconds since 1970: show the date.
        DisplayUnit::Seconds if family.kind != MetricKind::Counter && value >= 1e9 => {
            let date = number::utc(value);
            date.split(' ').next().unwrap_or_default().to_owned()
        }
        DisplayUnit::Seconds => duration(value),
        DisplayUnit::Ratio => percent(value),
        DisplayUnit::Other(unit) => decimal(value, unit),
    }
}

/// Formats the rate of a counter in the unit of its family.
pub fn rate(value: f64, family: &Family) -> String {
    match unit(family) {
        DisplayUnit::Bytes => bytes_per_second(value),
        DisplayUnit::Seconds => format!("{} s/s", digits(value)),
        DisplayUnit::Ratio => format!("{}/s", percent(value)),
        DisplayUnit::Other("J") => decimal(value, "W"),
        DisplayUnit::Other(unit) => format!("{}/s", decimal(value, unit)),
    }
}

enum DisplayUnit {
    Bytes,
    Seconds,
    Ratio,
    Other(&'static str),
}

/// Returns the family's unit, else the one in the suffix of its name: programs often declare none.
fn unit(family: &Family) -> DisplayUnit {
    let name = family.name.trim_end_matches("_total");
    let unit = match family.unit.as_ref() {
        "" => name.rsplit(['_', '.']).next().unwrap_or_default(),
        declared => declared,
    };
    match unit {
        "bytes" => DisplayUnit::Bytes,
        "seconds" => DisplayUnit::Seconds,
        "ratio" => DisplayUnit::Ratio,
        "celsius" => DisplayUnit::Other("°C"),
        "watts" | "watt" => DisplayUnit::Other("W"),
        "joules" | "joule" => DisplayUnit::Other("J"),
        "hertz" => DisplayUnit::Other("Hz"),
        "volts" => DisplayUnit::Other("V"),
        "amps" => DisplayUnit::Other("A"),
        "bytes_per_second" => DisplayUnit::Other("B/s"),
        _ => DisplayUnit::Other(""),
    }
}

/// Returns three digits, and the number of divisions by the base.
fn scaled(value: f64, base: f64) -> (String, usize) {
    let mut rest = value;
    let mut step = 0;
    // 999.5 would be written with four digits.
    while rest.abs() >= 999.5 && rest.is_finite() && step < BINARY.len() - 1 {
        rest /= base;
        step += 1;
    }
    let number = match rest.abs() {
        // With a prefix, keep the fraction: the width stays constant.
        v if step > 0 && v < 9.995 => format!("{rest:.2}"),
        v if v >= 999.5 && v.is_finite() => format!("{rest:.1e}"),
        _ => digits(rest),
    };
    (number, step)
}

/// Formats three significant digits; whole numbers below ten without a fraction.
fn digits(value: f64) -> String {
    match value.abs() {
        v if !v.is_finite() => non_finite(value),
        v if v >= 99.95 => format!("{value:.0}"),
        v if v == v.trunc() && v < 10.0 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        v if v >= 0.01 => format!("{value:.2}"),
        _ => format!("{value:.1e}"),
    }
}

fn non_finite(value: f64) -> String {
    match value {
        v if v.is_nan() => "NaN".to_owned(),
        v if v > 0.0 => "+Inf".to_owned(),
        _ => "-Inf".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_never_need_more_than_eight_characters() {
        for (value, text) in [
            (0.0, "0 B"),
            (999.0, "999 B"),
            (1023.0, "1.00 KiB"),
            (1024.0 * 1023.0, "1.00 MiB"),
            (1.5 * 1024.0 * 1024.0, "1.50 MiB"),
            (999.4 * 1024.0 * 1024.0, "999 MiB"),
            (2e30, "1.7e12 EiB"),
        ] {
            assert_eq!(bytes(value), text);
        }
        assert!((0..60).all(|shift| bytes((1u64 << shift) as f64 * 1.3).len() <= 8));
    }

    #[test]
    fn numbers_keep_three_digits() {
        for (value, text) in [
            (0.0, "0"),
            (7.0, "7"),
            (42.0, "42.0"),
            (0.4123, "0.41"),
            (999.6, "1.00 k"),
            (12_441_600.0, "12.4 M"),
            (-5.25, "-5.25"),
            (0.00001, "1.0e-5"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Inf"),
        ] {
            assert_eq!(decimal(value, ""), text);
        }
    }

    #[test]
    fn percentages_and_durations_have_units() {
        assert_eq!(
            [0.0, 0.0312, 0.9994, 0.9996, 2.5].map(percent),
            ["0.0 %", "3.1 %", "99.9 %", "100 %", "250 %"]
        );
        assert_eq!(
            [0.0, 0.0000123, 0.0123, 4.56, 1200.0, 12_300.0, 1e6].map(duration),
            [
                "0 s",
                "12.3 µs",
                "12.3 ms",
                "4.56 s",
                "20 min",
                "3 h 25 min",
                "11 d 13 h"
            ]
        );
    }

    #[test]
    fn a_value_is_shown_in_the_unit_of_its_family() {
        let family =
            |name: &'static str, kind, unit: &'static str| Family::new(name, kind, unit, 1, "");
        let free = family("m", MetricKind::Gauge, "bytes");
        assert_eq!(value(2048.0, &free), "2.00 KiB");
        let boot = family("boot", MetricKind::Gauge, "seconds");
        assert_eq!(value(1_667_486_717.0, &boot), "2022-11-03");
        let spent = family("mpi_time_seconds_total", MetricKind::Counter, "");
        assert_eq!(value(1.5e9, &spent), "17361 d 02 h");
        assert_eq!(rate(0.25, &spent), "0.25 s/s");
        let energy = family("e", MetricKind::Counter, "joules");
        assert_eq!(rate(1234.0, &energy), "1.23 kW");
        assert_eq!(
            value(34.0, &family("t", MetricKind::Gauge, "celsius")),
            "34.0 °C"
        );
    }
}
