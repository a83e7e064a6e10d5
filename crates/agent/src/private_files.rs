//! Takes from other users the rights to files in the store's directory. New files are made with modes of their own,
//! whatever the umask; those of earlier versions were not.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// Files that the agent makes in its directory. Others that lie there are left alone.
const FILES: [&str; 6] = [
    "annotations.jsonl",
    "endpoint.json",
    "format",
    "hidden",
    "lanes.journal",
    "lock",
];
/// Directories of which everything is the agent's.
const DIRS: [&str; 4] = ["aside", "blocks", "log", "snapshots"];

/// Closes what the agent owns below `dir` to group and others. A failure is logged: on a disk that is read-only
/// just now the agent runs all the same.
pub fn restrict_to_owner(dir: &Path) {
    let files = FILES.iter().map(|name| restrict(&dir.join(name), 0o600));
    let dirs = DIRS.iter().map(|name| restrict_all(&dir.join(name)));
    for error in files.chain(dirs).filter_map(Result::err) {
        tracing::warn!(dir = %dir.display(), %error, "cannot take the rights of other users to the store's files");
    }
}

fn restrict_all(dir: &Path) -> io::Result<()> {
    // The directory first: its contents are out of reach from then on.
    restrict(dir, 0o700)?;
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    entries
        .into_iter()
        .try_for_each(|entry| restrict(&entry?.path(), 0o600))
}

/// Sets the mode of a plain file or directory of ours that others have rights to.
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
