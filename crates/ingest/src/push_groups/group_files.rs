//! The files of pushed groups: one for each, so that a push writes only what its sender pays for.
//!
//! `pushgateway/NUMBER.json` beside the store holds a group, its sender and its labels. A file is
//! replaced with a rename before a push is acknowledged, and removed when its group is deleted.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use pegel_plain_file::{read_plain, write_durably};
use serde::{Deserialize, Serialize};

use super::{Families, GROUPS_MAX, GroupKey, GroupLabels, GroupMap, PushGroup};

/// The directory of the files, beside the store.
pub const PUSH_GROUPS_DIR: &str = "pushgateway";
const EXTENSION: &str = "json";
/// The largest file that is read back.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// The number in the name of a file.
pub(super) type FileNumber = u64;

/// The contents of a file.
#[derive(Serialize, Deserialize)]
struct StoredGroup {
    sender: String,
    labels: GroupLabels,
    families: Families,
}

#[derive(Debug)]
pub(super) struct GroupFiles {
    dir: PathBuf,
}

impl GroupFiles {
    pub(super) fn new(store_dir: &Path) -> GroupFiles {
        GroupFiles {
            dir: store_dir.join(PUSH_GROUPS_DIR),
        }
    }

    /// Reads the groups that an earlier agent kept. A damaged file is ignored, with a message: the
    /// points are in the store.
    pub(super) fn read(&self) -> GroupMap {
        let entries = match fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return GroupMap::new(),
            Err(error) => {
                let dir = self.dir.display();
                tracing::warn!(%error, %dir, "cannot read pushed groups; starting without");
                return GroupMap::new();
            }
            Ok(entries) => entries,
        };
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let mut groups = GroupMap::new();
        for (number, path) in paths.filter_map(|path| Some((number_of(&path)?, path))) {
            if groups.len() == GROUPS_MAX {
                tracing::warn!("more than {GROUPS_MAX} pushed groups; the others are ignored");
                break;
            }
            match read_group(&path) {
                Ok((key, families)) => {
                    let group = PushGroup::new(number, &key, families);
                    groups.insert(key, group);
                }
                Err(error) => {
                    let path = path.display();
                    tracing::warn!(%error, %path, "cannot read a pushed group; ignoring it");
                }
            }
        }
        groups
    }

    /// Writes the file of a group. Returns when it is on disk.
    pub(super) fn write(&self, number: FileNumber, text: &[u8]) -> io::Result<()> {
        let made = DirBuilder::new().mode(0o700).create(&self.dir);
        if let Err(error) = made
            && error.kind() != io::ErrorKind::AlreadyExists
        {
            return Err(error);
        }
        write_durably(&self.dir, &name_of(number), text)
    }

    pub(super) fn remove(&self, number: FileNumber) -> io::Result<()> {
        match fs::remove_file(self.dir.join(name_of(number))) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        File::open(&self.dir)?.sync_all()
    }
}

/// Returns the contents of the file of a group.
pub(super) fn to_text((sender, labels): &GroupKey, families: &Families) -> io::Result<Vec<u8>> {
    let stored = StoredGroup {
        sender: sender.clone(),
        labels: labels.clone(),
        families: families.clone(),
    };
    serde_json::to_vec(&stored).map_err(io::Error::other)
}

fn read_group(path: &Path) -> io::Result<(GroupKey, Families)> {
    let bytes = read_plain(path, FILE_BYTES_MAX)?;
    let stored: StoredGroup = serde_json::from_slice(&bytes).map_err(io::Error::other)?;
    Ok(((stored.sender, stored.labels), stored.families))
}

fn name_of(number: FileNumber) -> String {
    format!("{number}.{EXTENSION}")
}

/// Returns the number of a file's name; `None` for temporary files, which a crash leaves.
fn number_of(path: &Path) -> Option<FileNumber> {
    let extension = path.extension()?;
    let number = path.file_stem()?.to_str()?.parse().ok()?;
    (extension == EXTENSION).then_some(number)
}
