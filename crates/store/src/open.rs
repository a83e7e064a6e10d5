//! Opens a store: locks the directory, checks the format version, finds the blocks and replays the
//! log into a head. Called once by `Store::open`. Files of another version make opening fail before
//! anything is changed; unreadable files are set aside, never deleted.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pegel_metric::{GroupRow, Ledger, Millis, Point, Series};

use crate::block::{Block, BlockReadError, block_id, block_version, open_block};
use crate::context::StoreContext;
use crate::files::{DIR_MODE, FILE_MODE, read_exact_at};
use crate::head::Head;
use crate::lock::{LockError, StoreLock};
use crate::log::{self, LogVisitor, kept_segments, replay, segment_number, segment_path};
use crate::restore::restore_current;
use crate::{FORMAT_VERSION, StoreOpenError};

const FORMAT_FILE: &str = "format";

/// Creates the directory, locks it, and checks that its format is supported.
pub(crate) fn lock_directory(dir: &Path) -> Result<StoreLock, StoreOpenError> {
    let io_error = |path: &Path| {
        let path = path.to_owned();
        move |source: io::Error| StoreOpenError::Io { path, source }
    };
    fs::DirBuilder::new()
        .recursive(true)
        .mode(DIR_MODE)
        .create(dir)
        .map_err(io_error(dir))?;
    let lock_path = dir.join("lock");
    let lock = StoreLock::acquire(&lock_path).map_err(|error| match error {
        LockError::AlreadyLocked(pid) => StoreOpenError::Locked {
            dir: dir.to_owned(),
            pid,
        },
        LockError::Io(error) => io_error(&lock_path)(error),
    })?;
    check_format(dir)?;
    for name in ["log", "blocks"] {
        // Best effort: on a full or read-only disk these are created when something is written.
        let _ = fs::DirBuilder::new().mode(DIR_MODE).create(dir.join(name));
    }
    Ok(lock)
}

