//! The thread of the continuous archive: stores finished blocks one after the other, oldest first.
//! A block is marked as archived when all of its files are stored; after a failure the same block
//! is tried again, after a longer pause each time. Neither the sampler nor the store calls this
//! module or waits for it.

use std::collections::HashSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use pegel_metric::{Clock, Millis, with_causes};
use pegel_storage::{FilePlace, StorageProblem};
use pegel_store::{ArchiveProgress, BlockIdentity, FinishedBlock, Store};
use pegel_supervisor::{RestartedThread, Supervisor};

use crate::block_files::{BlockError, BlockFiles, BlockTotals};
use crate::credentials_file::read_credentials;
use crate::settings::{ArchivePlace, ArchiveSettings};
use crate::state::save_progress;

/// How often new blocks are looked for. The store finishes one per hour and class of inputs.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(300);
/// How long stopping waits for a request in progress. The block is archived after the next start.
const STOP_TIME: Duration = Duration::from_secs(3);

/// The parts of the agent that the archive uses.
#[derive(Debug)]
pub struct ArchiverOptions {
    pub settings: ArchiveSettings,
    pub place: ArchivePlace,
    pub node: String,
    /// The directory for the state.
    pub dir: PathBuf,
    pub store: Store,
    /// Shared with the store's options, so that retention sees it.
    pub progress: Arc<ArchiveProgress>,
    pub clock: Arc<dyn Clock>,
    pub supervisor: Supervisor,
}

/// The counts of the archive since the start of the agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ArchiveCounts {
    pub place: String,
    pub blocks: u64,
    pub files: u64,
    /// Files that existed already.
    pub existing_files: u64,
    pub samples: u64,
    pub bytes: u64,
    /// Samples that an earlier block has with the same value; only the first is archived.
    pub repeated: u64,
    pub damaged_columns: u64,
    pub errors: u64,
    /// Samples and blocks that retention dropped before they were archived.
    pub lost_samples: u64,
    pub lost_blocks: u64,
    /// Finished blocks that are not archived yet.
    pub pending_blocks: u64,
    pub last_archived: Option<Millis>,
    pub last_error: Option<String>,
}

/// The running archive. Dropping it ends its thread.
#[derive(Debug)]
pub struct Archiver {
    shared: Arc<SharedArchive>,
    progress: Arc<ArchiveProgress>,
    thread: Option<RestartedThread>,
}

#[derive(Debug)]
struct SharedArchive {
    counts: Mutex<ArchiveCounts>,
    is_stopping: Mutex<bool>,
    wake: Condvar,
}

impl Archiver {
    pub fn start(options: ArchiverOptions) -> io::Result<Archiver> {
        let shared = Arc::new(SharedArchive {
            counts: Mutex::new(ArchiveCounts {
                place: options.place.to_string(),
                ..ArchiveCounts::default()
            }),
            is_stopping: Mutex::new(false),
            wake: Condvar::new(),
        });
        let progress = options.progress.clone();
        let (for_thread, supervisor) = (shared.clone(), options.supervisor.clone());
        let thread = supervisor
            .thread("archive")
            .restarted(move || ArchiveWorker::new(&options, &for_thread).run())?;
        Ok(Archiver {
            shared,
            progress,
            thread: Some(thread),
        })
    }

    pub fn counts(&self) -> ArchiveCounts {
        let (lost_samples, lost_blocks) = self.progress.lost();
        ArchiveCounts {
            lost_samples,
            lost_blocks,
            ..self.shared.counts.lock().clone()
        }
    }
}

impl Drop for Archiver {
    fn drop(&mut self) {
        *self.shared.is_stopping.lock() = true;
        self.shared.wake.notify_all();
        let Some(thread) = self.thread.take() else {
            return;
        };
        let deadline = Instant::now() + STOP_TIME;
        while !thread.has_ended() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        match thread.has_ended() {
            true => thread.join(),
            // Detached: a request that hangs must not delay the end of the agent.
            false => std::mem::forget(thread),
        }
    }
}

impl SharedArchive {
    fn is_stopping(&self) -> bool {
        *self.is_stopping.lock()
    }

    /// Waits for `time`, or until the agent stops.
    fn wait(&self, time: Duration) {
        let mut is_stopping = self.is_stopping.lock();
        if !*is_stopping {
            self.wake.wait_for(&mut is_stopping, time);
        }
    }
}

struct ArchiveWorker<'a> {
    options: &'a ArchiverOptions,
    shared: &'a SharedArchive,
    place: Option<FilePlace>,
    pause: Duration,
    /// Whether the last attempt to store something succeeded.
    is_proven: bool,
    /// Whether the state file lacks blocks that are archived.
    is_unsaved: bool,
}

/// The block to archive next.
struct NextBlock {
    block: FinishedBlock,
    /// All blocks that exist.
    existing: HashSet<BlockIdentity>,
    /// The number of blocks that are not archived, this one included.
    pending: u64,
}

