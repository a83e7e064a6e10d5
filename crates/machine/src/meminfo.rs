//! Lines of `/proc/meminfo` and of the NUMA nodes' `meminfo`.

use crate::{Words, parse_u64};

/// One line: `Key:  123 kB`, or the same without a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MeminfoField<'a> {
    pub key: &'a [u8],
    pub number: u64,
    /// The number is a size in KiB.
    pub is_kib: bool,
}

impl<'a> MeminfoField<'a> {
    /// Parses a line without its newline; `None` for any other format.
    #[inline]
    pub fn parse(line: &'a [u8]) -> Option<MeminfoField<'a>> {
        let colon = line.iter().position(|&byte| byte == b':')?;
        let (key, rest) = line.split_at(colon);
        let is_key = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'(' | b')');
        if key.is_empty() || !key.iter().all(is_key) {
            return None;
        }
        let mut words = Words(&rest[1..]);
        let number = parse_u64(words.next()?)?;
        let is_kib = match words.next() {
            None => false,
            Some(b"kB") => true,
            Some(_) => return None,
        };
        Some(MeminfoField {
            key,
            number,
            is_kib,
        })
    }

    /// Returns the value, a size in bytes.
    #[inline]
    pub fn value(&self) -> f64 {
        let unit = if self.is_kib { 1024.0 } else { 1.0 };
        self.number as f64 * unit
    }

    /// Returns the key as part of a metric name: `Active(anon)` is `Active_anon`.
    pub fn metric_key(&self) -> String {
        // The parser accepts only ASCII keys.
        let key = String::from_utf8_lossy(self.key);
        key.replace('(', "_").replace(')', "")
    }
}

/// Returns the size of a field in bytes.
pub fn meminfo_bytes(text: &str, key: &str) -> Option<u64> {
    let mut fields = text
        .lines()
        .filter_map(|line| MeminfoField::parse(line.as_bytes()));
    let field = fields.find(|field| field.key == key.as_bytes() && field.is_kib)?;
    field.number.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_in_bytes() {
        let text = "MemTotal:       49368200 kB\nSwapTotal:             0 kB\nMemTotalX: 1 kB\n";
        assert_eq!(meminfo_bytes(text, "MemTotal"), Some(49_368_200 << 10));
        assert_eq!(meminfo_bytes(text, "SwapTotal"), Some(0));
        assert_eq!(meminfo_bytes(text, "Mem"), None);
    }

    #[test]
    fn lines_of_another_format_are_skipped() {
        let field = MeminfoField::parse(b"Active(anon):  12 kB").expect("valid");
        assert_eq!(
            (field.metric_key(), field.value()),
            ("Active_anon".to_owned(), 12_288.0)
        );
        let field = MeminfoField::parse(b"HugePages_Total:     4").expect("valid");
        assert_eq!((field.value(), field.is_kib), (4.0, false));
        for bad in [
            "",
            "MemTotal: x kB",
            "MemTotal: 1 MB",
            "MemTotal 1 kB",
            ": 1 kB",
        ] {
            assert_eq!(MeminfoField::parse(bad.as_bytes()), None, "{bad}");
        }
    }
}
