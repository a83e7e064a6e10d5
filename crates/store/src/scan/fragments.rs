//! Collects the fragments of each matching series and reads them. A fragment is a stretch of samples of one series in
//! one place: a column of a run in memory or in a block, or points copied from an open tail. The fragments of a series
//! are sorted by precedence, lowest first. Of a block's index only the entries of wanted columns are kept; memory, open
//! files and time are bounded.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use pegel_metric::{Millis, Series};

use crate::block::{Block, BlockReadError, BlockReader, ColumnEntry, ReadAhead, RunEntry};
use crate::codec::DecodeError;
use crate::context::StoreContext;
use crate::head::sort_keep_last;
use crate::range_query::{QueryError, RangeQuery, TimeLimit};
use crate::sample_run::{DecodedColumn, SampleRun, decode_column};

use super::head_search::{self, MemorySamples};
use super::points_builder::{PointsBuilder, StepBoundaries};

/// Decoded time columns are cached for the series that share them, up to this many rows.
const TIMES_ROWS_MAX: usize = 256 << 10;
/// Reading ahead pays when a query needs several series of a run; it is skipped where it would use too much memory.
const AHEAD_SERIES_MIN: usize = 8;
const AHEAD_RUNS_MAX: usize = 128;
/// The memory of a column in the retained part of an index, including the run, of which it may be the only column.
const LOCATION_BYTES: usize = size_of::<ColumnEntry>() + size_of::<RunEntry>();

#[derive(Debug)]
pub(crate) struct SeriesFragments {
    /// The fragments of each series, in order of precedence, lowest first.
    pub series: HashMap<Arc<Series>, Vec<SampleFragment>>,
    pub reader: FragmentReader,
}

#[derive(Debug)]
pub(crate) struct SampleFragment {
    min: Millis,
    max: Millis,
    /// Its position among the fragments of its series: of equal times the highest wins.
    rank: usize,
    location: FragmentLocation,
}

#[derive(Debug)]
enum FragmentLocation {
    /// Copied from an open tail.
    Points(Vec<(Millis, f64)>),
    Memory {
        run: Arc<SampleRun>,
        column: usize,
    },
    Block {
        block: usize,
        run: u32,
        column: u32,
    },
}

#[derive(Debug, Default)]
pub(crate) struct FragmentReader {
    blocks: Vec<BlockReader>,
    /// Blocks with open files, the longest open first.
    open: VecDeque<usize>,
    open_max: usize,
    times: HashMap<(usize, u32), Arc<TimeColumn>>,
    times_rows: usize,
    reads_ahead: bool,
    ahead: HashMap<(usize, u32), ReadAhead>,
    samples: DecodedColumn,
}

#[derive(Debug)]
struct TimeColumn {
    times: Vec<Millis>,
    boundaries: StepBoundaries,
}

pub(crate) fn gather_fragments(
    shared: &StoreContext,
    question: &RangeQuery,
    limit: &mut TimeLimit,
) -> Result<SeriesFragments, QueryError> {
    let mut budget = QueryBudget {
        left: question.bytes_max,
        max: question.bytes_max,
    };
    let in_memory = gather_memory(shared, question, limit, &mut budget)?;
    // Blocks are searched after memory, so that samples that moved to a block meanwhile are found twice rather than not
    // at all.
    let blocks: Vec<_> = {
        let state = shared.read();
        let overlapping = |block: &&Arc<Block>| block.overlaps(question.start, question.end);
        state.blocks.iter().filter(overlapping).cloned().collect()
    };
    let mut pieces = SeriesFragments {
        series: HashMap::new(),
        reader: FragmentReader {
            open_max: shared.options.block_files_max,
            ..FragmentReader::default()
        },
    };
    for block in blocks {
        limit.check_now()?;
        match BlockReader::open(&block, &shared.indexes) {
            Ok(reader) => gather_block(reader, question, limit, &mut pieces, &mut budget)?,
            Err(BlockReadError::Io(source)) => {
                return Err(QueryError::Read {
                    path: block.path.clone(),
                    source,
                });
            }
            Err(error) => {
                if block.mark_damaged() {
                    tracing::error!(path = %block.path.display(), %error, "cannot read a block; leaving it out");
                }
            }
        }
    }
    for (series, piece) in in_memory {
        limit.spend(TimeLimit::STEP)?;
        pieces.series.entry(series).or_default().push(piece);
    }
    pieces.reader.reads_ahead = pieces.series.len() >= AHEAD_SERIES_MIN;
    Ok(pieces)
}

