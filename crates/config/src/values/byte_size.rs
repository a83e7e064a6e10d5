//! Sizes in bytes.

use std::fmt;
use std::str::FromStr;

use super::number_and_unit;

/// A number of bytes: `64MiB`, `1GiB`, `1000`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ByteSize {
    text: String,
    count: u64,
}

const UNITS: &[(&str, u64)] = &[
    ("b", 1),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
];

impl ByteSize {
    pub fn mebibytes(count: u64) -> ByteSize {
        let text = if count.is_multiple_of(1024) {
            format!("{}GiB", count / 1024)
        } else {
            format!("{count}MiB")
        };
        ByteSize {
            text,
            count: count << 20,
        }
    }

    pub fn kibibytes(count: u64) -> ByteSize {
        if count.is_multiple_of(1024) {
            return ByteSize::mebibytes(count >> 10);
        }
        ByteSize {
            text: format!("{count}KiB"),
            count: count << 10,
        }
    }

    pub fn bytes(count: u64) -> ByteSize {
        if count > 0 && count.is_multiple_of(1024) {
            return ByteSize::kibibytes(count >> 10);
        }
        ByteSize {
            text: count.to_string(),
            count,
        }
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the number of bytes; one that exceeds the address space means no limit.
    pub fn as_usize(&self) -> usize {
        usize::try_from(self.count).unwrap_or(usize::MAX)
    }
}

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<ByteSize, String> {
        let wrong = || format!("\"{text}\" is not a number of bytes");
        let (number, unit) = number_and_unit(text).ok_or_else(wrong)?;
        let unit = unit.to_ascii_lowercase();
        let factor = match unit.as_str() {
            "" => 1,
            unit => {
                UNITS
                    .iter()
                    .find(|(name, _)| *name == unit)
                    .ok_or_else(wrong)?
                    .1
            }
        };
        let count = number * factor as f64;
        if !(1.0..=(1u64 << 50) as f64).contains(&count) {
            return Err(format!("\"{text}\" is not between 1 byte and 1024TiB"));
        }
        // Within these bounds the conversion only truncates a fraction of a byte.
        Ok(ByteSize {
            text: text.trim().to_owned(),
            count: count as u64,
        })
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

crate::text_setting!(
    ByteSize,
    "a size such as 64MiB, 1GiB, 500MB or 1000 (bytes)"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_binary_and_decimal_units() {
        for (text, count) in [
            ("1GiB", 1 << 30),
            ("64MiB", 64 << 20),
            ("1000", 1000),
            ("1.5 kb", 1500),
            ("2gb", 2_000_000_000),
        ] {
            let bytes: ByteSize = text.parse().expect("valid");
            assert_eq!((bytes.count(), bytes.to_string()), (count, text.to_owned()));
        }
        assert_eq!(ByteSize::mebibytes(1024).to_string(), "1GiB");
    }

    #[test]
    fn refuses_what_is_no_size() {
        for text in ["", "big", "1 G", "-1", "0", "nan", "9999999TiB"] {
            assert!(text.parse::<ByteSize>().is_err(), "{text}");
        }
    }
}
