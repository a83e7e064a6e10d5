//! Writes runs to a block, and begins another one before the index of a block becomes larger than
//! readers should decode at once. Used by maintenance only.
//!
//! Runs keep their order: what takes precedence within one block is in a later one after a split. A
//! run that is too wide is split between its columns. The parts are complete blocks; only the last
//! one gets the footer that names the log and the blocks that all parts replace, so that after a
//! crash in between these are still there.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::files::Files;
use crate::input_class::InputClass;
use crate::lz4_block::RAW_LEN_MAX;
use crate::sample_run::SampleRun;

use super::writer::BlockWriter;
use super::{Block, BlockKind, FooterFields};

/// The sizes at which maintenance splits what it writes.
#[derive(Debug, Clone, Copy)]
pub struct BlockLimits {
    /// The most bytes of the index of a block, before compression.
    pub index_bytes: usize,
    /// The size from which on further columns of a run are written as another run.
    pub run_bytes: usize,
}

impl Default for BlockLimits {
    fn default() -> BlockLimits {
        BlockLimits {
            // Readers accept more, which older versions wrote. A single column always fits.
            index_bytes: RAW_LEN_MAX / 4,
            // Positions within a run have 32 bits, and a run is read as a whole.
            run_bytes: 64 << 20,
        }
    }
}

/// Writes one block or several consecutive ones.
#[derive(Debug)]
pub(crate) struct SplitBlockWriter {
    files: Arc<dyn Files>,
    dir: PathBuf,
    kind: BlockKind,
    class: InputClass,
    limits: BlockLimits,
    /// The id of the block that is being written.
    id: u64,
    writer: BlockWriter,
    /// The complete parts.
    made: Vec<Block>,
}

impl SplitBlockWriter {
    /// Begins the first block. The ids that follow `first_id` must be free.
    pub(crate) fn create(
        files: &Arc<dyn Files>,
        dir: &Path,
        first_id: u64,
        (kind, class): (BlockKind, InputClass),
        limits: BlockLimits,
    ) -> io::Result<SplitBlockWriter> {
        Ok(SplitBlockWriter {
            files: files.clone(),
            dir: dir.to_owned(),
            kind,
            class,
            limits,
            id: first_id,
            writer: BlockWriter::create(files, dir, first_id, kind, class)?,
            made: Vec::new(),
        })
    }

    pub(crate) fn limits(&self) -> BlockLimits {
        self.limits
    }

    /// Adds a run; to the next block if it does not fit into this one.
    pub(crate) fn add(&mut self, run: &SampleRun) -> io::Result<()> {
        let mut columns = &run.columns[..];
        while !columns.is_empty() {
            let index_bytes_max = self.limits.index_bytes;
            let fitting = self.writer.columns_that_fit(run, columns, index_bytes_max);
            if fitting < columns.len() && !self.writer.is_empty() {
                self.begin_next()?;
                continue;
            }
            let (now, later) = columns.split_at(fitting.max(1));
            self.writer.add(run, now)?;
            columns = later;
        }
        Ok(())
    }

    /// Completes the current block and begins the next one.
    fn begin_next(&mut self) -> io::Result<()> {
        let (id, kind, class) = (self.id + 1, self.kind, self.class);
        let next = BlockWriter::create(&self.files, &self.dir, id, kind, class)?;
        let full = std::mem::replace(&mut self.writer, next);
        self.id = id;
        self.made.push(full.finish(FooterFields::default())?);
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.made.is_empty() && self.writer.is_empty()
    }

    /// Removes the complete parts and the incomplete file.
    pub(crate) fn discard(self) {
        self.made.iter().for_each(Block::delete_on_drop);
        self.writer.discard();
    }

    /// Completes the last block, with this footer. When this returns, all parts survive a power
    /// failure.
    pub(crate) fn finish(self, ending: FooterFields) -> io::Result<Vec<Block>> {
        let mut made = self.made;
        match self.writer.finish(ending) {
            Ok(last) => made.push(last),
            Err(error) => {
                made.iter().for_each(Block::delete_on_drop);
                return Err(error);
            }
        }
        Ok(made)
    }
}
