//! Storage in memory that loses every fifth request or response.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use pegel_session::storage::{
    AppendOutcome, PartConflict, PartLimits, RecordStorage, StorageProblem, StorageProblemKind,
};

/// The parts of a record; shared by the storage and the test.
pub(crate) type StoredParts = Arc<Mutex<BTreeMap<u32, Vec<u8>>>>;

#[derive(Debug)]
pub(crate) struct LossyStorage {
    pub(crate) parts: StoredParts,
    pub(crate) summary: Arc<Mutex<Option<String>>>,
    pub(crate) limits: PartLimits,
    pub(crate) requests: u32,
}

impl LossyStorage {
    pub(crate) fn new(parts: StoredParts, limits: PartLimits) -> LossyStorage {
        LossyStorage {
            parts,
            summary: Arc::default(),
            limits,
            requests: 0,
        }
    }
}

impl RecordStorage for LossyStorage {
    fn part_limits(&self) -> PartLimits {
        self.limits
    }

    fn append(
        &mut self,
        part: u32,
        position: u64,
        block: &[u8],
    ) -> Result<AppendOutcome, StorageProblem> {
        self.requests += 1;
        let lost = StorageProblem::new(StorageProblemKind::Unreachable, "lost");
        // The request is lost.
        if self.requests.is_multiple_of(10) {
            return Err(lost);
        }
        let mut parts = self.parts.lock();
        let content = parts.entry(part).or_default();
        let start = position as usize;
        if content.len() != start {
            return Ok(AppendOutcome::Conflict(match content.get(start..) {
                Some(rest) if rest == block => PartConflict::AlreadyStored,
                _ => PartConflict::OtherContent {
                    bytes: content.len() as u64,
                },
            }));
        }
        content.extend_from_slice(block);
        // The response is lost.
        if self.requests.is_multiple_of(5) {
            return Err(lost);
        }
        Ok(AppendOutcome::Stored)
    }

    fn finish(&mut self, last_part: u32, summary: &str) -> Result<(), StorageProblem> {
        assert_eq!(self.parts.lock().keys().last(), Some(&last_part));
        *self.summary.lock() = Some(summary.to_owned());
        Ok(())
    }
}
