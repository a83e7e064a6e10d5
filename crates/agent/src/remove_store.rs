//! Removes the store if the configuration sets `delete_tmdb: 1`.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::Path;

use pegel_ingest::push_groups::PUSH_GROUPS_DIR;

use crate::graphite::SPOOL_DIR;
use crate::remote_write::POSITIONS_DIR;

/// Removes the store's own files by name: the directory may contain other files, and files that
/// were set aside are never deleted.
pub(crate) fn remove_store(dir: &Path) -> io::Result<()> {
    for (name, endings) in [
        ("log", ["log", "tmp"]),
        ("outgoing", ["log", "tmp"]),
        ("blocks", ["blk", "tmp"]),
        ("snapshots", ["json", "tmp"]),
        (PUSH_GROUPS_DIR, ["json", "tmp"]),
    ] {
        let part = dir.join(name);
        let entries = match fs::read_dir(&part) {
            Ok(entries) => entries,
            // A store that never wrote a block has no directory for them.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for entry in entries {
            let path = entry?.path();
            if endings
                .iter()
                .any(|ending| path.extension() == Some(OsStr::new(ending)))
            {
                fs::remove_file(path)?;
            }
        }
        ignore_not_empty(fs::remove_dir(part))?;
    }
    // Values that wait for Graphite servers, and positions of remote write: all content is the
    // agent's.
    for name in [SPOOL_DIR, POSITIONS_DIR] {
        match fs::remove_dir_all(dir.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    let jobs = pegel_jobs::JOB_FILES.into_iter();
    for name in jobs.chain([
        "annotations.jsonl",
        "annotations.jsonl.new",
        "complete-since",
        "complete-since.tmp",
        "archive.json",
        "archive.json.tmp",
        "filters",
        "filters.tmp",
        "format",
        "hidden",
        "hidden.tmp",
        "lanes.journal",
        "lanes.new",
        "lock",
        "tree-instance",
    ]) {
        match fs::remove_file(dir.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    ignore_not_empty(fs::remove_dir(dir))
}

fn ignore_not_empty(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod tests {
    use pegel_metric::{Input, Tick};
    use pegel_store::{Store, StoreOptions};

    use super::*;

    #[test]
    fn only_the_store_itself_goes() {
        let parent = std::env::temp_dir().join(format!("pegel-remove-{}", std::process::id()));
        let dir = parent.join("store");
        for precious in [false, true] {
            fs::create_dir_all(&dir).expect("made");
            let opened = Store::open(StoreOptions::new(&dir)).expect("opened");
            opened.tick(&mut Tick::new(Input::Collect));
            opened.close();
            drop(opened);
            if precious {
                fs::write(dir.join("precious"), "x").expect("written");
            }
            remove_store(&dir).expect("removed");
            assert_eq!(dir.exists(), precious);
            if precious {
                let left: Vec<_> = fs::read_dir(&dir).expect("listed").collect();
                assert_eq!(left.len(), 1, "{left:?}");
            }
        }
        fs::remove_dir_all(&parent).expect("removed");
    }
}
