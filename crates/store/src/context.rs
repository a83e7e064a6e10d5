//! State shared by the store's threads (writer, log I/O, syncer, maintenance) and its readers.
//!
//! [`StoreState`] is the data that queries see. The writer and maintenance change it under a lock
//! that they hold for microseconds; readers clone pointers and release the lock. Nothing slow (file
//! I/O, selectors, encoding) may run while the lock is held. [`BackgroundWork`] carries requests
//! and failures between the threads.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard};
use pegel_metric::{DropReason, Input, Ledger, Millis};

use crate::StoreOptions;
use crate::block::{Block, IndexCache};
use crate::complete_since::CompletenessRecord;
use crate::drop_tracker::DropTracker;
use crate::files::FileHandle;
use crate::head::Head;
use crate::hidden_ranges::HiddenRanges;
use crate::lock::LockedDir;
use crate::log::LogPosition;
use crate::read_filters::ReadFilters;
use crate::status::Degradation;
use crate::store_stats::{StateGuard, StoreStats};

/// The number of times the writer yields to waiting readers before it continues regardless.
const YIELDS_MAX: usize = 1000;

#[derive(Debug)]
pub(crate) struct StoreContext {
    pub options: StoreOptions,
    pub locked_dir: Arc<LockedDir>,
    pub ledger: Arc<Ledger>,
    pub state: RwLock<StoreState>,
    pub stats: Mutex<StoreStats>,
    /// The number of threads that are about to read the state.
    pub readers_waiting: AtomicUsize,
    pub indexes: IndexCache,
    pub background_work: Mutex<BackgroundWork>,
    pub wake_maintenance: Condvar,
    pub maintenance_passed: Condvar,
    pub wake_syncer: Condvar,
    /// The memory used by samples and series when the writer last measured it.
    pub memory_bytes: AtomicU64,
    pub torn_bytes: AtomicU64,
    pub set_aside: Mutex<Vec<PathBuf>>,
    /// Segments with unreadable parts: they are set aside instead of removed.
    pub damaged_segments: Mutex<Vec<u64>>,
    pub hidden_ranges: HiddenRanges,
    pub read_filters: ReadFilters,
    pub drop_tracker: DropTracker,
    pub completeness: CompletenessRecord,
    /// Points queued for the writer and not yet acknowledged.
    pub points_in_flight: AtomicU64,
    /// The end of what is written to the log.
    pub log_end: Mutex<LogPosition>,
    /// Segments below this number are not needed by readers of the log.
    pub log_released: AtomicU64,
    /// Samples of ticks that are kept in memory and are not in the log.
    pub unlogged_samples: AtomicU64,
}

/// Everything that queries read. Writers hold the lock for microseconds; readers copy pointers and
/// release it.
#[derive(Debug, Default)]
pub(crate) struct StoreState {
    pub head: Head,
    /// Heads waiting to be written to blocks, oldest first.
    pub frozen: Vec<Arc<FrozenHead>>,
    /// Sorted by id.
    pub blocks: Vec<Arc<Block>>,
    /// The highest id that a block ever had. Ids are never reused: readers may still hold a dropped
    /// block, whose file is removed with its last reader and must not be another block's.
    pub last_block_id: u64,
    /// The size of the log segments of the active head.
    pub head_log_bytes: u64,
    /// The reason why samples cannot be written, and since when.
    pub log_failure: Option<Degradation>,
    pub block_failure: Option<Degradation>,
}

#[derive(Debug)]
pub(crate) struct FrozenHead {
    pub head: Head,
    /// The last log segment that holds samples of this head.
    pub log_through: u64,
    pub log_bytes: u64,
}

impl StoreState {
    pub(crate) fn add_blocks(&mut self, made: impl IntoIterator<Item = Arc<Block>>) {
        self.blocks.extend(made);
        let last = self.blocks.last().map_or(0, |block| block.id);
        self.last_block_id = self.last_block_id.max(last);
    }

    pub(crate) fn log_bytes(&self) -> u64 {
        self.head_log_bytes
            + self
                .frozen
                .iter()
                .map(|frozen| frozen.log_bytes)
                .sum::<u64>()
    }
}

