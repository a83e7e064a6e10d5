//! Removes other users' access to files in the store's directory. New files are created with
//! private modes, whatever the umask; files of earlier versions may not be.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use pegel_ingest::push_groups::PUSH_GROUPS_DIR;

/// Files that the agent creates in its directory. Other files are left alone.
const FILES: [&str; 12] = [
    "annotations.jsonl",
    "archive.json",
    "complete-since",
    "endpoint.json",
    "filters",
    "format",
    "hidden",
    "jobs.log",
    "lanes.journal",
    "lock",
    "tree-backfill.json",
    "tree-instance",
];
/// Directories whose whole content belongs to the agent.
const DIRS: [&str; 8] = [
    "aside",
    "blocks",
    "graphite",
    "log",
    "outgoing",
    PUSH_GROUPS_DIR,
    "remote_write",
    "snapshots",
];

/// Removes the access of group and others to the agent's files below `dir`. A failure is only
/// logged: the agent also runs on a disk that is currently read-only.
pub(crate) fn restrict_to_owner(dir: &Path) {
    let files = FILES.iter().map(|name| restrict(&dir.join(name), 0o600));
    let dirs = DIRS.iter().map(|name| restrict_all(&dir.join(name)));
    for error in files.chain(dirs).filter_map(Result::err) {
        tracing::warn!(dir = %dir.display(), %error, "cannot make the store's files private");
    }
}

fn restrict_all(dir: &Path) -> io::Result<()> {
    // The directory first: its content is out of reach from then on.
    restrict(dir, 0o700)?;
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    entries
        .into_iter()
        .try_for_each(|entry| restrict(&entry?.path(), 0o600))
}

/// Sets the mode of a regular file or directory of ours that others can access.
fn restrict(path: &Path, mode: u32) -> io::Result<()> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    let is_expected = match mode {
        0o700 => found.is_dir(),
        _ => found.is_file(),
    };
    let is_ours = found.uid() == rustix::process::geteuid().as_raw();
    if is_expected && is_ours && found.mode() & 0o077 != 0 {
        fs::set_permissions(path, Permissions::from_mode(mode))?;
    }
    Ok(())
}
