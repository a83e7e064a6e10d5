//! The udev properties of a device: `E:KEY=value` lines in a file of `/run/udev/data`.

use std::collections::HashMap;
use std::path::Path;

use pegel_plain_file::read_plain;

/// Larger than the entry of any device; a longer one is ignored.
const BYTES_MAX: u64 = 256 * 1024;

#[derive(Debug, Default)]
pub struct UdevProperties(HashMap<String, String>);

impl UdevProperties {
    /// Reads the properties of a block device; `None` if udev has none or they are unreadable,
    /// which is common and not logged.
    pub fn of_block_device(udev: &Path, major: u64, minor: u64) -> Option<UdevProperties> {
        let path = udev.join(format!("b{major}:{minor}"));
        let text = read_plain(&path, BYTES_MAX + 1).ok()?;
        let is_whole = text.len() as u64 <= BYTES_MAX;
        is_whole.then(|| UdevProperties::parse(&String::from_utf8_lossy(&text)))
    }

    pub fn parse(text: &str) -> UdevProperties {
        let pairs = text
            .lines()
            .filter_map(|line| line.strip_prefix("E:")?.split_once('='));
        let pairs = pairs.map(|(key, value)| (key.to_owned(), value.to_owned()));
        UdevProperties(pairs.collect())
    }

    /// Returns a property; empty if it is unknown.
    pub fn get(&self, key: &str) -> &str {
        self.0.get(key).map_or("", String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_properties_are_taken() {
        let properties = UdevProperties::parse(
            "S:disk/by-id/x\nI:123\nE:ID_MODEL=A=B\nE:broken\nG:systemd\nE:ID_WWN=0x5",
        );
        assert_eq!(properties.get("ID_MODEL"), "A=B");
        assert_eq!(properties.get("ID_WWN"), "0x5");
        assert_eq!(properties.get("broken"), "");
    }
}