struct QueryBudget {
    left: usize,
    max: usize,
}

impl QueryBudget {
    fn take(&mut self, bytes: usize) -> Result<(), QueryError> {
        self.left = self
            .left
            .checked_sub(bytes)
            .ok_or(QueryError::TooLarge(self.max))?;
        Ok(())
    }
}

fn gather_memory(
    shared: &StoreContext,
    question: &RangeQuery,
    limit: &mut TimeLimit,
    budget: &mut QueryBudget,
) -> Result<Vec<(Arc<Series>, SampleFragment)>, QueryError> {
    let mut pieces = Vec::new();
    head_search::find_in_memory(shared, question, usize::MAX, limit, &mut |series, found| {
        let (min, max, copied, place) = match found {
            MemorySamples::Run { run, column } => {
                let run = run.clone();
                (
                    run.min,
                    run.max,
                    0,
                    FragmentLocation::Memory { run, column },
                )
            }
            MemorySamples::Points(points) => {
                let ends = points.first().zip(points.last());
                let Some((&(min, _), &(max, _))) = ends else {
                    return Ok(());
                };
                (
                    min,
                    max,
                    size_of_val(&points[..]),
                    FragmentLocation::Points(points),
                )
            }
        };
        budget.take(size_of::<SampleFragment>() + 8 + copied)?;
        let piece = SampleFragment {
            min,
            max,
            rank: 0,
            location: place,
        };
        pieces.push((series.clone(), piece));
        Ok(())
    })?;
    Ok(pieces)
}

/// Adds the fragments of a block that match the query. Of its index only the entries needed to read them are kept.
fn gather_block(
    mut reader: BlockReader,
    question: &RangeQuery,
    limit: &mut TimeLimit,
    pieces: &mut SeriesFragments,
    budget: &mut QueryBudget,
) -> Result<(), QueryError> {
    let index = reader.index.clone();
    let mut places: Vec<(u32, u32)> = Vec::new();
    let mut found: Vec<(&Arc<Series>, Range<usize>)> = Vec::new();
    for at in index.candidates(&question.selector).into_iter().flatten() {
        let series = &index.series[at];
        limit.spend_on(series)?;
        if !question.selector.matches(series) {
            continue;
        }
        let first = places.len();
        places.extend(index.locations_of(at as u32).iter().filter(|&&(run, _)| {
            let entry = &index.runs[run as usize];
            entry.min <= question.end && question.start <= entry.max
        }));
        let count = places.len() - first;
        if count > 0 {
            budget.take(count * (size_of::<SampleFragment>() + LOCATION_BYTES) + 8)?;
            limit.spend(count * TimeLimit::STEP)?;
            found.push((series, first..places.len()));
        }
    }
    if found.is_empty() {
        return Ok(());
    }
    let (subset, places) = index.subset(&places);
    let block = pieces.reader.blocks.len();
    for (series, range) in found {
        let places = places[range].iter().map(|&(run, column)| {
            let entry = &subset.runs[run as usize];
            SampleFragment {
                min: entry.min,
                max: entry.max,
                rank: 0,
                location: FragmentLocation::Block { block, run, column },
            }
        });
        match pieces.series.get_mut(series) {
            Some(known) => known.extend(places),
            None => drop(pieces.series.insert(series.clone(), places.collect())),
        }
    }
    reader.index = Arc::new(subset);
    pieces.reader.blocks.push(reader);
    pieces.reader.track_open_file(block);
    Ok(())
}

impl FragmentReader {
    /// Discards cached time columns, whose step boundaries are for another range.
    pub fn forget_times(&mut self) {
        self.times.clear();
        self.times_rows = 0;
    }

