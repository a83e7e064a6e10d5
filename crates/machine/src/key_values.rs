//! Lines of a key and a number, the format of most files of `/proc/PID` and of control groups.

use crate::{Words, parse_u64};

/// Parses lines of the form `key value`, with the colon of `key: value` as part of the key; skips
/// all others.
pub fn key_value_lines(text: &[u8]) -> impl Iterator<Item = (&str, u64)> {
    text.split(|&byte| byte == b'\n').filter_map(|line| {
        let mut words = Words(line);
        let key = std::str::from_utf8(words.next()?).ok()?;
        Some((key, parse_u64(words.next()?)?))
    })
}

/// Returns the number of a key in lines of the form `key value`.
pub fn key_value(text: &[u8], key: &str) -> Option<u64> {
    let mut lines = key_value_lines(text);
    lines.find_map(|(found, value)| (found == key).then_some(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_without_a_number_are_skipped() {
        let text = b"anon 5\nx\nfile y\n\nshmem 7 8\n";
        let found: Vec<(&str, u64)> = key_value_lines(text).collect();
        assert_eq!(found, [("anon", 5), ("shmem", 7)]);
        assert_eq!(key_value(text, "shmem"), Some(7));
        assert_eq!(key_value(text, "file"), None);
    }
}