/// Requests and results exchanged between the threads.
#[derive(Debug, Default)]
pub(crate) struct BackgroundWork {
    /// Segments with unsynced frames: usually one, two after a rotation.
    pub unsynced: Vec<Arc<dyn FileHandle>>,
    /// A segment file was created since the last sync of the log directory.
    pub unsynced_dir: bool,
    /// The error of a failed sync: the segment can no longer be trusted.
    pub sync_failed: Option<String>,
    /// The start of the sync in progress.
    pub sync_began: Option<Instant>,
    /// Maintenance passes requested and completed.
    pub maintenance_requested: u64,
    pub maintenance_done: u64,
    pub stop: bool,
}

impl BackgroundWork {
    /// Describes a problem with the log's syncs: a failure is returned once, a stall as long as it
    /// lasts.
    pub(crate) fn take_sync_failure(&mut self, stall: Duration) -> Option<String> {
        self.sync_failed.take().or_else(|| self.sync_stall(stall))
    }

    /// Describes a sync of the log that takes too long.
    pub(crate) fn sync_stall(&self, stall: Duration) -> Option<String> {
        let is_stalled = self.sync_began?.elapsed() >= stall;
        is_stalled.then(|| format!("sync of the log: the disk did not respond within {stall:?}"))
    }
}