    /// Records an open file, and closes another one if there are too many.
    fn track_open_file(&mut self, block: usize) {
        self.open.push_back(block);
        if self.open.len() > self.open_max
            && let Some(first) = self.open.pop_front()
        {
            self.blocks[first].close();
        }
    }

    /// Adds the samples of one series to the result, in the order of their times.
    pub fn read_series(
        &mut self,
        pieces: &mut [SampleFragment],
        question: &RangeQuery,
        limit: &mut TimeLimit,
        bytes_max: usize,
        answer: &mut PointsBuilder,
    ) -> Result<(), QueryError> {
        pieces
            .iter_mut()
            .enumerate()
            .for_each(|(rank, piece)| piece.rank = rank);
        pieces.sort_unstable_by_key(|piece| piece.min);
        let mut rest = &*pieces;
        while let Some(first) = rest.first() {
            // Fragments with overlapping times are merged first.
            let mut max = first.max;
            let mut count = 1;
            while let Some(next) = rest.get(count).filter(|next| next.min <= max) {
                max = max.max(next.max);
                count += 1;
            }
            if count == 1 {
                limit.check_now()?;
                self.read_fragment(first, answer)?;
            } else {
                self.read_interleaved(&rest[..count], question, limit, bytes_max, answer)?;
            }
            if answer.bytes() > bytes_max {
                return Err(QueryError::TooLarge(question.bytes_max));
            }
            rest = &rest[count..];
        }
        Ok(())
    }

    fn read_fragment(
        &mut self,
        piece: &SampleFragment,
        answer: &mut PointsBuilder,
    ) -> Result<(), QueryError> {
        if let FragmentLocation::Points(points) = &piece.location {
            answer.add_samples(points.iter().copied());
            return Ok(());
        }
        let Some(times) = self.read(piece, answer)? else {
            return Ok(());
        };
        match &self.samples.present {
            None => answer.add_column(&times.times, &self.samples.values, &times.boundaries),
            Some(_) => answer.add_samples(self.present_samples(&times.times)),
        }
        Ok(())
    }

    fn read_interleaved(
        &mut self,
        pieces: &[SampleFragment],
        question: &RangeQuery,
        limit: &mut TimeLimit,
        bytes_max: usize,
        answer: &mut PointsBuilder,
    ) -> Result<(), QueryError> {
        let mut points: Vec<(Millis, f64)> = Vec::new();
        let mut pieces: Vec<&SampleFragment> = pieces.iter().collect();
        pieces.sort_unstable_by_key(|piece| piece.rank);
        for piece in pieces {
            limit.check_now()?;
            match &piece.location {
                FragmentLocation::Points(copied) => points.extend_from_slice(copied),
                _ => {
                    if let Some(times) = self.read(piece, answer)? {
                        let cut = times.boundaries.rows.clone();
                        let (from, to) = (
                            times.times.get(cut.start),
                            times.times.get(cut.end.wrapping_sub(1)),
                        );
                        if let (Some(&from), Some(&to)) = (from, to) {
                            points.extend(
                                self.present_samples(&times.times)
                                    .filter(|(time, _)| from <= *time && *time <= to),
                            );
                        }
                    }
                }
            }
            if size_of_val(&points[..]) > bytes_max {
                return Err(QueryError::TooLarge(question.bytes_max));
            }
        }
        sort_keep_last(&mut points);
        answer.add_samples(points.into_iter());
        Ok(())
    }

