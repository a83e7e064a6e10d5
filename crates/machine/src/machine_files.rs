//! Access to the files of a machine. Snapshot and doctor read through [`MachineFiles`]: a fixture
//! tree can stand in for a machine, every read is bounded, and files without read permission are
//! recorded.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use pegel_plain_file::read_plain;

use crate::{MountInfo, natural_order, parse_mountinfo, parse_u64_or_hex};

/// Maximum bytes read of a file, unless the caller passes another limit.
const BYTES_MAX: u64 = 256 << 10;
/// Maximum bytes read of the table of mounts: hosts of many containers have thousands.
const MOUNTINFO_BYTES_MAX: u64 = 16 << 20;
/// Maximum entries read of a directory.
pub const DIRECTORY_NAMES_MAX: usize = 16_384;

/// The files of this machine, or of a fixture tree.
#[derive(Debug)]
pub struct MachineFiles {
    root: PathBuf,
    unreadable: RefCell<BTreeSet<PathBuf>>,
}

impl MachineFiles {
    /// The machine whose file systems are mounted below `root`; `/` is the local machine.
    pub fn at(root: impl Into<PathBuf>) -> MachineFiles {
        MachineFiles {
            root: root.into(),
            unreadable: RefCell::default(),
        }
    }

    /// Whether this is the local machine, so that its clocks and mounted file systems may be used
    /// as well.
    pub fn is_local(&self) -> bool {
        self.root == Path::new("/")
    }

    /// Returns the path below the root.
    pub fn resolve(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Returns the first bytes of a file, `bytes_max` at most.
    pub fn read_bytes(&self, path: impl AsRef<Path>, bytes_max: u64) -> io::Result<Vec<u8>> {
        let path = path.as_ref();
        let read = read_plain(&self.resolve(path), bytes_max);
        read.inspect_err(|error| self.record_unreadable(path, error))
    }

    /// Returns the first bytes of a file, `bytes_max` at most; `None` if it cannot be read.
    pub fn bytes(&self, path: impl AsRef<Path>, bytes_max: u64) -> Option<Vec<u8>> {
        self.read_bytes(path, bytes_max).ok()
    }

    /// Reads a small file and trims surrounding white space.
    pub fn read_text(&self, path: impl AsRef<Path>) -> io::Result<String> {
        let bytes = self.read_bytes(path, BYTES_MAX)?;
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
        Ok(text.to_owned())
    }

    /// Returns a directory, which need not exist.
    pub fn dir(&self, path: impl Into<PathBuf>) -> MachineDir<'_> {
        MachineDir {
            files: self,
            path: path.into(),
        }
    }

    /// Returns the trimmed text of a small file; `None` if it is empty or cannot be read.
    pub fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        let text = self.read_text(path).ok()?;
        (!text.is_empty()).then_some(text)
    }

    /// Returns the whole number in a file, decimal or hexadecimal with a `0x` prefix.
    pub fn number(&self, path: impl AsRef<Path>) -> Option<u64> {
        parse_u64_or_hex(self.text(path)?.as_bytes())
    }

    pub fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.resolve(path).exists()
    }

    /// Returns the entries of a directory in natural order: `cpu2` before `cpu10`.
    pub fn names(&self, directory: impl AsRef<Path>) -> Vec<String> {
        self.read_names(directory).unwrap_or_default()
    }

    /// Like [`names`](MachineFiles::names), with the reason if the directory cannot be listed.
    pub fn read_names(&self, directory: impl AsRef<Path>) -> io::Result<Vec<String>> {
        let directory = directory.as_ref();
        let entries = fs::read_dir(self.resolve(directory));
        let entries = entries.inspect_err(|error| self.record_unreadable(directory, error))?;
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names.take(DIRECTORY_NAMES_MAX).collect();
        names.sort_by(|a, b| natural_order(a, b));
        Ok(names)
    }

    /// Returns the subdirectories of a directory in natural order, without symlinks.
    pub fn directory_names(&self, directory: impl AsRef<Path>) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.resolve(directory)) else {
            return Vec::new();
        };
        let names = entries.take(DIRECTORY_NAMES_MAX).filter_map(|entry| {
            let entry = entry.ok()?;
            let is_dir = entry.file_type().ok()?.is_dir();
            is_dir.then(|| entry.file_name().into_string().ok())?
        });
        let mut names: Vec<String> = names.collect();
        names.sort_by(|a, b| natural_order(a, b));
        names
    }

    /// Returns the mounts that this process sees.
    pub fn mounts(&self) -> Vec<MountInfo> {
        let text = self.bytes("proc/self/mountinfo", MOUNTINFO_BYTES_MAX);
        parse_mountinfo(&text.unwrap_or_default())
    }

    /// Returns the last component of a symlink's target. A device's `driver` is such a link.
    pub fn link_name(&self, path: impl AsRef<Path>) -> Option<String> {
        let target = fs::read_link(self.resolve(path)).ok()?;
        Some(target.file_name()?.to_str()?.to_owned())
    }

    /// Returns the paths for which read permission was missing so far: absolute paths on the
    /// machine itself.
    pub fn unreadable(&self) -> Vec<PathBuf> {
        self.unreadable.borrow().iter().cloned().collect()
    }

    /// Records missing permission only. Absent files and drivers that reject the read are not
    /// errors.
    fn record_unreadable(&self, path: &Path, error: &io::Error) {
        if error.kind() == io::ErrorKind::PermissionDenied {
            let path = Path::new("/").join(path);
            self.unreadable.borrow_mut().insert(path);
        }
    }
}

/// A directory of a machine, most often a device in `/sys`.
#[derive(Debug)]
pub struct MachineDir<'a> {
    files: &'a MachineFiles,
    path: PathBuf,
}

impl MachineDir<'_> {
    /// Returns the trimmed text of an attribute; `None` if it is empty or cannot be read.
    pub fn text(&self, file: &str) -> Option<String> {
        self.files.text(self.path.join(file))
    }

    /// Returns the whole number in an attribute, decimal or hexadecimal with a `0x` prefix.
    pub fn number(&self, file: &str) -> Option<u64> {
        self.files.number(self.path.join(file))
    }

    /// Returns the entries of a subdirectory in natural order.
    pub fn names(&self, directory: &str) -> Vec<String> {
        self.files.names(self.path.join(directory))
    }

    /// Returns the last component of a symlink's target.
    pub fn link_name(&self, link: &str) -> Option<String> {
        self.files.link_name(self.path.join(link))
    }

    /// Returns the NUMA node of a device; the kernel reports -1 if there is only one.
    pub fn numa_node(&self, file: &str) -> Option<i64> {
        self.text(file)?.parse().ok()
    }

    /// Returns the PCI address that the link `device` names; `None` for devices that are not on
    /// the bus.
    pub fn pci_address(&self) -> Option<String> {
        self.link_name("device")
            .filter(|address| address.contains(':'))
    }
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
        assert_eq!(machine.unreadable(), Vec::<PathBuf>::new());
    }
}
