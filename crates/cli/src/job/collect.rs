//! Copies the samples of the nodes to one directory at the end of a job (`--out`). Every agent
//! copies its own store after it closed it, so that the last sample is included.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::command_error::CommandError;

/// The deepest directory of a store.
pub(crate) const DEPTH_MAX: usize = 4;

/// Creates the directory and returns its absolute path.
pub(super) fn prepare(out: &Path, option: &str) -> anyhow::Result<PathBuf> {
    let out = std::path::absolute(out)?;
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&out)
        .map_err(|error| CommandError::usage(format!("{option} {}: {error}", out.display())))?;
    Ok(out)
}

/// Refuses a directory with samples of these nodes: they would be taken for those of this job.
pub(super) fn check_empty(out: &Path, nodes: &[String]) -> anyhow::Result<()> {
    let existing = nodes
        .iter()
        .map(|node| out.join(node))
        .find(|path| path.exists());
    match existing {
        None => Ok(()),
        Some(path) => Err(CommandError::usage(format!(
            "--out: {} exists already; choose another directory",
            path.display()
        ))),
    }
}

/// Copies the store of a node to `out/NODE`, which appears when it is complete. An earlier copy of
/// another job is not overwritten.
pub(super) fn copy_store(store: &Path, out: &Path, node: &str) -> anyhow::Result<()> {
    let place = out.join(node);
    if place.exists() {
        bail!("{} exists already", place.display());
    }
    let partial = out.join(format!(".{node}.partial-{}", std::process::id()));
    let copied = copy_dir(store, &partial, DEPTH_MAX)
        .and_then(|()| fs::rename(&partial, &place))
        .with_context(|| format!("cannot copy to {}", place.display()));
    if copied.is_err() {
        let _ = fs::remove_dir_all(&partial);
    }
    copied
}

/// Copies files and directories; nothing else is in a store.
pub(crate) fn copy_dir(from: &Path, to: &Path, depth: usize) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        let target = to.join(entry.file_name());
        if kind.is_dir() && depth > 0 {
            copy_dir(&entry.path(), &target, depth - 1)?;
        } else if kind.is_file() && entry.file_name() != "lock" {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// Returns the nodes without a copy.
pub(super) fn missing(out: &Path, nodes: &[String]) -> Vec<String> {
    let is_missing = |node: &&String| !out.join(node).is_dir();
    nodes.iter().filter(is_missing).cloned().collect()
}
