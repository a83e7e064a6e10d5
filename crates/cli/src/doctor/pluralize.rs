//! Formats counts and sizes for messages.

pub(crate) use pegel_metric::quantity::bytes as format_bytes;

/// Formats a count with its noun: `1 file`, `2 files`.
pub(crate) fn pluralized(count: u64, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_counts() {
        assert_eq!(format_bytes(1 << 30), "1 GiB");
        assert_eq!(format_bytes(1_500_000_000), "1.4 GiB");
        assert_eq!(format_bytes(12), "12 B");
        assert_eq!(
            (pluralized(1, "time"), pluralized(0, "time")),
            ("1 time".into(), "0 times".into())
        );
    }
}
