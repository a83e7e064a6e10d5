//! Exports stores without an agent: those of `pegel job --out`, or that of an agent which does not
//! run. Each is read from a temporary copy, because opening a store changes it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use pegel_archive::StoreExport;
use pegel_metric::Selector;

use super::NodeExport;
use crate::command_error::CommandError;
use crate::job::collect::{DEPTH_MAX, copy_dir};
use crate::job::view::find_samples;

/// A directory that is removed when it is dropped.
struct TemporaryCopy(PathBuf);

impl Drop for TemporaryCopy {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Exports every store in a directory.
pub(super) fn export(
    dir: &Path,
    selector: Selector,
    export: &mut NodeExport,
) -> anyhow::Result<()> {
    let found = find_samples(dir)?;
    if !found.databases.is_empty() {
        return Err(CommandError::usage(format!(
            "{}: database files of Dragon's telemetry cannot be exported; view them with `pegel \
             view`, and export its agent",
            dir.display()
        )));
    }
    for node in &found.nodes {
        let store = found.dir.join(node);
        // Until the copy is complete, no agent can start there.
        let _unused = lock_unused(&store)?;
        let copy = TemporaryCopy(temporary_dir(node));
        copy_dir(&store, &copy.0, DEPTH_MAX)
            .with_context(|| format!("cannot copy {}", store.display()))?;
        let format = export.run.format;
        let mut source = StoreExport::open(&copy.0, node, selector.clone(), format)
            .with_context(|| format!("cannot open {}", store.display()))?;
        let range = source.range();
        export.export(node, range, &mut source)?;
    }
    Ok(())
}

/// Locks a store against agents; `None` if it has no lock. Fails if an agent uses the store: a copy
/// of it would be incomplete.
fn lock_unused(store: &Path) -> anyhow::Result<Option<fs::File>> {
    let Ok(file) = fs::File::open(store.join("lock")) else {
        return Ok(None);
    };
    match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockShared) {
        Err(rustix::io::Errno::WOULDBLOCK) => Err(CommandError::usage(format!(
            "{}: in use by an agent; export from the agent, without --store",
            store.display()
        ))),
        _ => Ok(Some(file)),
    }
}

fn temporary_dir(node: &str) -> PathBuf {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let node: String = node.chars().map(plain).collect();
    std::env::temp_dir().join(format!("pegel-export-{}-{node}", std::process::id()))
}
