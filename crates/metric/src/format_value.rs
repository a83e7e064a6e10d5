//! The text form of a sample value.

use std::fmt::Write;

/// Appends `value` as Prometheus, Graphite and the command line print it: the shortest text that
/// parses back to the same f64; `NaN`, `+Inf`, `-Inf` for non-finite values.
pub fn format_value(out: &mut String, value: f64) {
    if value.is_nan() {
        out.push_str("NaN");
    } else if value.is_infinite() {
        out.push_str(if value > 0.0 { "+Inf" } else { "-Inf" });
    } else if value == 0.0 || (1e-5..1e17).contains(&value.abs()) {
        // `Display` never uses an exponent. Writing to a String cannot fail.
        let _ = write!(out, "{value}");
    } else {
        let _ = write!(out, "{value:e}");
    }
}

#[cfg(test)]
mod tests {
    use super::format_value;

    #[test]
    fn reads_back_bit_for_bit() {
        for value in [
            0.0,
            -0.0,
            1.0,
            0.1,
            123456789.25,
            1e300,
            5e-324,
            f64::MAX,
            1e17,
            9.9e16,
            1e-5,
            9e-6,
            -2.5,
        ] {
            let mut text = String::new();
            format_value(&mut text, value);
            let back: f64 = text.parse().expect("a number");
            assert_eq!(back.to_bits(), value.to_bits(), "{text}");
            assert!(text.len() <= 25, "{text}");
        }
    }

    #[test]
    fn names_what_is_not_finite() {
        for (value, expected) in [
            (f64::NAN, "NaN"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
        ] {
            let mut text = String::new();
            format_value(&mut text, value);
            assert_eq!(text, expected);
        }
    }
}
