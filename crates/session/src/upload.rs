//! Stores the blocks of a spool: each one once, in order, at its position.
//!
//! A block is removed from the spool only after the storage confirmed it. If a response is lost,
//! the same append is sent again, with the same position; the storage then reports that the part is
//! longer than expected, and the content of the part shows whether the earlier request succeeded.

use std::time::{Duration, Instant};

use pegel_metric::with_causes;
use serde::Serialize;

use crate::spool::{SharedSpool, SpoolError, UploadPosition};
use crate::storage::{
    AppendOutcome, PartConflict, RecordStorage, StorageProblem, StorageProblemKind,
};

/// The first and the longest delay before a retry of a transient problem.
const TRANSIENT_DELAY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// The same for problems that a user must solve.
const PERSISTENT_DELAY: (Duration, Duration) = (Duration::from_secs(15), Duration::from_secs(300));
/// The longest `Retry-After` of a storage that is obeyed.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(600);

/// The result of one step of an upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UploadStep {
    /// A block is stored; there may be more.
    Stored,
    /// All blocks are stored; the record has not ended.
    Idle,
    /// The record has ended and is stored with its summary. The spool is no longer needed.
    Finished,
    /// Nothing was stored; the next step is due after this time.
    Wait(Duration),
}

/// The state of an upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum UploadState {
    /// Blocks are stored as they arrive.
    Active,
    /// The last attempt failed; it is repeated.
    Retrying(StorageProblemKind),
    /// The spool itself fails: its disk is full or broken.
    SpoolFailed,
    /// Everything is stored, with the summary.
    Finished,
}

/// The status of an upload, as `session status` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UploadStatus {
    pub state: UploadState,
    /// The problem, its place, and what to do. Contains no secret.
    pub problem: Option<String>,
    /// The number of attempts since the last success.
    pub attempts: u32,
    pub position: UploadPosition,
    pub waiting_blocks: usize,
    pub waiting_bytes: u64,
    pub dropped_blocks: u64,
}

/// Stores the record of one session.
#[derive(Debug)]
pub struct RecordUploader {
    spool: SharedSpool,
    storage: Box<dyn RecordStorage>,
    state: UploadState,
    problem: Option<String>,
    attempts: u32,
    /// When the next attempt is due, after a failure.
    next_attempt: Option<Instant>,
}

impl RecordUploader {
    pub fn new(spool: SharedSpool, storage: Box<dyn RecordStorage>) -> RecordUploader {
        RecordUploader {
            spool,
            storage,
            state: UploadState::Active,
            problem: None,
            attempts: 0,
            next_attempt: None,
        }
    }

    /// Uses other storage from now on, as with renewed credentials. The next attempt is due at
    /// once.
    pub fn replace_storage(&mut self, storage: Box<dyn RecordStorage>) {
        self.storage = storage;
        self.next_attempt = None;
    }

    pub fn status(&self) -> UploadStatus {
        let spool = self.spool.lock();
        UploadStatus {
            state: self.state,
            problem: self.problem.clone(),
            attempts: self.attempts,
            position: spool.position(),
            waiting_blocks: spool.waiting_blocks(),
            waiting_bytes: spool.waiting_bytes(),
            dropped_blocks: spool.dropped_blocks(),
        }
    }

    /// Stores the oldest block, or completes a record that has ended. Does nothing before the delay
    /// after a failure is over.
    pub fn step(&mut self, now: Instant) -> UploadStep {
        if let Some(due) = self.next_attempt.filter(|due| *due > now) {
            return UploadStep::Wait(due - now);
        }
        match self.try_step() {
            Ok(step) => {
                self.state = match step {
                    UploadStep::Finished => UploadState::Finished,
                    _ => UploadState::Active,
                };
                self.problem = None;
                self.attempts = 0;
                self.next_attempt = None;
                step
            }
            Err(failure) => {
                self.attempts = self.attempts.saturating_add(1);
                let delay = failure.delay(self.attempts);
                (self.state, self.problem) = match failure {
                    StepFailure::Storage(problem) => (
                        UploadState::Retrying(problem.kind),
                        Some(problem.to_string()),
                    ),
                    StepFailure::Spool(error) => {
                        (UploadState::SpoolFailed, Some(with_causes(&error)))
                    }
                };
                self.next_attempt = Some(now + delay);
                UploadStep::Wait(delay)
            }
        }
    }

    fn try_step(&mut self) -> Result<UploadStep, StepFailure> {
        let (block, summary) = {
            let mut spool = self.spool.lock();
            (spool.oldest()?, spool.summary()?)
        };
        let Some(block) = block else {
            let Some(summary) = summary else {
                return Ok(UploadStep::Idle);
            };
            let last_part = self.spool.lock().position().part;
            self.storage.finish(last_part, &summary)?;
            return Ok(UploadStep::Finished);
        };
        let position = self.part_for(block.len() as u64)?;
        let UploadPosition {
            part, part_bytes, ..
        } = position;
        // No lock is held while the block is sent.
        match self.storage.append(part, part_bytes, &block)? {
            AppendOutcome::Stored | AppendOutcome::Conflict(PartConflict::AlreadyStored) => {
                self.spool.lock().confirm_oldest()?;
                Ok(UploadStep::Stored)
            }
            AppendOutcome::PartFull if part_bytes > 0 => {
                self.spool.lock().begin_part()?;
                // The next step sends the block to the new part.
                Ok(UploadStep::Stored)
            }
            AppendOutcome::PartFull => Err(StepFailure::Storage(StorageProblem::new(
                StorageProblemKind::Rejected,
                format!("the storage rejects a block of {} bytes", block.len()),
            ))),
            AppendOutcome::Conflict(PartConflict::OtherContent { bytes }) => {
                Err(StepFailure::Storage(StorageProblem::new(
                    StorageProblemKind::OtherWriter,
                    format!(
                        "another process wrote part {part} of the record: it has {bytes} bytes, \
                         expected {part_bytes}"
                    ),
                )))
            }
        }
    }

    /// Returns the position for a block of this size: starts a new part if the current one is full.
    fn part_for(&self, block_bytes: u64) -> Result<UploadPosition, SpoolError> {
        let limits = self.storage.part_limits();
        let mut spool = self.spool.lock();
        let position = spool.position();
        let is_full = position.part_blocks >= limits.blocks
            || position.part_bytes.saturating_add(block_bytes) > limits.bytes;
        if is_full && position.part_blocks > 0 {
            spool.begin_part()?;
        }
        Ok(spool.position())
    }
}

enum StepFailure {
    Storage(StorageProblem),
    Spool(SpoolError),
}

impl StepFailure {
    /// Returns the delay before the next attempt: it doubles, and the storage may request more.
    fn delay(&self, attempts: u32) -> Duration {
        let ((first, longest), retry_after) = match self {
            StepFailure::Storage(problem) if problem.kind.is_transient() => {
                (TRANSIENT_DELAY, problem.retry_after)
            }
            StepFailure::Storage(problem) => (PERSISTENT_DELAY, problem.retry_after),
            StepFailure::Spool(_) => (TRANSIENT_DELAY, None),
        };
        let doubled = first.saturating_mul(1 << (attempts - 1).min(16));
        let asked = retry_after.unwrap_or_default().min(RETRY_AFTER_MAX);
        doubled.min(longest).max(asked)
    }
}

impl From<StorageProblem> for StepFailure {
    fn from(problem: StorageProblem) -> StepFailure {
        StepFailure::Storage(problem)
    }
}

impl From<SpoolError> for StepFailure {
    fn from(error: SpoolError) -> StepFailure {
        StepFailure::Spool(error)
    }
}