impl StoreContext {
    /// Locks the state for reading. This blocks the writer: nothing slow may be done while the
    /// guard is held.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, StoreState> {
        self.readers_waiting.fetch_add(1, Ordering::Relaxed);
        let state = self.state.read();
        self.readers_waiting.fetch_sub(1, Ordering::Relaxed);
        state
    }

    pub(crate) fn write(&self) -> StateGuard<'_> {
        let state = self.state.write();
        StateGuard {
            state,
            stats: &self.stats,
        }
    }

    /// Lets waiting readers lock the state between two changes in quick succession.
    pub(crate) fn yield_to_readers(&self) {
        for _ in 0..YIELDS_MAX {
            if self.readers_waiting.load(Ordering::Relaxed) == 0 {
                return;
            }
            std::thread::yield_now();
        }
    }

    /// Returns the statistics of the state, without waiting for its lock.
    pub(crate) fn stats(&self) -> StoreStats {
        self.stats.lock().clone()
    }

    pub(crate) fn background_work(&self) -> MutexGuard<'_, BackgroundWork> {
        self.background_work.lock()
    }

    /// Publishes the end of what is written to the log.
    pub(crate) fn set_log_end(&self, segment: u64, offset: u64) {
        *self.log_end.lock() = LogPosition { segment, offset };
    }

    pub(crate) fn now(&self) -> Millis {
        self.options.clock.utc()
    }

    pub(crate) fn log_dir(&self) -> PathBuf {
        self.options.dir.join("log")
    }

    /// Returns the directory of segments that wait for readers of the log.
    pub(crate) fn outgoing_dir(&self) -> PathBuf {
        self.options.dir.join("outgoing")
    }

    pub(crate) fn block_dir(&self) -> PathBuf {
        self.options.dir.join("blocks")
    }

    /// Returns the id for the next block. The id is taken only when the block becomes part of the
    /// state.
    pub(crate) fn next_block_id(&self) -> u64 {
        self.read().last_block_id + 1
    }

    /// Returns the blocks with samples in a range, in order of precedence, lowest first.
    pub(crate) fn overlapping_blocks(&self, start: Millis, end: Millis) -> Vec<Arc<Block>> {
        let state = self.read();
        let blocks = state
            .blocks
            .iter()
            .filter(|block| block.overlaps(start, end));
        blocks.cloned().collect()
    }

    /// Returns the start of retention: earlier samples are rejected, not shown, and removed.
    pub(crate) fn retention_start(&self) -> Millis {
        let keep = i64::try_from(self.options.keep.disk.duration().as_millis()).unwrap_or(i64::MAX);
        self.now().saturating_sub(keep)
    }

    /// Syncs the rest of the log when the store is closed.
    pub(crate) fn sync_log(&self) {
        let unsynced = std::mem::take(&mut self.background_work().unsynced);
        if let Err(error) = unsynced.iter().try_for_each(|file| file.sync()) {
            tracing::error!(%error, "cannot sync the log");
        }
    }

    /// Moves a file that is unreadable, wholly or in part, to `aside/`. Such files are never
    /// deleted.
    pub(crate) fn set_aside(&self, path: &Path, why: &str) {
        let aside = self.options.dir.join("aside");
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let mut target = aside.join(format!("{}-{name}", self.now()));
        let moved = self.options.files.make_dir(&aside).and_then(|()| {
            // Never overwrite a file set aside before, even if the clock stands still or goes back.
            let known = self.options.files.list(&aside)?;
            let is_taken = |path: &Path| known.iter().any(|name| path.ends_with(name));
            for number in 1.. {
                if !is_taken(&target) {
                    break;
                }
                target = aside.join(format!("{}.{number}-{name}", self.now()));
            }
            self.options.files.rename(path, &target)
        });
        match moved {
            Ok(()) => {
                tracing::error!(path = %path.display(), aside = %target.display(), why, "set aside a damaged file");
                self.set_aside.lock().push(target);
            }
            Err(error) => {
                tracing::error!(path = %path.display(), %error, why, "cannot set aside a damaged file");
                self.set_aside.lock().push(path.to_owned());
            }
        }
    }

    /// Counts dropped samples of a tick.
    pub(crate) fn count_dropped_tick(&self, input: Input, reason: DropReason, count: u64) {
        if count > 0 {
            self.ledger.add_dropped(input, reason, count);
            self.drop_tracker.record(input, reason, &self.options);
        }
    }

    /// Makes points current that were ahead of the clock and are now due. The writer does so with
    /// each commit, but there may be none for a while. Bounded, because it holds the lock; the
    /// writer handles the rest.
    pub(crate) fn show_due_points(&self) {
        const COUNT_MAX: usize = 1024;
        let now = self.now();
        if self.read().head.ungrouped.has_due_point(now) {
            let head = &mut self.write().head;
            head.changes += 1;
            let _ = (0..COUNT_MAX).find(|_| !head.show_due_point(now));
        }
    }

    /// Records the reason why the log cannot be written, or `None` once it can be written again.
    pub(crate) fn set_log_failure(&self, failure: Option<String>) {
        let now = self.now();
        update_degradation(&mut self.write().log_failure, failure, now, "log");
    }

    /// Reports a hanging sync, even before the writer's next commit notices it.
    pub(crate) fn sync_stalled(&self) -> Option<Degradation> {
        let reason = self
            .background_work()
            .sync_stall(self.options.disk_timeout)?;
        let since = self.now();
        Some(Degradation { reason, since })
    }

    /// Records the reason why blocks cannot be written, or `None` once they can be written again.
    pub(crate) fn set_block_failure(&self, failure: Option<String>) {
        let now = self.now();
        update_degradation(&mut self.write().block_failure, failure, now, "blocks");
    }

    /// Measures the memory used by samples and series: in the active head, and in total. Walks all
    /// series: too expensive for every tick.
    pub(crate) fn measure_memory(&self) -> (u64, u64) {
        let state = self.read();
        let head = state.head.bytes();
        let frozen: usize = state.frozen.iter().map(|frozen| frozen.head.bytes()).sum();
        (head as u64, (head + frozen) as u64)
    }
}

/// Updates a degradation and logs only transitions, not every failure.
fn update_degradation(
    known: &mut Option<Degradation>,
    failure: Option<String>,
    now: Millis,
    what: &str,
) {
    match failure {
        Some(reason) if known.as_ref().is_none_or(|known| known.reason != reason) => {
            tracing::error!(
                reason,
                "cannot write the store's {what}; samples stay in memory"
            );
            let since = known.as_ref().map_or(now, |known| known.since);
            *known = Some(Degradation { reason, since });
        }
        None if known.is_some() => {
            tracing::info!("the store's {what} can be written again");
            *known = None;
        }
        _ => {}
    }
}
