//! What the store's threads and its readers share.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use pegel_metric::{DropReason, Input, Ledger, Millis};

use crate::StoreOptions;
use crate::block::{Block, IndexCache};
use crate::drop_tracker::DropTracker;
use crate::files::FileHandle;
use crate::head::Head;
use crate::hidden_ranges::HiddenRanges;
use crate::lock::LockedDir;
use crate::state_stats::{StateGuard, StateStats};
use crate::status::Degradation;

/// How often the writer yields to waiting readers before it continues regardless.
const YIELDS_MAX: usize = 1000;

#[derive(Debug)]
pub(crate) struct StoreContext {
    pub options: StoreOptions,
    pub locked_dir: Arc<LockedDir>,
    pub ledger: Arc<Ledger>,
    pub state: RwLock<StoreState>,
    pub stats: Mutex<StateStats>,
    /// Threads that are about to read the state.
    pub readers_waiting: AtomicUsize,
    pub indexes: IndexCache,
    pub background_work: Mutex<BackgroundWork>,
    pub wake_maintenance: Condvar,
    pub maintenance_passed: Condvar,
    pub wake_syncer: Condvar,
    /// What samples and series took in memory when the writer last measured it.
    pub memory_bytes: AtomicU64,
    pub torn_bytes: AtomicU64,
    pub set_aside: Mutex<Vec<PathBuf>>,
    /// Segments of which not everything could be read: they are set aside instead of removed.
    pub damaged_segments: Mutex<Vec<u64>>,
    pub hidden_ranges: HiddenRanges,
    pub drop_tracker: DropTracker,
    /// Points accepted for the writer and not yet answered.
    pub points_in_flight: AtomicU64,
}

/// What can be read. Whoever changes it holds the lock for microseconds, whoever reads it copies and lets go.
#[derive(Debug, Default)]
pub(crate) struct StoreState {
    pub head: Head,
    /// Waiting for their blocks, oldest first.
    pub frozen: Vec<Arc<FrozenHead>>,
    /// In the order of their ids.
    pub blocks: Vec<Arc<Block>>,
    /// The highest id that a block ever had. Ids are not used twice, because readers may still hold a block
    /// that was dropped: its file, which goes with its last reader, must not be another block's.
    pub last_block_id: u64,
    /// What the log segments of the active head take.
    pub head_log_bytes: u64,
    /// Why samples cannot be written, and since when.
    pub log_failure: Option<Degradation>,
    pub block_failure: Option<Degradation>,
}

#[derive(Debug)]
pub(crate) struct FrozenHead {
    pub head: Head,
    /// The last log segment that holds any of it.
    pub log_through: u64,
    pub log_bytes: u64,
}

impl StoreState {
    pub fn add_blocks(&mut self, made: impl IntoIterator<Item = Arc<Block>>) {
        self.blocks.extend(made);
        let last = self.blocks.last().map_or(0, |block| block.id);
        self.last_block_id = self.last_block_id.max(last);
    }

    pub fn log_bytes(&self) -> u64 {
        self.head_log_bytes
            + self
                .frozen
                .iter()
                .map(|frozen| frozen.log_bytes)
                .sum::<u64>()
    }
}

/// Messages between the threads.
#[derive(Debug, Default)]
pub(crate) struct BackgroundWork {
    /// Segments with frames that are not synced: mostly one, after a rotation two.
    pub unsynced: Vec<Arc<dyn FileHandle>>,
    /// A segment file was made since the log directory was synced.
    pub unsynced_dir: bool,
    /// A sync failed: the segment can no longer be trusted.
    pub sync_failed: Option<String>,
    /// When the sync in progress began.
    pub sync_began: Option<Instant>,
    /// Passes of the upkeep that were asked for and that are done.
    pub maintenance_requested: u64,
    pub maintenance_done: u64,
    pub stop: bool,
}

impl BackgroundWork {
    /// Describes a problem with the log's syncs: a failure once, a stall as long as it lasts.
    pub fn take_sync_failure(&mut self, stall: Duration) -> Option<String> {
        self.sync_failed.take().or_else(|| self.sync_stall(stall))
    }

    /// Describes a sync of the log that takes too long.
    pub fn sync_stall(&self, stall: Duration) -> Option<String> {
        let is_stalled = self.sync_began?.elapsed() >= stall;
        is_stalled.then(|| format!("sync of the log: the disk has not answered for {stall:?}"))
    }
}