/// Checks the format file, which holds the version as plain text for people to read.
pub(crate) fn check_format(dir: &Path) -> Result<(), StoreOpenError> {
    let path = dir.join(FORMAT_FILE);
    match fs::read_to_string(&path) {
        Ok(text) => match text
            .trim()
            .strip_prefix("pegel store ")
            .and_then(|number| number.parse().ok())
        {
            Some(FORMAT_VERSION) => Ok(()),
            Some(found) => Err(StoreOpenError::Version {
                path,
                found,
                supported: FORMAT_VERSION,
            }),
            // Every file also carries its version, so a damaged format file is just rewritten.
            None => write_format(&path),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => write_format(&path),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => write_format(&path),
        Err(source) => Err(StoreOpenError::Io { path, source }),
    }
}

fn write_format(path: &Path) -> Result<(), StoreOpenError> {
    // Best effort: on a full disk the store continues without the format file.
    let written = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(FILE_MODE)
        .open(path)
        .and_then(|mut file| writeln!(file, "pegel store {FORMAT_VERSION}"));
    if let Err(error) = written {
        tracing::warn!(path = %path.display(), %error, "cannot write the store's format file");
    }
    Ok(())
}

pub(crate) fn list_names(shared: &StoreContext, dir: &Path) -> Result<Vec<String>, StoreOpenError> {
    let names = shared.options.files.list(dir);
    names.map_err(|source| StoreOpenError::Io {
        path: dir.to_owned(),
        source,
    })
}

/// Fails if a file has another version, before anything is changed.
pub(crate) fn check_versions(shared: &StoreContext) -> Result<(), StoreOpenError> {
    let files = &shared.options.files;
    let supported = FORMAT_VERSION;
    for dir in [shared.log_dir(), shared.block_dir()] {
        for name in list_names(shared, &dir)? {
            let path = dir.join(&name);
            // Unreadable files are set aside later.
            let Ok(file) = files.open(&path) else {
                continue;
            };
            let found = if block_id(&name).is_some() {
                block_version(&*file).ok()
            } else if segment_number(&name).is_some() {
                let header = read_exact_at(&*file, 0, log::HEADER_LEN);
                header
                    .ok()
                    .and_then(|header| log::unsupported_version(&header))
            } else {
                None
            };
            if let Some(found) = found.filter(|found| *found != supported) {
                return Err(StoreOpenError::Version {
                    path,
                    found,
                    supported,
                });
            }
        }
    }
    Ok(())
}

/// Finds the blocks. Removes the leftovers of a crash: incomplete files, and blocks that others
/// replace.
pub(crate) fn find_blocks(shared: &StoreContext) -> Result<Vec<Arc<Block>>, StoreOpenError> {
    let dir = shared.block_dir();
    let files = &shared.options.files;
    let mut blocks = Vec::new();
    for name in list_names(shared, &dir)? {
        let path = dir.join(&name);
        if name.ends_with(".tmp") {
            let _ = files.remove(&path);
            continue;
        }
        let Some(id) = block_id(&name) else {
            continue;
        };
        match open_block(files, &path, id) {
            Ok(block) => blocks.push(Arc::new(block)),
            Err(BlockReadError::Version(found)) => {
                return Err(StoreOpenError::Version {
                    path,
                    found,
                    supported: FORMAT_VERSION,
                });
            }
            Err(error) => shared.set_aside(&path, &error.to_string()),
        }
    }
    let replaced: HashSet<u64> = blocks
        .iter()
        .flat_map(|block| block.replaces.iter().copied())
        .collect();
    blocks.retain(|block| {
        let is_replaced = replaced.contains(&block.id);
        if is_replaced {
            block.delete_on_drop();
        }
        !is_replaced
    });
    blocks.sort_unstable_by_key(|block| block.id);
    Ok(blocks)
}

/// Replays the log into a head. Returns the head, the size of the segments, and the number of the
/// next segment.
pub(crate) fn replay_log(
    shared: &StoreContext,
    blocks: &[Arc<Block>],
) -> Result<(Head, u64, u64), StoreOpenError> {
    let dir = shared.log_dir();
    let names = list_names(shared, &dir)?;
    let mut numbers: Vec<u64> = names
        .iter()
        .filter_map(|name| segment_number(name))
        .collect();
    numbers.sort_unstable();
    let stored = blocks
        .iter()
        .map(|block| block.log_through)
        .max()
        .unwrap_or(0);
    let kept = kept_segments::open(shared)?;
    let last = numbers.last().copied().unwrap_or(0);
    let next = last.max(kept.unwrap_or(0)).max(stored) + 1;
    let mut rebuilt = RebuiltHead {
        head: Head {
            changes: 1,
            ..Head::default()
        },
        now: shared.now(),
        ledger: Ledger::default(),
    };
    let mut log_bytes = 0;
    for number in numbers {
        let path = segment_path(&dir, number);
        if number <= stored {
            kept_segments::keep_or_remove(shared, number);
            continue;
        }
        let bytes = match read_whole(shared, &path) {
            Ok(bytes) => bytes,
            Err(error) => {
                shared.set_aside(&path, &error.to_string());
                continue;
            }
        };
        log_bytes += bytes.len() as u64;
        let replayed = replay(&bytes, &mut rebuilt);
        if let Some(found) = replayed.version {
            return Err(StoreOpenError::Version {
                path,
                found,
                supported: FORMAT_VERSION,
            });
        }
        if replayed.torn > 0 {
            tracing::warn!(path = %path.display(), bytes = replayed.torn, "discarded an incomplete write at the end of the log");
            shared
                .torn_bytes
                .fetch_add(replayed.torn, Ordering::Relaxed);
        }
        if replayed.damaged > 0 {
            tracing::error!(path = %path.display(), bytes = replayed.damaged, "skipped damaged parts of the log");
            shared.damaged_segments.lock().push(number);
        }
    }
    restore_current(shared, blocks, &mut rebuilt.head);
    Ok((rebuilt.head, log_bytes, next))
}

fn read_whole(shared: &StoreContext, path: &Path) -> io::Result<Vec<u8>> {
    let file = shared.options.files.open(path)?;
    let len = usize::try_from(file.size()?).map_err(|_| io::ErrorKind::FileTooLarge)?;
    read_exact_at(&*file, 0, len)
}

struct RebuiltHead {
    head: Head,
    now: Millis,
    /// A separate ledger: out-of-order samples and the like were already counted when they arrived.
    ledger: Ledger,
}

impl LogVisitor for RebuiltHead {
    fn row(&mut self, time: Millis, _: u64, row: &GroupRow) {
        self.head.append_row(time, row, &self.ledger);
        self.head.ungrouped.merge_all_due();
    }

    fn point(&mut self, _: u64, series: &Arc<Series>, time: Millis, value: f64) {
        let point = Point {
            series: series.clone(),
            time,
            value,
        };
        self.head
            .append_points(&[point], &[None], self.now, &self.ledger);
        self.head.ungrouped.merge_all_due();
    }
}
