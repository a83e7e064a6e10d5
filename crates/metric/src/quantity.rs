//! Formats quantities for people: about three digits, a prefix and a unit. Exact values are the
//! task of [`format_value`](crate::format_value).
//!
//! Texts in sentences are as short as possible (`64 GiB`); those in columns that change keep a
//! steady width (`64.0 GiB`).

const BINARY: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
const DECIMAL: [&str; 7] = ["", "k", "M", "G", "T", "P", "E"];

/// Formats bytes with binary prefixes: `64 GiB`, `1.5 TiB`, `512 B`.
pub fn bytes(count: u64) -> String {
    let (value, prefix) = scaled(count as f64, 1024.0, 1023.5);
    format!("{} {}", three_digits(value), BINARY[prefix])
}

/// Formats bytes with decimal prefixes, as disk vendors do: `960 GB`, `3.84 TB`.
pub fn decimal_bytes(count: u64) -> String {
    let (value, prefix) = scaled(count as f64, 1000.0, 999.5);
    format!("{} {}B", three_digits(value), DECIMAL[prefix])
}

/// Formats bytes with binary prefixes in a steady width: `1.53 GiB`, at most eight characters.
pub fn steady_bytes(value: f64) -> String {
    let (number, prefix) = steady_scaled(value, 1024.0);
    match prefix {
        0 => format!("{value:.0} B"),
        _ => format!("{number} {}", BINARY[prefix]),
    }
}

/// Formats a number with decimal prefix and unit in a steady width: `12.4 kW`, at most six
/// characters plus the unit.
pub fn steady_decimal(value: f64, unit: &str) -> String {
    let (number, prefix) = steady_scaled(value, 1000.0);
    let suffix = format!("{}{unit}", DECIMAL[prefix]);
    if suffix.is_empty() {
        number
    } else {
        format!("{number} {suffix}")
    }
}

/// Formats a number with up to two decimals, about three significant digits.
pub fn three_digits(value: f64) -> String {
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

/// Formats three significant digits in a steady width; whole numbers below ten without a fraction.
pub fn steady_digits(value: f64) -> String {
    match value.abs() {
        v if !v.is_finite() => non_finite(value).to_owned(),
        v if v >= 99.95 => format!("{value:.0}"),
        v if v == v.trunc() && v < 10.0 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        v if v >= 0.01 => format!("{value:.2}"),
        _ => format!("{value:.1e}"),
    }
}

/// Returns the name of a value that is not a number: `NaN`, `+Inf`, `-Inf`.
pub fn non_finite(value: f64) -> &'static str {
    match value {
        v if v.is_nan() => "NaN",
        v if v > 0.0 => "+Inf",
        _ => "-Inf",
    }
}

/// Separates the thousands of a whole number in digits: `12 441 600`.
pub fn group_thousands(digits: &str, separator: char) -> String {
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(separator);
        }
        text.push(digit);
    }
    text
}

/// Divides by the base until the value is below the limit. Returns the number of divisions too.
fn scaled(mut value: f64, base: f64, limit: f64) -> (f64, usize) {
    let mut divisions = 0;
    while value.abs() >= limit && value.is_finite() && divisions < BINARY.len() - 1 {
        value /= base;
        divisions += 1;
    }
    (value, divisions)
}

/// Returns three digits, and the number of divisions by the base.
fn steady_scaled(value: f64, base: f64) -> (String, usize) {
    // 999.5 would be written with four digits.
    let (rest, prefix) = scaled(value, base, 999.5);
    let number = match rest.abs() {
        // With a prefix, keep the fraction: the width stays constant.
        v if prefix > 0 && v < 9.995 => format!("{rest:.2}"),
        v if v >= 999.5 && v.is_finite() => format!("{rest:.1e}"),
        _ => steady_digits(rest),
    };
    (number, prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_binary_or_decimal_prefixes() {
        for (count, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (64 << 20, "64 MiB"),
            (1 << 30, "1 GiB"),
            (1_500_000_000, "1.4 GiB"),
            (1_649_267_441_664, "1.5 TiB"),
        ] {
            assert_eq!(bytes(count), text);
        }
        for (count, text) in [
            (999, "999 B"),
            (1500, "1.5 kB"),
            (999_960, "1 MB"),
            (960_197_124_096, "960 GB"),
            (3_840_755_982_336, "3.84 TB"),
            (u64::MAX, "18.4 EB"),
        ] {
            assert_eq!(decimal_bytes(count), text);
        }
    }

    #[test]
    fn steady_bytes_never_need_more_than_eight_characters() {
        for (value, text) in [
            (0.0, "0 B"),
            (999.0, "999 B"),
            (1023.0, "1.00 KiB"),
            (1024.0 * 1023.0, "1.00 MiB"),
            (1.5 * 1024.0 * 1024.0, "1.50 MiB"),
            (999.4 * 1024.0 * 1024.0, "999 MiB"),
            (2e30, "1.7e12 EiB"),
        ] {
            assert_eq!(steady_bytes(value), text);
        }
        assert!((0..60).all(|shift| steady_bytes((1u64 << shift) as f64 * 1.3).len() <= 8));
    }

    #[test]
    fn steady_numbers_keep_three_digits() {
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
            assert_eq!(steady_decimal(value, ""), text);
        }
    }

    #[test]
    fn thousands_are_separated() {
        assert_eq!(group_thousands("0", ','), "0");
        assert_eq!(group_thousands("999", ','), "999");
        assert_eq!(group_thousands("1234567", ','), "1,234,567");
    }
}