    fn present_samples<'a>(
        &'a self,
        times: &'a [Millis],
    ) -> impl Iterator<Item = (Millis, f64)> + 'a {
        self.samples
            .rows(times.len())
            .map(|row| times[row])
            .zip(self.samples.values.iter().copied())
    }

    /// Decodes a fragment into `self.samples` and returns its times; `None` if it is damaged.
    fn read(
        &mut self,
        piece: &SampleFragment,
        answer: &PointsBuilder,
    ) -> Result<Option<Arc<TimeColumn>>, QueryError> {
        let (key, result) = match &piece.location {
            FragmentLocation::Points(_) => return Ok(None),
            FragmentLocation::Memory { run, column } => {
                let bytes = run.column_bytes(&run.columns[*column]);
                let decoded =
                    decode_column(bytes, run.rows, &mut self.samples).map_err(BlockReadError::from);
                ((Arc::as_ptr(run) as usize, u32::MAX), decoded)
            }
            FragmentLocation::Block { block, run, column } => {
                if !self.blocks[*block].is_open() {
                    self.track_open_file(*block);
                }
                let key = (*block, *run);
                let is_room = self.ahead.len() < AHEAD_RUNS_MAX || self.ahead.contains_key(&key);
                let ahead =
                    (self.reads_ahead && is_room).then(|| self.ahead.entry(key).or_default());
                let read = self.blocks[*block].samples(*run, *column, ahead, &mut self.samples);
                (key, read)
            }
        };
        let times = result.and_then(|()| match self.times.get(&key) {
            Some(times) => Ok(times.clone()),
            None => {
                let times = match &piece.location {
                    FragmentLocation::Block { block, run, .. } => {
                        self.blocks[*block].times(*run)?
                    }
                    FragmentLocation::Memory { run, .. } => run.decode_times()?,
                    FragmentLocation::Points(_) => {
                        return Err(DecodeError("points have no time column").into());
                    }
                };
                let cuts = answer.step_boundaries(&times);
                self.times_rows += times.len();
                if self.times_rows > TIMES_ROWS_MAX {
                    self.times.clear();
                    self.times_rows = times.len();
                }
                let times = Arc::new(TimeColumn {
                    times,
                    boundaries: cuts,
                });
                self.times.insert(key, times.clone());
                Ok(times)
            }
        });
        match (times, &piece.location) {
            (Ok(times), _) => Ok(Some(times)),
            (Err(error), FragmentLocation::Block { block, .. }) => {
                let block = &self.blocks[*block].block;
                if let BlockReadError::Io(source) = error {
                    return Err(QueryError::Read {
                        path: block.path.clone(),
                        source,
                    });
                }
                if block.mark_damaged() {
                    tracing::error!(path = %block.path.display(), %error, "cannot read part of a block; leaving it out");
                }
                Ok(None)
            }
            // Runs encoded by this process always decode; if one does not, the rest is still returned.
            (Err(error), _) => {
                tracing::error!(%error, "internal error: cannot decode a run in memory");
                Ok(None)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use pegel_metric::{Family, Input, MetricKind, Point, Selector};

    use super::*;
    use crate::{Store, StoreOptions};

    /// The names of all series of many blocks use far more memory than the samples of a few of them.
    #[test]
    fn a_query_keeps_only_the_columns_that_it_wants() {
        static FAMILY: Family = Family::new("", MetricKind::Gauge, "", 1, "");
        let dir = std::env::temp_dir().join(format!("pegel-pieces-{}", std::process::id()));
        let store = Store::open(StoreOptions::new(&dir)).expect("opens");
        let now = store.shared().now();
        let family = Arc::new(FAMILY.clone());
        for round in 0..3 {
            let points = (0..100).map(|number| {
                let name = format!("series_{number:03}");
                let series = Series::named(family.clone(), &name, &[]).expect("valid");
                Point {
                    series: Arc::new(series),
                    time: now - round,
                    value: number as f64,
                }
            });
            store.push(Input::Put, points.collect()).expect("stored");
            store.flush_to_blocks();
        }
        let gathered = |pattern: &str| {
            let selector = Selector::parse(pattern).expect("valid");
            let question = RangeQuery::new(selector, now - 1000, now, None);
            let mut limit = TimeLimit::new(None);
            gather_fragments(store.shared(), &question, &mut limit).expect("gathered")
        };
        let some = gathered("series_01*");
        assert_eq!((some.series.len(), some.reader.blocks.len()), (10, 3));
        for reader in &some.reader.blocks {
            let index = &reader.index;
            assert_eq!((index.series.len(), index.columns.len()), (0, 10));
        }
        assert!(gathered("other").reader.blocks.is_empty());
        store.close();
        std::fs::remove_dir_all(&dir).expect("removed");
    }
}
