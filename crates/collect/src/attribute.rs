//! Attributes: small files with one value, as in `/sys`. Opened, read and closed each time, for
//! collectors outside the hot path. An unreadable attribute has no value and is not a failure: drivers omit
//! attributes, or reject reads while a device is down.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use pegel_plain_file::read_plain;

use crate::proc_parse::{parse_hex, parse_signed};

/// The kernel returns at most a page.
const BYTES_MAX: u64 = 64 * 1024;
/// More devices of one kind than any node has.
const NAMES_MAX: usize = 16_384;

/// Reads the trimmed text.
pub(crate) fn attribute_text(path: &Path) -> Option<String> {
    let bytes = read_plain(path, BYTES_MAX).ok()?;
    Some(String::from_utf8_lossy(&bytes).trim().to_owned())
}

/// Reads a whole number, decimal or hexadecimal with the prefix `0x`.
pub(crate) fn attribute_number(path: &Path) -> Option<f64> {
    let text = attribute_text(path)?;
    match text.strip_prefix("0x") {
        Some(digits) => parse_hex(digits.as_bytes()).map(|value| value as f64),
        None => parse_signed(text.as_bytes()),
    }
}

/// Returns the sorted entries of a directory; empty if it does not exist.
pub(crate) fn directory_names(directory: &Path) -> Vec<OsString> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    let names = entries.filter_map(|entry| Some(entry.ok()?.file_name()));
    let mut names: Vec<OsString> = names.take(NAMES_MAX).collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_or_left_out() {
        let folder = std::env::temp_dir().join(format!("pegel-attribute-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("create");
        let path = folder.join("value");
        for (written, expected) in [
            ("1500\n", Some(1500.0)),
            ("-1\n", Some(-1.0)),
            ("0x1003\n", Some(4099.0)),
            ("\n", None),
            ("up\n", None),
            ("0x\n", None),
        ] {
            fs::write(&path, written).expect("write");
            assert_eq!(attribute_number(&path), expected, "{written:?}");
        }
        fs::write(&path, " a b \n").expect("write");
        assert_eq!(attribute_text(&path).as_deref(), Some("a b"));
        assert_eq!(directory_names(&folder), ["value"]);
        fs::remove_dir_all(&folder).expect("remove");
        assert_eq!(
            (attribute_text(&path), directory_names(&folder).len()),
            (None, 0)
        );
    }
}