impl<'a> ArchiveWorker<'a> {
    fn new(options: &'a ArchiverOptions, shared: &'a SharedArchive) -> ArchiveWorker<'a> {
        ArchiveWorker {
            options,
            shared,
            place: None,
            pause: PAUSE_MIN,
            is_proven: false,
            is_unsaved: false,
        }
    }

    fn run(mut self) {
        while !self.shared.is_stopping() {
            let wait = match self.run_pass() {
                Ok(()) => {
                    self.pause = PAUSE_MIN;
                    self.shared.counts.lock().last_error = None;
                    POLL_INTERVAL
                }
                Err(BlockError::Stopping) => return,
                Err(error) => self.on_error(&error),
            };
            self.shared.wait(wait);
        }
    }

    /// Archives all finished blocks that are not archived yet. A block that cannot be read does not
    /// hold up the others. Without a block, checks the place at the start and after a failure: the
    /// first block may be finished hours later.
    fn run_pass(&mut self) -> Result<(), BlockError> {
        let mut unreadable = HashSet::new();
        let mut failure = None;
        while let Some(next) = self.next_block(&unreadable) {
            let identity = next.block.identity();
            match self.archive(&next.block) {
                Ok(totals) => {
                    self.is_proven = true;
                    self.options.progress.mark(identity);
                    self.save(&next.existing);
                    self.count(&totals, next.pending - 1);
                }
                Err(error @ (BlockError::Read(_) | BlockError::Write(_))) => {
                    unreadable.insert(identity);
                    failure = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        match failure {
            Some(error) => Err(error),
            None if self.is_proven || self.shared.is_stopping() => Ok(()),
            None => self.probe().map_err(BlockError::Storage),
        }
    }

    fn probe(&mut self) -> Result<(), StorageProblem> {
        let place = self.open()?;
        self.place.insert(place).probe()?;
        self.is_proven = true;
        Ok(())
    }

    /// Returns the oldest block that is not archived, except for `unreadable` ones. The list of
    /// blocks is read again for each: storing one may take long, and a block that retention drops
    /// meanwhile must not be kept on the disk.
    fn next_block(&mut self, unreadable: &HashSet<BlockIdentity>) -> Option<NextBlock> {
        let blocks = self.options.store.finished_blocks();
        let existing: HashSet<BlockIdentity> = blocks.iter().map(FinishedBlock::identity).collect();
        if self.is_unsaved {
            self.save(&existing);
        }
        let progress = &self.options.progress;
        let is_pending = |block: &&FinishedBlock| !progress.contains(block.identity());
        let pending = blocks.iter().filter(is_pending).count() as u64;
        self.shared.counts.lock().pending_blocks = pending;
        let mut pending_blocks = blocks.iter().filter(is_pending);
        let block = pending_blocks.find(|block| !unreadable.contains(&block.identity()))?;
        Some(NextBlock {
            block: block.clone(),
            existing,
            pending,
        })
    }

    fn archive(&mut self, block: &FinishedBlock) -> Result<BlockTotals, BlockError> {
        let place = match self.place.take() {
            Some(place) => place,
            None => self.open().map_err(BlockError::Storage)?,
        };
        let place = self.place.insert(place);
        let shared = self.shared;
        let mut files = BlockFiles {
            store: &self.options.store,
            node: &self.options.node,
            names: &self.options.settings.names,
            place,
            is_stopping: &|| shared.is_stopping(),
        };
        files.write(block)
    }

    fn open(&self) -> Result<FilePlace, StorageProblem> {
        let settings = &self.options.settings;
        let credentials = read_credentials(settings.credentials_file.as_deref())?;
        FilePlace::open(&self.options.place.0, &credentials, &settings.endpoints())
    }

    /// Saves the state. A failure is harmless: without the state, existing files are recognised by
    /// their names.
    fn save(&mut self, existing: &HashSet<BlockIdentity>) {
        self.is_unsaved = true;
        let archived = self.options.progress.retain(existing);
        let place = self.options.place.to_string();
        match save_progress(&self.options.dir, &place, archived) {
            Ok(()) => self.is_unsaved = false,
            Err(error) => {
                tracing::warn!(%error, "cannot save the state of the archive; trying again");
            }
        }
    }

    fn count(&self, totals: &BlockTotals, pending: u64) {
        let mut counts = self.shared.counts.lock();
        counts.blocks += 1;
        counts.files += totals.files;
        counts.existing_files += totals.existing_files;
        counts.samples += totals.samples;
        counts.bytes += totals.bytes;
        counts.repeated += totals.skipped.repeated;
        counts.damaged_columns += totals.skipped.damaged_columns;
        counts.pending_blocks = pending;
        counts.last_archived = Some(self.options.clock.utc());
        counts.last_error = None;
    }

    /// Counts a failure and returns how long to wait. Logs it unless the last failure was the same.
    fn on_error(&mut self, error: &BlockError) -> Duration {
        let text = with_causes(error);
        let mut counts = self.shared.counts.lock();
        counts.errors += 1;
        if counts.last_error.as_ref() != Some(&text) {
            tracing::warn!(error = text, "cannot store in the archive; trying again");
        }
        counts.last_error = Some(text);
        drop(counts);
        self.is_proven = false;
        // Opened again for the next attempt, so that renewed credentials and certificates are read.
        self.place = None;
        let requested = match error {
            BlockError::Storage(problem) => problem.retry_after,
            _ => None,
        };
        let wait = requested
            .unwrap_or(Duration::ZERO)
            .clamp(self.pause, PAUSE_MAX);
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        wait
    }
}

#[cfg(test)]
mod tests;
