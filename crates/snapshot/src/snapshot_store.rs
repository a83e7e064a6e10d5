//! Snapshots on disk: one file each in `<dir>/snapshots`, named by its time. A file is written only
//! when the snapshot changed; the newest [`SNAPSHOTS_MAX`] are kept. Used by the snapshot worker
//! alone.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use pegel_plain_file::read_plain;
use serde_json::Value;

use crate::snapshot::Snapshot;
use crate::timestamp::Timestamp;

/// Number of snapshots kept on disk.
pub const SNAPSHOTS_MAX: usize = 16;
/// Maximum size of a stored snapshot that is read back.
const FILE_BYTES_MAX: u64 = 8 << 20;

#[derive(Debug, thiserror::Error)]
pub enum SnapshotStoreError {
    #[error("cannot write a snapshot to {path}")]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// The directory with the stored snapshots.
#[derive(Debug)]
pub(crate) struct SnapshotStore {
    folder: PathBuf,
    /// Fingerprint of the last stored snapshot, see [`fingerprint`].
    last_fingerprint: Option<u64>,
}

impl SnapshotStore {
    /// Opens the store and reads the fingerprint of the last snapshot, which an earlier agent may
    /// have stored.
    pub(crate) fn open(dir: &Path) -> SnapshotStore {
        let folder = dir.join("snapshots");
        let last = stored_names(&folder)
            .pop()
            .and_then(|name| stored_fingerprint(&folder.join(name)));
        SnapshotStore {
            folder,
            last_fingerprint: last,
        }
    }

    /// Stores the snapshot if it differs from the last one. Returns whether it was stored.
    pub(crate) fn store_if_changed(
        &mut self,
        snapshot: &Snapshot,
    ) -> Result<bool, SnapshotStoreError> {
        let value = serde_json::to_value(snapshot).unwrap_or_default();
        let current = fingerprint(value);
        if self.last_fingerprint == Some(current) {
            return Ok(false);
        }
        self.write(snapshot.taken, &snapshot.json())?;
        self.last_fingerprint = Some(current);
        self.drop_oldest();
        Ok(true)
    }

    /// Writes the file atomically and durably: temporary file, sync, rename, sync of the directory.
    fn write(&self, taken: Timestamp, text: &str) -> Result<(), SnapshotStoreError> {
        let path = self
            .folder
            .join(format!("{}.json", taken.compact_rfc3339()));
        let failed = |source| SnapshotStoreError::Write {
            path: path.clone(),
            source,
        };
        let made = DirBuilder::new().mode(0o700).create(&self.folder);
        match made {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(failed(error));
            }
            _ => {}
        }
        let temporary = self.folder.join("new.tmp");
        let written = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)
            .and_then(|mut file| {
                file.write_all(text.as_bytes())?;
                file.sync_data()
            });
        written
            .and_then(|()| fs::rename(&temporary, &path))
            .and_then(|()| File::open(&self.folder)?.sync_data())
            .map_err(failed)
    }

    fn drop_oldest(&self) {
        let names = stored_names(&self.folder);
        let surplus = names.len().saturating_sub(SNAPSHOTS_MAX);
        for name in &names[..surplus] {
            // Best effort: the next store retries.
            let _ = fs::remove_file(self.folder.join(name));
        }
    }
}

/// Returns the names of the stored snapshots, oldest first: names sort by time.
fn stored_names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| is_snapshot_name(name)).collect();
    names.sort_unstable();
    names
}

/// Whether a file is a snapshot, such as `20260304T050607.089Z.json`. Other files are never
/// touched.
fn is_snapshot_name(name: &str) -> bool {
    let shape: String = name
        .chars()
        .map(|c| if c.is_ascii_digit() { '0' } else { c })
        .collect();
    shape == "00000000T000000.000Z.json"
}

fn stored_fingerprint(path: &Path) -> Option<u64> {
    let bytes = read_plain(path, FILE_BYTES_MAX).ok()?;
    serde_json::from_slice(&bytes).ok().map(fingerprint)
}

/// Hashes a snapshot without its volatile values: the time, the boot time (it shifts when the clock
/// is set), and whether the cloud answered just now.
fn fingerprint(mut snapshot: Value) -> u64 {
    let volatile = [
        ("/taken", ""),
        ("/kernel", "boot_time"),
        ("/cloud", "trouble"),
        ("/cloud", "are_events_watched"),
        ("/azure_batch", "lines"),
        ("/azure_batch", "unknown_lines"),
    ];
    for (path, key) in volatile {
        match snapshot.pointer_mut(path) {
            Some(Value::Object(part)) => drop(part.remove(key)),
            Some(value) if key.is_empty() => *value = Value::Null,
            _ => {}
        }
    }
    let mut hasher = DefaultHasher::new();
    snapshot.to_string().hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use pegel_testkit::TempDir;

    use super::*;
    use crate::snapshot::tests::options;

    fn stored(dir: &TempDir) -> Vec<String> {
        stored_names(&dir.join("snapshots"))
    }

    #[test]
    fn only_changed_snapshots_are_stored_also_after_a_restart() {
        let (dir, machine) = (TempDir::new(), TempDir::new());
        let mut options = options(machine.path());
        let mut store = SnapshotStore::open(dir.path());
        assert!(
            store
                .store_if_changed(&options.read_machine(Timestamp(1_000), None))
                .expect("stored")
        );
        let mut later = options.read_machine(Timestamp(2_000), None);
        later.kernel.boot_time = Some(Timestamp(17));
        assert!(!store.store_if_changed(&later).expect("unchanged"));
        let mut store = SnapshotStore::open(dir.path());
        assert!(!store.store_if_changed(&later).expect("unchanged"));
        options.node = "other".to_owned();
        assert!(
            store
                .store_if_changed(&options.read_machine(Timestamp(3_000), None))
                .expect("stored")
        );
        assert_eq!(
            stored(&dir),
            ["19700101T000001.000Z.json", "19700101T000003.000Z.json"]
        );
        let mode = |path: &str| {
            fs::metadata(dir.join(path))
                .expect("exists")
                .permissions()
                .mode()
                & 0o777
        };
        assert_eq!(mode("snapshots"), 0o700);
        assert_eq!(mode("snapshots/19700101T000003.000Z.json"), 0o600);
    }

    #[test]
    fn the_oldest_snapshots_are_removed_and_other_files_stay() {
        let (dir, machine) = (TempDir::new(), TempDir::new());
        let mut options = options(machine.path());
        let mut store = SnapshotStore::open(dir.path());
        for second in 0..20 {
            options.node = second.to_string();
            store
                .store_if_changed(&options.read_machine(Timestamp(second * 1000), None))
                .expect("stored");
            fs::write(dir.join("snapshots/notes.json"), "mine").expect("written");
        }
        let stored = stored(&dir);
        assert_eq!(stored.len(), SNAPSHOTS_MAX);
        assert_eq!(stored[0], "19700101T000004.000Z.json");
        assert!(dir.join("snapshots/notes.json").exists());
    }

    #[test]
    fn a_write_error_names_the_path() {
        let (dir, machine) = (TempDir::new(), TempDir::new());
        fs::write(dir.join("snapshots"), "a file").expect("written");
        let mut store = SnapshotStore::open(dir.path());
        let error =
            store.store_if_changed(&options(machine.path()).read_machine(Timestamp(0), None));
        let error = error.expect_err("not a directory").to_string();
        assert!(
            error.contains("snapshots/19700101T000000.000Z.json"),
            "{error}"
        );
    }
}
