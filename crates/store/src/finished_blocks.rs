//! Reads blocks that no longer change: sealed hours and late samples. The archive copies each of
//! them once.
//!
//! A late block may repeat samples that an earlier block holds: a sender that retries, or a log
//! that was replayed after a crash, writes them again. Repetitions of the same value are left out;
//! another value for the same time is a correction, and is visited. Hidden samples are left out.
//! No lock is held while a block is read, and a block can be read until its last handle is
//! dropped.

use std::collections::HashMap;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use pegel_metric::{Millis, Series};

use crate::archive_progress::BlockIdentity;
use crate::block::{Block, BlockKind, BlockReadError, BlockReader};
use crate::context::StoreContext;
use crate::head::sort_keep_last;
use crate::hidden_ranges;
use crate::input_class::InputClass;
use crate::range_query::QueryError;
use crate::sample_run::DecodedColumn;

/// The most rows of decoded time columns that are kept for the series that share them.
const TIMES_ROWS_MAX: usize = 256 << 10;

/// A block that no longer changes.
#[derive(Debug, Clone)]
pub struct FinishedBlock {
    block: Arc<Block>,
    /// Earlier finished blocks with samples of the same class and time, oldest first.
    earlier: Vec<Arc<Block>>,
}

/// The samples that a visit left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SkippedSamples {
    /// Samples that an earlier block holds with the same value.
    pub repeated: u64,
    /// Columns that cannot be read.
    pub damaged_columns: u64,
}

/// Receives the samples of a block series by series, sorted by time, until it breaks.
pub type FinishedVisitor<'a> = dyn FnMut(&Arc<Series>, &[(Millis, f64)]) -> ControlFlow<()> + 'a;

impl FinishedBlock {
    pub fn identity(&self) -> BlockIdentity {
        self.block.identity()
    }

    /// Returns the name of the class of inputs.
    pub fn class(&self) -> &'static str {
        self.block.class.as_str()
    }

    /// Returns the times of the oldest and the newest sample.
    pub fn span(&self) -> (Millis, Millis) {
        (self.block.min, self.block.max)
    }
}

/// Returns the finished blocks that have samples, in the order in which they were written.
pub(crate) fn finished_blocks(shared: &StoreContext) -> Vec<FinishedBlock> {
    let blocks = shared.read().blocks.clone();
    let finished: Vec<Arc<Block>> = blocks
        .into_iter()
        .filter(|block| block.kind != BlockKind::Fresh && block.min != Millis::MIN)
        .collect();
    let earlier = |block: &Block| {
        let is_related = |other: &&Arc<Block>| {
            let has_class = other.class == block.class
                || other.class == InputClass::Mixed
                || block.class == InputClass::Mixed;
            other.id < block.id && has_class && other.overlaps(block.min, block.max)
        };
        finished.iter().filter(is_related).cloned().collect()
    };
    let all = finished.iter().map(|block| FinishedBlock {
        block: block.clone(),
        earlier: earlier(block),
    });
    all.collect()
}

/// Visits the samples of a block in a range of time, series by series, sorted by text. Ends early
/// if the visitor breaks.
pub(crate) fn visit_finished(
    shared: &StoreContext,
    finished: &FinishedBlock,
    window: Range<Millis>,
    visit: &mut FinishedVisitor<'_>,
) -> Result<SkippedSamples, QueryError> {
    let mut skipped = SkippedSamples::default();
    let Some(mut reader) = PointReader::open(shared, &finished.block)? else {
        return Ok(SkippedSamples {
            damaged_columns: 1,
            ..skipped
        });
    };
    let repeated = find_repeated(shared, finished, &window, &mut reader)?;
    let hidden = shared.hidden_ranges.ranges();
    let index = reader.reader.index.clone();
    for (number, series) in (0u32..).zip(&index.series) {
        let shown_from = hidden_ranges::hidden_before(&hidden, series.family().input);
        let mut points = reader.points(number)?;
        let flags = repeated.get(&number);
        let mut at = 0;
        points.retain(|(time, _)| {
            let is_repeated = flags.is_some_and(|flags| flags[at]);
            at += 1;
            let is_wanted =
                window.contains(time) && shown_from.is_none_or(|shown_from| *time >= shown_from);
            skipped.repeated += u64::from(is_wanted && is_repeated);
            is_wanted && !is_repeated
        });
        if !points.is_empty() && visit(series, &points).is_break() {
            break;
        }
    }
    skipped.damaged_columns = reader.damaged_columns;
    Ok(skipped)
}

