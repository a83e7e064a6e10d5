//! Access to the files of a machine. All parts of the snapshot read through [`MachineFiles`]: a fixture tree can stand
//! in for a machine, every read is bounded, and files without read permission are recorded.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use pegel_plain_file::read_plain;
use serde::Serialize;

/// Maximum bytes read of a file, unless the caller passes another limit.
const BYTES_MAX: u64 = 256 << 10;
/// Maximum entries read of a directory.
const NAMES_MAX: usize = 16_384;

/// A file or directory that exists but could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnreadablePath {
    /// Absolute path on the machine itself, without the root.
    pub path: PathBuf,
    pub why: String,
    /// How to make it readable.
    pub hint: &'static str,
}

/// The files of this machine, or of a fixture tree.
#[derive(Debug)]
pub struct MachineFiles {
    root: PathBuf,
    unreadable: RefCell<BTreeMap<PathBuf, String>>,
}

impl MachineFiles {
    /// The machine whose file systems are mounted below `root`; `/` is the local machine.
    pub fn at(root: impl Into<PathBuf>) -> MachineFiles {
        MachineFiles {
            root: root.into(),
            unreadable: RefCell::default(),
        }
    }

    /// Whether this is the local machine, so that its clocks and mounted file systems may be used as well.
    pub fn is_local(&self) -> bool {
        self.root == Path::new("/")
    }

    /// Returns the path below the root.
    pub(crate) fn resolve(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Returns the trimmed text of a small file; `None` if it is empty or cannot be read.
    pub(crate) fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        let bytes = self.bytes(path, BYTES_MAX)?;
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
        (!text.is_empty()).then(|| text.to_owned())
    }

    /// Returns the whole number in a file, decimal or hexadecimal with a `0x` prefix.
    pub(crate) fn number(&self, path: impl AsRef<Path>) -> Option<u64> {
        parse_number(&self.text(path)?)
    }

    /// Returns the first bytes of a file, `bytes_max` at most.
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

    /// Returns the entries of a directory in natural order: `cpu2` before `cpu10`.
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

    /// Returns the last component of a symlink's target. A device's `driver` is such a link.
    pub(crate) fn link_name(&self, path: impl AsRef<Path>) -> Option<String> {
        let target = fs::read_link(self.resolve(path)).ok()?;
        Some(target.file_name()?.to_str()?.to_owned())
    }

    /// Returns the paths for which read permission was missing so far.
    pub(crate) fn unreadable(&self) -> Vec<UnreadablePath> {
        let recorded = self.unreadable.borrow();
        let recorded = recorded.iter().map(|(path, why)| UnreadablePath {
            path: path.clone(),
            why: why.clone(),
            hint: "run as root, or grant the agent's user read permission",
        });
        recorded.collect()
    }

    /// Records missing permission only. Absent files and drivers that reject the read are not errors.
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

/// Returns a sort key that compares runs of digits as numbers.
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
        // Compare the letters first, then the number after them.
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
    fn names_are_in_natural_order() {
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
    fn reads_are_bounded_and_absent_files_give_none() {
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
