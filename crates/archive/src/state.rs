//! The list of archived blocks, in the file `archive.json` of the store's directory. The file is
//! replaced durably after each block. If it is lost, all blocks are written again, and files that
//! exist are recognised: their names contain a digest of their samples.

use std::io;
use std::path::Path;

use pegel_store::{ArchiveProgress, BlockIdentity};
use serde::{Deserialize, Serialize};

/// The name of the file.
pub const STATE_FILE: &str = "archive.json";
/// The largest file that is read: a store has some hundred blocks.
const BYTES_MAX: u64 = 16 << 20;

#[derive(Debug, Serialize, Deserialize)]
struct ArchiveState {
    /// The place that has the blocks. The state is ignored if the configuration names another one.
    place: String,
    archived: Vec<BlockIdentity>,
}

/// Loads the progress of the archive at `place`. No block is archived if the
/// file is missing, malformed or of another place.
pub fn load_progress(dir: &Path, place: &str) -> ArchiveProgress {
    let path = dir.join(STATE_FILE);
    let bytes = match pegel_plain_file::read_plain(&path, BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return ArchiveProgress::default();
        }
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "cannot read the state of the archive; checking every block");
            return ArchiveProgress::default();
        }
    };
    match parse(&bytes, place) {
        Ok(archived) => ArchiveProgress::new(archived),
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "malformed state of the archive; checking every block");
            ArchiveProgress::default()
        }
    }
}

/// Returns the blocks that are archived at `place`.
pub(crate) fn parse(bytes: &[u8], place: &str) -> serde_json::Result<Vec<BlockIdentity>> {
    let state: ArchiveState = serde_json::from_slice(bytes)?;
    Ok(match state.place == place {
        true => state.archived,
        false => Vec::new(),
    })
}

pub(crate) fn save_progress(
    dir: &Path,
    place: &str,
    archived: Vec<BlockIdentity>,
) -> io::Result<()> {
    let state = ArchiveState {
        place: place.to_owned(),
        archived,
    };
    let bytes = serde_json::to_vec(&state).map_err(io::Error::from)?;
    pegel_plain_file::write_durably(dir, STATE_FILE, &bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_saved_is_loaded_for_the_same_place_only() {
        let dir = std::env::temp_dir().join(format!("pegel-archive-state-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("made");
        let block = BlockIdentity { id: 7, checksum: 9 };
        save_progress(&dir, "file:///a", vec![block]).expect("saved");
        assert!(load_progress(&dir, "file:///a").contains(block));
        assert!(!load_progress(&dir, "file:///b").contains(block));
        for broken in ["", "{", "[]", "{\"place\":1}"] {
            std::fs::write(dir.join(STATE_FILE), broken).expect("written");
            assert!(
                !load_progress(&dir, "file:///a").contains(block),
                "{broken}"
            );
        }
        std::fs::remove_dir_all(&dir).expect("removed");
    }
}
