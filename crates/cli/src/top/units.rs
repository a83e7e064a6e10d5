//! Formats values in few characters and a steady width: three digits, a prefix, a unit.

pub(crate) use pegel_metric::quantity::{steady_bytes as bytes, steady_decimal as decimal};

use pegel_metric::quantity::{non_finite, steady_digits as digits};
use pegel_metric::{Family, MetricKind};

use crate::format::number;

pub(super) fn bytes_per_second(value: f64) -> String {
    format!("{}/s", bytes(value))
}

/// Formats a fraction of one as `12.3 %`.
pub(super) fn percent(share: f64) -> String {
    match share * 100.0 {
        value if !value.is_finite() => non_finite(value).to_owned(),
        value if value.abs() >= 99.95 => format!("{value:.0} %"),
        value => format!("{value:.1} %"),
    }
}

/// Formats seconds as `12.3 ms`, `4.56 s`, `3 h 25 min`, `12 d 04 h`.
pub(super) fn duration(seconds: f64) -> String {
    let whole = seconds.abs();
    match whole {
        s if !s.is_finite() => non_finite(seconds).to_owned(),
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
pub(super) fn value(value: f64, family: &Family) -> String {
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

/// Formats a count: whole below a thousand, then with a prefix.
pub(super) fn count(value: f64) -> String {
    if value.abs() < 999.5 {
        format!("{value:.0}")
    } else {
        decimal(value, "")
    }
}

/// Formats seconds per second, such as the time in a call: `0.25 s/s`, `12.3 ms/s`.
pub(super) fn seconds_per_second(value: f64) -> String {
    format!("{}/s", duration(value))
}

/// Formats the rate of a counter in the unit of its family.
pub(super) fn rate(value: f64, family: &Family) -> String {
    match unit(family) {
        DisplayUnit::Bytes => bytes_per_second(value),
        DisplayUnit::Seconds => seconds_per_second(value),
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

#[cfg(test)]
mod tests {
    use super::*;

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
    fn counts_are_whole() {
        assert_eq!([0.0, 33.0, 999.0].map(count), ["0", "33", "999"]);
        assert_eq!([1000.0, 12_345.0].map(count), ["1.00 k", "12.3 k"]);
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
        assert_eq!(rate(0.25, &spent), "250 ms/s");
        let energy = family("e", MetricKind::Counter, "joules");
        assert_eq!(rate(1234.0, &energy), "1.23 kW");
        assert_eq!(
            value(34.0, &family("t", MetricKind::Gauge, "celsius")),
            "34.0 °C"
        );
    }
}
