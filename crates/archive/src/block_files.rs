//! Writes the files of one block: one or more for each day of which it has samples. The samples of
//! an hour belong to one day, late samples may belong to several. At most one file is in memory.
//! Files that exist are not replaced, so that a block may be written again after a failure.

use std::collections::BTreeSet;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use pegel_metric::{Millis, Series, glob_matches};
use pegel_sample_file::{FinishedFile, SampleFileError, SampleFileFormat, SampleWriter};
use pegel_storage::{CreateOutcome, FilePlace, StorageProblem};
use pegel_store::{FinishedBlock, QueryError, SkippedSamples, Store};

use crate::layout::{Day, block_file};

/// The reason why a block cannot be archived now.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BlockError {
    #[error("{}", .0.text)]
    Storage(StorageProblem),
    #[error(transparent)]
    Read(#[from] QueryError),
    #[error(transparent)]
    Write(#[from] SampleFileError),
    #[error("the agent is stopping")]
    Stopping,
}

/// The result of archiving a block.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct BlockTotals {
    pub files: u64,
    /// Files that existed already: stored by an earlier attempt.
    pub existing_files: u64,
    pub samples: u64,
    pub bytes: u64,
    pub skipped: SkippedSamples,
}

/// Archives one block.
pub(crate) struct BlockFiles<'a> {
    pub store: &'a Store,
    pub node: &'a str,
    /// Patterns of names; empty selects all.
    pub names: &'a [String],
    pub place: &'a mut FilePlace,
    /// Returns whether to stop before the block is complete.
    pub is_stopping: &'a dyn Fn() -> bool,
}

impl BlockFiles<'_> {
    pub(crate) fn write(&mut self, block: &FinishedBlock) -> Result<BlockTotals, BlockError> {
        let mut totals = BlockTotals::default();
        for day in self.days(block)? {
            self.write_day(block, day, &mut totals)?;
        }
        Ok(totals)
    }

    /// Returns the days of which the block has samples.
    fn days(&self, block: &FinishedBlock) -> Result<BTreeSet<Day>, BlockError> {
        let (first, last) = block.span();
        let mut days = BTreeSet::from([Day::of(first), Day::of(last)]);
        if Day::of(first).next() < Day::of(last) {
            let all: Range<Millis> = Millis::MIN..Millis::MAX;
            self.store.visit_finished(block, all, &mut |_, points| {
                days.extend(points.iter().map(|(time, _)| Day::of(*time)));
                ControlFlow::Continue(())
            })?;
        }
        Ok(days)
    }

    fn write_day(
        &mut self,
        block: &FinishedBlock,
        day: Day,
        totals: &mut BlockTotals,
    ) -> Result<(), BlockError> {
        let store = self.store;
        let mut files = DayFiles {
            block,
            day,
            part: 0,
            writer: SampleWriter::new(SampleFileFormat::Parquet, self.node)?,
            target: self,
            totals,
        };
        let mut failure = None;
        let skipped =
            store.visit_finished(block, day.window(), &mut |series, points| match files
                .add(series, points)
            {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    failure = Some(error);
                    ControlFlow::Break(())
                }
            })?;
        if let Some(error) = failure {
            return Err(error);
        }
        files.store_file()?;
        totals.skipped.repeated += skipped.repeated;
        totals.skipped.damaged_columns += skipped.damaged_columns;
        Ok(())
    }

    fn selects(&self, series: &Series) -> bool {
        let mut names = self.names.iter();
        self.names.is_empty() || names.any(|pattern| glob_matches(pattern, series.name()))
    }
}

/// The files of one block and day.
struct DayFiles<'a, 'b> {
    block: &'a FinishedBlock,
    day: Day,
    part: u32,
    writer: SampleWriter,
    target: &'a mut BlockFiles<'b>,
    totals: &'a mut BlockTotals,
}

impl DayFiles<'_, '_> {
    fn add(&mut self, series: &Arc<Series>, points: &[(Millis, f64)]) -> Result<(), BlockError> {
        if (self.target.is_stopping)() {
            return Err(BlockError::Stopping);
        }
        if !self.target.selects(series) {
            return Ok(());
        }
        self.writer.add(series, points)?;
        if self.writer.is_full() {
            self.store_file()?;
        }
        Ok(())
    }

    fn store_file(&mut self) -> Result<(), BlockError> {
        if self.writer.is_empty() {
            return Ok(());
        }
        let next = SampleWriter::new(SampleFileFormat::Parquet, self.target.node)?;
        let file: FinishedFile = std::mem::replace(&mut self.writer, next).finish()?;
        let (class, block) = (self.block.class(), self.block.identity());
        let node = self.target.node;
        let name = block_file(self.day, node, class, block, self.part, file.digest);
        let created = self.target.place.create(&name, &file.bytes);
        match created.map_err(BlockError::Storage)? {
            CreateOutcome::Created => self.totals.files += 1,
            CreateOutcome::Exists => self.totals.existing_files += 1,
        }
        self.totals.samples += file.samples;
        self.totals.bytes += file.bytes.len() as u64;
        self.part += 1;
        Ok(())
    }
}
