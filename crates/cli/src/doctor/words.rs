//! Numbers for people.

/// `1 GiB`, `64 MiB`, `1.3 GiB`, `1000 bytes`.
pub fn bytes(count: u64) -> String {
    for (shift, name) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
        let tenths = (u128::from(count) * 10) >> shift;
        if tenths >= 10 {
            return match (tenths / 10, tenths % 10) {
                (whole, 0) => format!("{whole} {name}"),
                (whole, tenth) => format!("{whole}.{tenth} {name}"),
            };
        }
    }
    format!("{count} bytes")
}

/// `1 file`, `2 files`.
pub fn count(count: u64, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_counts() {
        assert_eq!(bytes(1 << 30), "1 GiB");
        assert_eq!(bytes(1_500_000_000), "1.3 GiB");
        assert_eq!(bytes(12), "12 bytes");
        assert_eq!(
            (count(1, "time"), count(0, "time")),
            ("1 time".into(), "0 times".into())
        );
    }
}
