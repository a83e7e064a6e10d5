//! The files of the machine that is looked at. Everything is read through here, so that a tree of files
//! is a machine, each file has a bound, and what only root may read is remembered.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use pegel_config::read_plain;
use serde::Serialize;

/// No file that is read here is larger, except where a caller says so.
const BYTES_MAX: u64 = 256 << 10;
/// More entries than any directory has that is read here.
const NAMES_MAX: usize = 16_384;

/// Something that is there and could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnreadablePath {
    /// As it is called on the machine itself.
    pub path: PathBuf,
    pub why: String,
    /// What would change it.
    pub hint: &'static str,
}

/// A machine: this one, or one made of files.
#[derive(Debug)]
pub struct MachineFiles {
    root: PathBuf,
    unreadable: RefCell<BTreeMap<PathBuf, String>>,
}

impl MachineFiles {
    /// The machine whose file systems are mounted below `root`; `/` is this one.
    pub fn at(root: impl Into<PathBuf>) -> MachineFiles {
        MachineFiles {
            root: root.into(),
            unreadable: RefCell::default(),
        }
    }

    /// Whether clocks and mounted file systems of this process are the machine's too.
    pub fn is_local(&self) -> bool {
        self.root == Path::new("/")
    }

    /// Where a path of the machine is to be found.
    pub(crate) fn resolve(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// The text of a small file without blanks around it; `None` when it is empty or cannot be read.
    pub(crate) fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        let bytes = self.bytes(path, BYTES_MAX)?;
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
        (!text.is_empty()).then(|| text.to_owned())
    }

    /// A whole number, decimal or with `0x` before it.
    pub(crate) fn number(&self, path: impl AsRef<Path>) -> Option<u64> {
        parse_number(&self.text(path)?)
    }

    /// The first bytes of a file, `bytes_max` at most.
    pub(crate) fn bytes(&self, path: impl AsRef<Path>, bytes_max: u64) -> Option<Vec<u8>> {
        let path = path.as_ref();
        match read_plain(&self.resolve(path), bytes_max) {
            Ok(bytes) => Some(bytes),
            Err(error) => {
                self.record_unreadable(path, &error);
                None
            }
        }
    }

    pub(crate) fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.resolve(path).exists()
    }

    /// What is in a directory, in the order in which people count: `cpu2` before `cpu10`.
    pub(crate) fn names(&self, directory: impl AsRef<Path>) -> Vec<String> {
        let directory = directory.as_ref();
        let entries = match fs::read_dir(self.resolve(directory)) {
            Ok(entries) => entries,
            Err(error) => {
                self.record_unreadable(directory, &error);
                return Vec::new();
            }
        };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names.take(NAMES_MAX).collect();
        names.sort_by_cached_key(|name| natural_sort_key(name));
        names
    }

    /// The last part of where a link leads: a device's `driver` is one.
    pub(crate) fn link_name(&self, path: impl AsRef<Path>) -> Option<String> {
        let target = fs::read_link(self.resolve(path)).ok()?;
        Some(target.file_name()?.to_str()?.to_owned())
    }

    /// What could not be read so far.
    pub(crate) fn unreadable(&self) -> Vec<UnreadablePath> {
        let noted = self.unreadable.borrow();
        let noted = noted.iter().map(|(path, why)| UnreadablePath {
            path: path.clone(),
            why: why.clone(),
            hint: "run as root, or let the agent's user read it",
        });
        noted.collect()
    }

    /// What is absent is quiet, and so is a driver that refuses: only missing rights are worth a word.
    fn record_unreadable(&self, path: &Path, error: &io::Error) {
        if error.kind() == io::ErrorKind::PermissionDenied {
            let path = Path::new("/").join(path);
            let why = "permission denied".to_owned();
            self.unreadable.borrow_mut().insert(path, why);
        }
    }
}

pub(crate) fn parse_number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// A key that sorts digits as numbers.
fn natural_sort_key(name: &str) -> Vec<(u64, String)> {
    let mut parts = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let letters = rest
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(rest.len());
        let (word, after) = rest.split_at(letters);
        let digits = after
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(after.len());
        let (digits, after) = after.split_at(digits);
        // The word comes first in the order, then the number behind it.
        parts.push((0, word.to_owned()));
        parts.push((digits.parse().unwrap_or(u64::MAX), String::new()));
        rest = after;
    }
    parts
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use pegel_testkit::TempDir;

    use super::*;

    #[test]
    fn names_are_in_the_order_in_which_people_count() {
        let dir = TempDir::new();
        for name in ["cpu10", "cpu2", "cpufreq", "cpu0", "nvme1n2", "nvme1n10"] {
            fs::write(dir.join(name), "").expect("written");
        }
        let names = MachineFiles::at(dir.path()).names("/");
        assert_eq!(
            names,
            ["cpu0", "cpu2", "cpu10", "cpufreq", "nvme1n2", "nvme1n10"]
        );
    }

    #[test]
    fn files_are_read_within_a_bound_or_are_absent() {
        let dir = TempDir::new();
        fs::write(dir.join("value"), " 0x1f\n").expect("written");
        fs::write(dir.join("large"), vec![b'x'; 1 << 20]).expect("written");
        symlink("../../bus/pci/drivers/mlx5_core", dir.join("driver")).expect("linked");
        let machine = MachineFiles::at(dir.path());
        assert_eq!(machine.number("/value"), Some(31));
        assert_eq!(machine.text("absent"), None);
        assert_eq!(
            machine.text("large").map(|text| text.len()),
            Some(256 << 10)
        );
        assert_eq!(machine.link_name("driver").as_deref(), Some("mlx5_core"));
        assert_eq!(machine.unreadable(), []);
    }
}
