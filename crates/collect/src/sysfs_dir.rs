//! Directories of `/sys`, whose files are attributes with one value each.
//!
//! Attributes are opened, read and closed each time: an open file pins a page in the kernel, and a
//! large node has thousands. An unreadable attribute has no value and is not a failure: drivers
//! omit attributes, or reject reads while a device is down.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use pegel_machine::{DIRECTORY_NAMES_MAX, natural_order};
use rustix::fs::{CWD, Dir, Mode, OFlags, openat};

use crate::proc_parse::{parse_hex, parse_signed, parse_u64};

/// The kernel returns at most a page, except for binary attributes.
const BYTES_MAX: usize = 64 * 1024;

#[derive(Debug)]
pub(crate) struct SysfsDir {
    fd: OwnedFd,
    path: PathBuf,
}

impl SysfsDir {
    /// Opens a directory; `None` if it does not exist or is not accessible.
    pub(crate) fn open(path: &Path) -> Option<SysfsDir> {
        let fd = openat(CWD, path, directory_flags(), Mode::empty()).ok()?;
        let path = path.to_owned();
        Some(SysfsDir { fd, path })
    }

    pub(crate) fn subdir(&self, name: &str) -> Option<SysfsDir> {
        let fd = openat(&self.fd, name, directory_flags(), Mode::empty()).ok()?;
        let path = self.path.join(name);
        Some(SysfsDir { fd, path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the entries with UTF-8 names in natural order: `cpu2` before `cpu10`.
    pub(crate) fn names(&self) -> Vec<String> {
        let Ok(entries) = Dir::read_from(&self.fd) else {
            return Vec::new();
        };
        let names = entries.filter_map(|entry| {
            let name = entry.ok()?.file_name().to_str().ok()?.to_owned();
            (name != "." && name != "..").then_some(name)
        });
        let mut names: Vec<String> = names.take(DIRECTORY_NAMES_MAX).collect();
        names.sort_by(|a, b| natural_order(a, b));
        names
    }

    /// Returns the subdirectories whose name is `stem` and a number, with that number as text.
    pub(crate) fn numbered_subdirs(&self, stem: &str) -> Vec<(String, SysfsDir)> {
        let numbered = self.names().into_iter().filter_map(|name| {
            let number = name.strip_prefix(stem)?;
            parse_u64(number.as_bytes())?;
            let folder = self.subdir(&name)?;
            Some((number.to_owned(), folder))
        });
        numbered.collect()
    }

    /// Reads the whole attribute.
    pub(crate) fn bytes(&self, name: &str) -> io::Result<Vec<u8>> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = openat(&self.fd, name, flags, Mode::empty())?;
        let mut page = [0; 4096];
        let count = rustix::io::read(&file, &mut page)?;
        let mut bytes = page[..count].to_vec();
        // Most attributes are far smaller than a page and need only this one read.
        let mut last = count;
        while last != 0 && (bytes.len() >= page.len() || last == page.len()) {
            if bytes.len() >= BYTES_MAX {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            last = rustix::io::read(&file, &mut page)?;
            bytes.extend_from_slice(&page[..last]);
        }
        Ok(bytes)
    }

    /// Reads the trimmed text; `None` if it is empty.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        let text = trimmed_text(&self.bytes(name).ok()?);
        (!text.is_empty()).then_some(text)
    }

    /// Reads labels from files: pairs of a label and its file. Attributes that do not exist are
    /// left out, empty ones are not.
    pub(crate) fn labels<'a>(&self, files: &[(&'a str, &str)]) -> Vec<(&'a str, String)> {
        let read = |(label, file): &(&'a str, &str)| {
            let text = trimmed_text(&self.bytes(file).ok()?);
            Some((*label, text))
        };
        files.iter().filter_map(read).collect()
    }

    /// Reads a whole number: decimal and possibly negative, or hexadecimal with the prefix `0x`.
    pub(crate) fn number(&self, name: &str) -> Option<f64> {
        let bytes = self.bytes(name).ok()?;
        let text = bytes.trim_ascii();
        match text.strip_prefix(b"0x") {
            Some(digits) => parse_hex(digits).map(|value| value as f64),
            None => parse_signed(text),
        }
    }

    /// Reads a whole number without sign, exactly.
    pub(crate) fn unsigned(&self, name: &str) -> Option<u64> {
        parse_u64(self.bytes(name).ok()?.trim_ascii())
    }
}

fn trimmed_text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.trim_ascii()).into_owned()
}

fn directory_flags() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn attributes_have_a_value_or_none() {
        let root = std::env::temp_dir().join(format!("pegel-folder-{}", std::process::id()));
        for name in ["cpu10", "cpu2", "cpu", "cpux1"] {
            fs::create_dir_all(root.join(name)).expect("create");
        }
        let large = "7".repeat(5_000);
        for (name, text) in [
            ("five", "5\n"),
            ("minus", "-40000\n"),
            ("hex", "0x1003\n"),
            ("no_hex", "0x\n"),
            ("word", " a b\n"),
            ("empty", "\n"),
            ("large", &large),
        ] {
            fs::write(root.join(name), text).expect("write");
        }
        let folder = SysfsDir::open(&root).expect("there");
        assert_eq!(folder.number("five"), Some(5.0));
        assert_eq!(folder.unsigned("five"), Some(5));
        assert_eq!(folder.number("minus"), Some(-40_000.0));
        assert_eq!(folder.unsigned("minus"), None);
        assert_eq!(folder.number("hex"), Some(4099.0));
        assert_eq!(folder.number("no_hex"), None);
        assert_eq!(folder.text("word").as_deref(), Some("a b"));
        for missing in ["word", "empty", "none", "cpu2"] {
            assert_eq!(folder.number(missing), None, "{missing}");
        }
        assert_eq!(folder.text("empty"), None);
        assert_eq!(folder.bytes("large").expect("whole").len(), 5_000);
        let numbers: Vec<String> = folder
            .numbered_subdirs("cpu")
            .into_iter()
            .map(|(n, _)| n)
            .collect();
        assert_eq!(numbers, ["2", "10"]);
        fs::write(root.join("huge"), vec![b'1'; BYTES_MAX + 1]).expect("write");
        assert!(folder.bytes("huge").is_err());
        fs::remove_dir_all(&root).expect("remove");
        assert!(SysfsDir::open(&root).is_none());
        assert_eq!(folder.number("five"), None, "the device is gone");
        assert!(folder.names().is_empty());
    }
}
