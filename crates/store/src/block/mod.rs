//! Blocks: immutable files of runs, each with its own index. Maintenance writes them from frozen
//! heads and merges them; queries read them. A block is either complete and durable under its name
//! or does not exist.
//!
//! ```text
//! blocks/NNNNNNNNNN.blk
//!
//! header     "PEGELBLK" · version u32 · kind u8 (1 fresh, 2 sealed, 3 late) · class u8 (`InputClass`) · 0 u16 ·
//!            crc u32 of the 16 bytes before
//! runs       each: time column, then its value columns (codec module), without gaps
//! index      LZ4 (`lz4_block.rs`) of: groups · series · runs
//!   groups   count · names
//!   series   count · series (`series_codec.rs`), sorted by text
//!   runs     count · each: group + 1 or 0 · min time · max − min · rows · times length · times crc u32 ·
//!            column count · (series · length · crc u32)…
//! replaces   ids (u64) of the blocks whose samples are all in here
//! footer     index offset u64 · index length u32 · index crc u32 · min time i64 · max time i64 ·
//!            log through u64 · sealed until i64 · replaces count u32 · crc u32 · "PGLE"
//! ```
//!
//! Lengths, counts and positions inside the index are varints. The footer's crc covers the replaces
//! list and the footer before it. A block is written to `NAME.tmp`, synced, renamed, and the
//! directory synced. A block holds the samples of one class of inputs; class 0 marks blocks written
//! before classes existed. `log through` is the last log segment that the block replaces (0: none):
//! of the blocks written from one head only the last one names it. Samples whose index would become
//! too large for one block are split over several (`split_writer.rs`), of which only the last one
//! names the log and the blocks that all of them replace. Of two samples of one series and
//! time, the one in the block with the higher id wins; within one block, the one in the later run.

mod index;
mod reader;
mod split_writer;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pegel_metric::Millis;

use crate::archive_progress::BlockIdentity;
use crate::files::Files;
use crate::input_class::InputClass;

pub(crate) use index::{BlockIndex, ColumnEntry, IndexCache, RunEntry};
pub(crate) use reader::{BlockReadError, BlockReader, ReadAhead, block_version, open_block};
pub use split_writer::BlockLimits;
pub(crate) use split_writer::SplitBlockWriter;
pub(crate) use writer::FooterFields;

const MAGIC: &[u8; 8] = b"PEGELBLK";
const HEADER_LEN: usize = 20;
const FOOTER_LEN: usize = 60;
const FOOTER_MAGIC: &[u8; 4] = b"PGLE";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockKind {
    /// The samples of a head, encoded quickly; merged into a sealed block later.
    Fresh = 1,
    /// One UTC hour, merged and encoded compactly.
    Sealed = 2,
    /// Samples that arrived after their hour was sealed.
    Late = 3,
}

impl BlockKind {
    fn from_code(code: u32) -> Option<BlockKind> {
        [BlockKind::Fresh, BlockKind::Sealed, BlockKind::Late]
            .into_iter()
            .find(|kind| *kind as u32 == code)
    }
}

/// A block on disk. A block can be read as long as a reference to it exists: the file of a dropped
/// block is removed with the last reference.
#[derive(Debug)]
pub(crate) struct Block {
    pub id: u64,
    pub kind: BlockKind,
    pub class: InputClass,
    pub path: PathBuf,
    pub min: Millis,
    pub max: Millis,
    pub bytes: u64,
    pub log_through: u64,
    pub sealed_until: Millis,
    pub replaces: Vec<u64>,
    index_at: u64,
    index_len: u32,
    index_crc: u32,
    files: Arc<dyn Files>,
    deletes_on_drop: AtomicBool,
    /// Parts of the block are unreadable, so it is set aside rather than removed after a merge.
    is_marked_damaged: AtomicBool,
}

impl Block {
    pub(crate) fn identity(&self) -> BlockIdentity {
        BlockIdentity {
            id: self.id,
            checksum: self.index_crc,
        }
    }

    /// Removes the file when the last reference is dropped.
    pub(crate) fn delete_on_drop(&self) {
        self.deletes_on_drop.store(true, Ordering::Relaxed);
    }

    /// Marks the block as damaged. Returns whether it was not marked before.
    pub(crate) fn mark_damaged(&self) -> bool {
        !self.is_marked_damaged.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn is_damaged(&self) -> bool {
        self.is_marked_damaged.load(Ordering::Relaxed)
    }

    pub(crate) fn overlaps(&self, start: Millis, end: Millis) -> bool {
        self.min <= end && start <= self.max
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if self.deletes_on_drop.load(Ordering::Relaxed)
            && let Err(error) = self.files.remove(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove a block");
        }
    }
}

pub(crate) fn block_path(dir: &Path, id: u64) -> PathBuf {
    dir.join(format!("{id:010}.blk"))
}

/// Returns the id in a block's file name.
pub(crate) fn block_id(name: &str) -> Option<u64> {
    name.strip_suffix(".blk")?.parse().ok()
}