impl StoreContext {
    /// Locks the state for reading. The writer waits meanwhile: nothing slow may be done with it.
    pub fn read(&self) -> RwLockReadGuard<'_, StoreState> {
        self.readers_waiting.fetch_add(1, Ordering::Relaxed);
        let state = self.state.read();
        self.readers_waiting.fetch_sub(1, Ordering::Relaxed);
        state.unwrap_or_else(PoisonError::into_inner)
    }

    pub fn write(&self) -> StateGuard<'_> {
        let state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        StateGuard {
            state,
            stats: &self.stats,
        }
    }

    /// Lets waiting readers lock the state, between two changes in quick succession.
    pub fn yield_to_readers(&self) {
        for _ in 0..YIELDS_MAX {
            if self.readers_waiting.load(Ordering::Relaxed) == 0 {
                return;
            }
            std::thread::yield_now();
        }
    }

    /// Returns the statistics of the state, without waiting for its lock.
    pub fn stats(&self) -> StateStats {
        let stats = self.stats.lock();
        stats.unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn background_work(&self) -> MutexGuard<'_, BackgroundWork> {
        self.background_work
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub fn now(&self) -> Millis {
        self.options.clock.utc()
    }

    pub fn log_dir(&self) -> PathBuf {
        self.options.dir.join("log")
    }

    pub fn block_dir(&self) -> PathBuf {
        self.options.dir.join("blocks")
    }

    /// For the next block that is written; only taken when it becomes part of the state.
    pub fn next_block_id(&self) -> u64 {
        self.read().last_block_id + 1
    }

    /// Samples before this are refused, not shown, and dropped.
    pub fn retention_start(&self) -> Millis {
        let keep = i64::try_from(self.options.keep_disk.as_millis()).unwrap_or(i64::MAX);
        self.now().saturating_sub(keep)
    }

    /// Syncs the rest of the log when the store is closed.
    pub fn sync_log(&self) {
        let unsynced = std::mem::take(&mut self.background_work().unsynced);
        if let Err(error) = unsynced.iter().try_for_each(|file| file.sync()) {
            tracing::error!(%error, "cannot sync the log");
        }
    }

    /// Moves a file that cannot be read, or not in full, out of the way. It is never deleted.
    pub fn set_aside(&self, path: &Path, why: &str) {
        let aside = self.options.dir.join("aside");
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let mut target = aside.join(format!("{}-{name}", self.now()));
        let moved = self.options.files.make_dir(&aside).and_then(|()| {
            // What was set aside before stays, even if the clock stands still or goes back.
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
                self.set_aside
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(target);
            }
            Err(error) => {
                tracing::error!(path = %path.display(), %error, why, "a file is damaged and cannot be set aside");
                self.set_aside
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(path.to_owned());
            }
        }
    }

    /// Counts samples of a tick that are not kept.
    pub fn count_dropped_tick(&self, input: Input, reason: DropReason, count: u64) {
        if count > 0 {
            self.ledger.add_dropped(input, reason, count);
            self.drop_tracker.record(input, reason, &self.options);
        }
    }

    /// Makes points current that were ahead of the clock and whose time has come. The writer does so with each commit, but
    /// there may be none for a while. Bounded, because it holds the lock; the rest is left to the writer.
    pub fn show_due_points(&self) {
        const COUNT_MAX: usize = 1024;
        let now = self.now();
        if self.read().head.ungrouped.has_due_point(now) {
            let head = &mut self.write().head;
            head.changes += 1;
            let _ = (0..COUNT_MAX).find(|_| !head.show_due_point(now));
        }
    }

    /// Notes why the log cannot be written, or that it can again.
    pub fn set_log_failure(&self, trouble: Option<String>) {
        let now = self.now();
        update_degradation(&mut self.write().log_failure, trouble, now, "log");
    }

    /// Reports a sync that hangs, even before the writer's next commit notices it.
    pub fn sync_stalled(&self) -> Option<Degradation> {
        let reason = self
            .background_work()
            .sync_stall(self.options.disk_timeout)?;
        let since = self.now();
        Some(Degradation { reason, since })
    }

    /// Notes why blocks cannot be written, or that they can again.
    pub fn set_block_failure(&self, trouble: Option<String>) {
        let now = self.now();
        update_degradation(&mut self.write().block_failure, trouble, now, "blocks");
    }

    /// Measures what samples and series take in memory: in the active head, and in all. Walks over all series:
    /// not for every tick.
    pub fn measure_memory(&self) -> (u64, u64) {
        let state = self.read();
        let head = state.head.bytes();
        let frozen: usize = state.frozen.iter().map(|frozen| frozen.head.bytes()).sum();
        (head as u64, (head + frozen) as u64)
    }
}

/// Says each change once, not each failure.
fn update_degradation(
    known: &mut Option<Degradation>,
    trouble: Option<String>,
    now: Millis,
    what: &str,
) {
    match trouble {
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
