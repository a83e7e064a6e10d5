//! The udev properties of a block device: `E:KEY=value` lines in `b<major>:<minor>`.

use std::collections::HashMap;
use std::path::Path;

use pegel_plain_file::read_plain;

/// Larger than the entry of any device; a longer one is ignored.
const BYTES_MAX: u64 = 256 * 1024;

#[derive(Debug, Default)]
pub(crate) struct UdevProperties(HashMap<String, String>);

impl UdevProperties {
    /// Reads the properties of a block device; `None` if udev has none or they are unreadable, which is common
    /// and not logged.
    pub(crate) fn of_block_device(udev: &Path, major: u64, minor: u64) -> Option<UdevProperties> {
        let path = udev.join(format!("b{major}:{minor}"));
        let text = read_plain(&path, BYTES_MAX + 1).ok()?;
        (text.len() as u64 <= BYTES_MAX).then(|| parse(&text))
    }

    /// Returns a property; empty if it is unknown.
    pub(crate) fn get(&self, key: &str) -> &str {
        self.0.get(key).map_or("", String::as_str)
    }
}

fn parse(text: &[u8]) -> UdevProperties {
    let text = String::from_utf8_lossy(text);
    let pairs = text
        .lines()
        .filter_map(|line| line.strip_prefix("E:")?.split_once('='));
    UdevProperties(
        pairs
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_properties_are_taken() {
        let text = b"S:disk/by-id/x\nI:123\nE:ID_MODEL=A=B\nE:broken\nE:ID_SERIAL=\xff\nG:systemd\nE:ID_WWN=0x5";
        let properties = parse(text);
        assert_eq!(properties.get("ID_MODEL"), "A=B");
        assert_eq!(properties.get("ID_SERIAL"), "\u{fffd}");
        assert_eq!(properties.get("ID_WWN"), "0x5");
        assert_eq!(properties.get("broken"), "");
    }
}
