//! The blocks that are archived. The archive marks a block when it is stored elsewhere. Retention
//! keeps blocks that are not marked beyond `keep.disk`, and counts the samples of those that it
//! must drop because of `keep.bytes`.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use pegel_metric::Millis;
use serde::{Deserialize, Serialize};

use crate::block::Block;

/// Identifies a block across restarts. An id alone does not: it is used again if the blocks with
/// the highest ids were dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BlockIdentity {
    pub id: u64,
    /// The checksum of its index, which contains those of its columns.
    pub checksum: u32,
}

/// The blocks that are archived, and the number of samples that were dropped before.
#[derive(Debug, Default)]
pub struct ArchiveProgress {
    archived: Mutex<HashSet<BlockIdentity>>,
    lost_samples: AtomicU64,
    lost_blocks: AtomicU64,
}

impl ArchiveProgress {
    /// Continues with the blocks that were archived before.
    pub fn new(archived: impl IntoIterator<Item = BlockIdentity>) -> ArchiveProgress {
        ArchiveProgress {
            archived: Mutex::new(archived.into_iter().collect()),
            ..ArchiveProgress::default()
        }
    }

    /// Records that a block is archived.
    pub fn mark(&self, block: BlockIdentity) {
        self.archived.lock().insert(block);
    }

    pub fn contains(&self, block: BlockIdentity) -> bool {
        self.archived.lock().contains(&block)
    }

    /// Forgets archived blocks that no longer exist. Returns the others, sorted.
    pub fn retain(&self, existing: &HashSet<BlockIdentity>) -> Vec<BlockIdentity> {
        let mut archived = self.archived.lock();
        archived.retain(|block| existing.contains(block));
        let mut archived: Vec<BlockIdentity> = archived.iter().copied().collect();
        archived.sort_unstable();
        archived
    }

    /// Returns the number of samples and blocks that were dropped before they were archived.
    pub fn lost(&self) -> (u64, u64) {
        (
            self.lost_samples.load(Ordering::Relaxed),
            self.lost_blocks.load(Ordering::Relaxed),
        )
    }

    pub(crate) fn count_lost(&self, samples: u64) {
        self.lost_samples.fetch_add(samples, Ordering::Relaxed);
        self.lost_blocks.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns whether a block has samples that are not archived yet.
    pub(crate) fn awaits(&self, block: &Block) -> bool {
        block.min != Millis::MIN && !self.contains(block.identity())
    }
}
