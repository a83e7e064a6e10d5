//! Keeps segments whose samples are in blocks for readers of the log that have not released them.
//!
//! They are moved from `log/` to `outgoing/`, so that a replay does not read them again, even if
//! retention dropped the block that records them as stored. A segment has one number in both
//! directories, and numbers are never reused while a segment or a block has a higher one.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use crate::StoreOpenError;
use crate::context::StoreContext;
use crate::open::list_names;

use super::{segment_number, segment_path};

/// Prepares the directory when a store is opened. Returns the highest number in it. Without readers
/// of the log, segments that an earlier agent kept are removed.
pub(crate) fn open(shared: &StoreContext) -> Result<Option<u64>, StoreOpenError> {
    let dir = shared.outgoing_dir();
    let names = list_names(shared, &dir)?;
    let numbers = names.iter().filter_map(|name| segment_number(name));
    if shared.options.keep_log {
        return Ok(numbers.max());
    }
    numbers.for_each(|number| remove(shared, &segment_path(&dir, number)));
    Ok(None)
}

/// Moves a segment whose samples are in blocks to the kept ones, or removes it if no reader needs
/// it.
pub(crate) fn keep_or_remove(shared: &StoreContext, number: u64) {
    let path = segment_path(&shared.log_dir(), number);
    if number < shared.log_released.load(Ordering::Relaxed) {
        return remove(shared, &path);
    }
    let (files, dir) = (&shared.options.files, shared.outgoing_dir());
    let moved = files
        .make_dir(&dir)
        .and_then(|()| files.rename(&path, &segment_path(&dir, number)));
    if let Err(error) = moved {
        tracing::warn!(path = %path.display(), %error, "cannot keep a log segment for its readers");
    }
}

/// Removes the kept segments that all readers have released.
pub(crate) fn remove_released(shared: &StoreContext) {
    let released = shared.log_released.load(Ordering::Relaxed);
    if !shared.options.keep_log || released == 0 {
        return;
    }
    let dir = shared.outgoing_dir();
    let names = shared.options.files.list(&dir).unwrap_or_default();
    let numbers = names.iter().filter_map(|name| segment_number(name));
    for number in numbers.filter(|number| *number < released) {
        remove(shared, &segment_path(&dir, number));
    }
}

/// Returns the numbers of all segments that can be read, sorted.
pub(super) fn numbers(shared: &StoreContext) -> Vec<u64> {
    let files = &shared.options.files;
    let dirs = [shared.outgoing_dir(), shared.log_dir()];
    let names = dirs.iter().filter_map(|dir| files.list(dir).ok()).flatten();
    let mut numbers: Vec<u64> = names.filter_map(|name| segment_number(&name)).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// Returns the numbers and sizes of all segments that can be read, sorted by number.
pub(crate) fn sizes(shared: &StoreContext) -> Vec<(u64, u64)> {
    let size = |number: u64| {
        let files = &shared.options.files;
        let files = { paths(shared, number).into_iter() }.filter_map(|path| files.open(&path).ok());
        let mut sizes = files.filter_map(|file| file.size().ok());
        Some((number, sizes.next()?))
    };
    numbers(shared).into_iter().filter_map(size).collect()
}

/// Returns the number of the oldest segment in `log/`.
pub(crate) fn oldest_unstored(shared: &StoreContext) -> u64 {
    let names = shared.options.files.list(&shared.log_dir());
    let names = names.unwrap_or_default();
    let oldest = names.iter().filter_map(|name| segment_number(name)).min();
    oldest.unwrap_or_else(|| shared.log_end.lock().segment)
}

/// Returns the paths at which a segment may be; it moves from the first to the second.
pub(super) fn paths(shared: &StoreContext, number: u64) -> [PathBuf; 2] {
    [shared.log_dir(), shared.outgoing_dir()].map(|dir| segment_path(&dir, number))
}

fn remove(shared: &StoreContext, path: &std::path::Path) {
    if let Err(error) = shared.options.files.remove(path) {
        tracing::warn!(path = %path.display(), %error, "cannot remove a log segment");
    }
}