/// Counts the samples of a block that can be read.
pub(crate) fn count_samples(shared: &StoreContext, block: &Arc<Block>) -> u64 {
    let Ok(Some(mut reader)) = PointReader::open(shared, block) else {
        return 0;
    };
    let series = 0..reader.reader.index.series.len() as u32;
    let counts = series.map(|number| reader.points(number).map_or(0, |points| points.len()));
    counts.sum::<usize>() as u64
}

/// For each series with repeated samples, whether each of its samples is one.
type RepeatedSamples = HashMap<u32, Vec<bool>>;

/// Compares the samples of a block in a range of time with those of earlier blocks. A sample is
/// compared with that of the last earlier block that has one at the same time.
fn find_repeated(
    shared: &StoreContext,
    finished: &FinishedBlock,
    window: &Range<Millis>,
    reader: &mut PointReader,
) -> Result<RepeatedSamples, QueryError> {
    let mut repeated = RepeatedSamples::new();
    let last = window.end.saturating_sub(1);
    let overlapping =
        { finished.earlier.iter() }.filter(|block| block.overlaps(window.start, last));
    for block in overlapping {
        let Some(mut earlier) = PointReader::open(shared, block)? else {
            continue;
        };
        let index = reader.reader.index.clone();
        for (number, series) in (0u32..).zip(&index.series) {
            let Some(known) = earlier.reader.index.number_of(series) else {
                continue;
            };
            let (points, known) = (reader.points(number)?, earlier.points(known)?);
            let flags = repeated
                .entry(number)
                .or_insert_with(|| vec![false; points.len()]);
            for ((time, value), flag) in points.iter().zip(flags) {
                if let Ok(at) = known.binary_search_by_key(time, |(time, _)| *time) {
                    *flag = known[at].1.to_bits() == value.to_bits();
                }
            }
        }
    }
    Ok(repeated)
}

/// Reads the samples of single series.
struct PointReader {
    reader: BlockReader,
    times: HashMap<u32, Arc<Vec<Millis>>>,
    times_rows: usize,
    samples: DecodedColumn,
    damaged_columns: u64,
}

impl PointReader {
    /// Opens a block; `None` if it is damaged.
    fn open(shared: &StoreContext, block: &Arc<Block>) -> Result<Option<PointReader>, QueryError> {
        match BlockReader::open(block, &shared.indexes) {
            Ok(reader) => Ok(Some(PointReader {
                reader,
                times: HashMap::new(),
                times_rows: 0,
                samples: DecodedColumn::default(),
                damaged_columns: 0,
            })),
            Err(BlockReadError::Io(source)) => Err(read_error(block, source)),
            Err(_) => {
                block.mark_damaged();
                Ok(None)
            }
        }
    }

    /// Returns the samples of a series, sorted by time. If several runs have a sample at one time,
    /// that of the last is returned, as in queries.
    fn points(&mut self, series: u32) -> Result<Vec<(Millis, f64)>, QueryError> {
        let index = self.reader.index.clone();
        let mut points = Vec::new();
        for &(run, column) in index.locations_of(series) {
            match self.add_column(run, column, &mut points) {
                Ok(()) => {}
                Err(BlockReadError::Io(source)) => {
                    return Err(read_error(&self.reader.block, source));
                }
                Err(_) => {
                    self.reader.block.mark_damaged();
                    self.damaged_columns += 1;
                }
            }
        }
        sort_keep_last(&mut points);
        Ok(points)
    }

    fn add_column(
        &mut self,
        run: u32,
        column: u32,
        points: &mut Vec<(Millis, f64)>,
    ) -> Result<(), BlockReadError> {
        let times = self.times(run)?;
        self.reader.samples(run, column, None, &mut self.samples)?;
        let rows = self.samples.rows(times.len());
        let samples = rows.zip(&self.samples.values);
        points.extend(samples.map(|(row, value)| (times[row], *value)));
        Ok(())
    }

    fn times(&mut self, run: u32) -> Result<Arc<Vec<Millis>>, BlockReadError> {
        if let Some(times) = self.times.get(&run) {
            return Ok(times.clone());
        }
        let times = Arc::new(self.reader.times(run)?);
        if self.times_rows + times.len() > TIMES_ROWS_MAX {
            self.times.clear();
            self.times_rows = 0;
        }
        self.times_rows += times.len();
        self.times.insert(run, times.clone());
        Ok(times)
    }
}

fn read_error(block: &Block, source: std::io::Error) -> QueryError {
    QueryError::Read {
        path: block.path.clone(),
        source,
    }
}
