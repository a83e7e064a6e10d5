//! Collects the fragments of each matching series and reads them. A fragment is a stretch of
//! samples of one series in one place: a column of a run in memory or in a block, or points copied
//! from an open tail. The fragments of a series are sorted by precedence, lowest first. Of a
//! block's index only the entries of wanted columns are kept; memory, open files and time are
//! bounded.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use pegel_metric::{Millis, STALE_NAN, Series, is_stale};

use crate::block::{BlockReadError, BlockReader, ColumnEntry, ReadAhead, RunEntry};
use crate::codec::DecodeError;
use crate::context::StoreContext;
use crate::head::sort_keep_last;
use crate::range_query::{QueryError, RangeQuery, TimeLimit};
use crate::sample_run::{DecodedColumn, SampleRun, bit, decode_column};

use super::group_runs::GroupRuns;
use super::head_search::{self, MemorySamples};
use super::sample_builder::{SampleBuilder, TimeColumn};

/// Decoded time columns are cached for the series that share them, up to this many rows.
const TIMES_ROWS_MAX: usize = 256 << 10;
/// Reading ahead pays when a query needs several series of a run; it is skipped where it would use
/// too much memory.
const AHEAD_SERIES_MIN: usize = 8;
const AHEAD_RUNS_MAX: usize = 128;
/// The work of decoding a fragment: the clock is read for every fourth.
const FRAGMENT_WORK: usize = TimeLimit::CHECK_EVERY / 4;
/// The memory for reading whole runs ahead.
const AHEAD_BYTES_MAX: usize = 4 << 20;
/// The memory of a column in the retained part of an index, including the run, of which it may be
/// the only column.
const LOCATION_BYTES: usize = size_of::<ColumnEntry>() + size_of::<RunEntry>();

/// The fragments of all matching series, and the reader that decodes them.
#[derive(Debug)]
pub(crate) struct SeriesFragments {
    pub series: FoundSeries,
    pub reader: FragmentReader,
    /// Only filled for queries that complete ticks.
    pub groups: GroupRuns,
}

/// A series with its fragments in order of precedence, lowest first.
pub(crate) type SeriesWithFragments = (Arc<Series>, Vec<SampleFragment>);

/// The matching series.
#[derive(Debug, Default)]
pub(crate) struct FoundSeries {
    list: Vec<SeriesWithFragments>,
    places: HashMap<Arc<Series>, usize>,
}

impl FoundSeries {
    fn fragments_of(&mut self, series: &Arc<Series>) -> &mut Vec<SampleFragment> {
        let place = match self.places.get(series) {
            Some(place) => *place,
            None => {
                let place = self.list.len();
                self.places.insert(series.clone(), place);
                self.list.push((series.clone(), Vec::new()));
                place
            }
        };
        &mut self.list[place].1
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns the series sorted by text. Those of a block are found in that order, so that there
    /// is often little to sort.
    pub(super) fn into_sorted(mut self) -> Vec<SeriesWithFragments> {
        self.list.sort_by(|a, b| a.0.cmp(&b.0));
        self.list
    }
}

/// A stretch of samples of one series in one place.
#[derive(Debug)]
pub(crate) struct SampleFragment {
    min: Millis,
    max: Millis,
    /// Its position among the fragments of its series: of equal times the highest wins.
    rank: usize,
    /// The number of its group in [`GroupRuns`]; `None` without a group, and for queries that do
    /// not complete ticks.
    group: Option<u32>,
    location: FragmentLocation,
}

impl SampleFragment {
    pub(super) fn is_grouped(&self) -> bool {
        self.group.is_some()
    }
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

/// Decodes fragments. Caches time columns, and limits the number of open block files.
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
    /// What is left of [`AHEAD_BYTES_MAX`].
    ahead_bytes_left: usize,
    samples: DecodedColumn,
    /// Whether rows without a series become stale markers.
    marks_absence: bool,
}

/// Collects the fragments of all matching series in memory and in blocks.
pub(crate) fn gather_fragments(
    shared: &StoreContext,
    query: &RangeQuery,
    limit: &mut TimeLimit,
) -> Result<SeriesFragments, QueryError> {
    let mut budget = QueryBudget {
        left: query.bytes_max,
        max: query.bytes_max,
    };
    let mut groups = GroupRuns::default();
    if query.ticks.is_some() {
        // Before the samples: a row that arrives meanwhile must not end series whose sample in it
        // was not seen.
        head_search::visit_group_runs(shared, &mut |group, first| groups.add(group, first));
        budget.take(groups.bytes())?;
    }
    let in_memory = gather_memory(shared, query, limit, &mut budget, &mut groups)?;
    // Blocks are searched after memory, so that samples that moved to a block meanwhile are found
    // twice rather than not at all.
    let blocks = shared.overlapping_blocks(query.start, query.end);
    let mut fragments = SeriesFragments {
        series: FoundSeries::default(),
        reader: FragmentReader {
            open_max: shared.options.block_files_max,
            marks_absence: query.ticks.is_some(),
            ahead_bytes_left: AHEAD_BYTES_MAX,
            ..FragmentReader::default()
        },
        groups,
    };
    for block in blocks {
        limit.check_now()?;
        match BlockReader::open(&block, &shared.indexes) {
            Ok(reader) => gather_block(reader, query, limit, &mut fragments, &mut budget)?,
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
    for (series, fragment) in in_memory {
        limit.spend(TimeLimit::STEP)?;
        fragments.series.fragments_of(&series).push(fragment);
    }
    fragments.reader.reads_ahead = fragments.series.len() >= AHEAD_SERIES_MIN;
    fragments.groups.sort();
    Ok(fragments)
}

/// The memory that a query may still use.
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

/// Collects the fragments in the heads.
fn gather_memory(
    shared: &StoreContext,
    query: &RangeQuery,
    limit: &mut TimeLimit,
    budget: &mut QueryBudget,
    groups: &mut GroupRuns,
) -> Result<Vec<(Arc<Series>, SampleFragment)>, QueryError> {
    let mut fragments = Vec::new();
    head_search::find_in_memory(shared, query, usize::MAX, limit, &mut |series, found| {
        let group = query.ticks.and_then(|_| found.group().cloned());
        let (min, max, copied, location) = match found {
            MemorySamples::Run { run, column } => {
                let run = run.clone();
                (
                    run.min,
                    run.max,
                    0,
                    FragmentLocation::Memory { run, column },
                )
            }
            MemorySamples::Points { points, .. } => {
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
        let fragment = SampleFragment {
            min,
            max,
            rank: 0,
            group: group.map(|group| groups.number(&group)),
            location,
        };
        fragments.push((series.clone(), fragment));
        Ok(())
    })?;
    Ok(fragments)
}

/// Adds the fragments of a block that match the query. Of its index only the entries needed to read
/// them are kept.
fn gather_block(
    mut reader: BlockReader,
    query: &RangeQuery,
    limit: &mut TimeLimit,
    fragments: &mut SeriesFragments,
    budget: &mut QueryBudget,
) -> Result<(), QueryError> {
    let index = reader.index.clone();
    let mut locations: Vec<(u32, u32)> = Vec::new();
    let mut found: Vec<(&Arc<Series>, Range<usize>)> = Vec::new();
    for at in index.candidates(&query.selector).into_iter().flatten() {
        let series = &index.series[at];
        limit.spend_on(series)?;
        if !query.selector.matches(series) {
            continue;
        }
        let first = locations.len();
        locations.extend(index.locations_of(at as u32).iter().filter(|&&(run, _)| {
            let entry = &index.runs[run as usize];
            entry.min <= query.end && query.start <= entry.max
        }));
        let count = locations.len() - first;
        if count > 0 {
            budget.take(count * (size_of::<SampleFragment>() + LOCATION_BYTES) + 8)?;
            limit.spend(count * TimeLimit::STEP)?;
            found.push((series, first..locations.len()));
        }
    }
    if query.ticks.is_some() {
        // Also if no series is found here: the rows of this block end series of other blocks.
        let before = fragments.groups.bytes();
        for run in &index.runs {
            if let Some(group) = run.group {
                fragments.groups.add(&index.groups[group as usize], run.min);
            }
        }
        budget.take(fragments.groups.bytes() - before)?;
    }
    if found.is_empty() {
        return Ok(());
    }
    let groups: Vec<Option<u32>> = locations
        .iter()
        .map(|(run, _)| {
            let group = index.runs[*run as usize]
                .group
                .filter(|_| query.ticks.is_some());
            group.map(|group| fragments.groups.number(&index.groups[group as usize]))
        })
        .collect();
    let (subset, locations) = index.subset(&locations);
    let block = fragments.reader.blocks.len();
    for (series, range) in found {
        let located = locations[range.clone()].iter().zip(&groups[range]);
        let locations = located.map(|(&(run, column), &group)| {
            let entry = &subset.runs[run as usize];
            SampleFragment {
                min: entry.min,
                max: entry.max,
                rank: 0,
                group,
                location: FragmentLocation::Block { block, run, column },
            }
        });
        fragments.series.fragments_of(series).extend(locations);
    }
    reader.index = Arc::new(subset);
    fragments.reader.blocks.push(reader);
    fragments.reader.track_open_file(block);
    Ok(())
}

impl FragmentReader {
    /// Discards cached time columns, whose step boundaries are for another range.
    pub(super) fn forget_times(&mut self) {
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

    /// Adds the samples of one series to the result, in the order of their times. Where a row of
    /// its group follows in which the series has no column, it ends with a stale marker.
    pub(super) fn read_series(
        &mut self,
        fragments: &mut [SampleFragment],
        groups: &GroupRuns,
        query: &RangeQuery,
        limit: &mut TimeLimit,
        bytes_max: usize,
        builder: &mut impl SampleBuilder,
    ) -> Result<(), QueryError> {
        fragments
            .iter_mut()
            .enumerate()
            .for_each(|(rank, fragment)| fragment.rank = rank);
        fragments.sort_unstable_by_key(|fragment| fragment.min);
        let mut rest = &*fragments;
        while let Some(first) = rest.first() {
            // Fragments with overlapping times are merged first.
            let mut max = first.max;
            let mut count = 1;
            while let Some(next) = rest.get(count).filter(|next| next.min <= max) {
                max = max.max(next.max);
                count += 1;
            }
            let is_wanted = builder.overlaps(first.min, max);
            if is_wanted && count == 1 {
                limit.spend(FRAGMENT_WORK)?;
                self.read_fragment(first, builder)?;
            } else if is_wanted {
                self.read_interleaved(&rest[..count], query, limit, bytes_max, builder)?;
            }
            let last = rest[..count].iter().max_by_key(|fragment| fragment.max);
            if let Some(row) = last.and_then(|last| groups.next_run(last.group?, max))
                && rest.get(count).is_none_or(|next| row < next.min)
            {
                builder.add_samples(std::iter::once((row, STALE_NAN)));
            }
            if builder.bytes() > bytes_max {
                return Err(QueryError::TooLarge(query.bytes_max));
            }
            rest = &rest[count..];
        }
        Ok(())
    }

    /// Adds a fragment that overlaps no other.
    fn read_fragment(
        &mut self,
        fragment: &SampleFragment,
        builder: &mut impl SampleBuilder,
    ) -> Result<(), QueryError> {
        if let FragmentLocation::Points(points) = &fragment.location {
            builder.add_samples(points.iter().copied());
            return Ok(());
        }
        let Some(times) = self.read(fragment, builder)? else {
            return Ok(());
        };
        match &self.samples.present {
            None => builder.add_column(&times, &self.samples.values),
            Some(_) if self.marks_absence => {
                builder.add_samples(self.marked_samples(&times.times).into_iter())
            }
            Some(_) => builder.add_samples(self.present_samples(&times.times)),
        }
        Ok(())
    }

    /// Merges overlapping fragments by precedence and adds the result.
    fn read_interleaved(
        &mut self,
        fragments: &[SampleFragment],
        query: &RangeQuery,
        limit: &mut TimeLimit,
        bytes_max: usize,
        builder: &mut impl SampleBuilder,
    ) -> Result<(), QueryError> {
        let mut points: Vec<(Millis, f64)> = Vec::new();
        let mut fragments: Vec<&SampleFragment> = fragments.iter().collect();
        fragments.sort_unstable_by_key(|fragment| fragment.rank);
        for fragment in fragments {
            limit.spend(FRAGMENT_WORK)?;
            match &fragment.location {
                FragmentLocation::Points(copied) => points.extend_from_slice(copied),
                _ => {
                    if let Some(times) = self.read(fragment, builder)? {
                        let rows = times.boundaries.rows.clone();
                        let (from, to) = (
                            times.times.get(rows.start),
                            times.times.get(rows.end.wrapping_sub(1)),
                        );
                        if let (Some(&from), Some(&to)) = (from, to) {
                            let samples = match self.marks_absence {
                                true => self.marked_samples(&times.times),
                                false => self.present_samples(&times.times).collect(),
                            };
                            let within = |(time, _): &(Millis, f64)| (from..=to).contains(time);
                            points.extend(samples.into_iter().filter(within));
                        }
                    }
                }
            }
            if size_of_val(&points[..]) > bytes_max {
                return Err(QueryError::TooLarge(query.bytes_max));
            }
        }
        if self.marks_absence {
            // A value precedes the marker of a run that lacks the series at the same time.
            points.sort_by_key(|(_, value)| !is_stale(*value));
        }
        sort_keep_last(&mut points);
        builder.add_samples(points.into_iter());
        Ok(())
    }

    /// Returns the samples, and a stale marker for the first of several rows without one.
    fn marked_samples(&self, times: &[Millis]) -> Vec<(Millis, f64)> {
        let Some(present) = &self.samples.present else {
            return self.present_samples(times).collect();
        };
        let mut values = self.samples.values.iter();
        let mut marked = Vec::with_capacity(self.samples.values.len() + 1);
        let mut was_absent = false;
        for (row, &time) in times.iter().enumerate() {
            let is_absent = !bit(present, row);
            match is_absent {
                false => marked.extend(values.next().map(|value| (time, *value))),
                true if !was_absent => marked.push((time, STALE_NAN)),
                true => {}
            }
            was_absent = is_absent;
        }
        marked
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
        fragment: &SampleFragment,
        builder: &impl SampleBuilder,
    ) -> Result<Option<Arc<TimeColumn>>, QueryError> {
        let (key, result) = match &fragment.location {
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
                let reader = &self.blocks[*block];
                let ahead = (self.reads_ahead && is_room).then(|| {
                    self.ahead.entry(key).or_insert_with(|| {
                        let whole = reader.dense_bytes(*run);
                        let is_affordable = whole <= self.ahead_bytes_left;
                        let whole = if is_affordable { whole } else { 0 };
                        self.ahead_bytes_left -= whole;
                        ReadAhead::new(whole)
                    })
                });
                let read = reader.samples(*run, *column, ahead, &mut self.samples);
                (key, read)
            }
        };
        let times = result.and_then(|()| match self.times.get(&key) {
            Some(times) => Ok(times.clone()),
            None => {
                let times = match &fragment.location {
                    FragmentLocation::Block { block, run, .. } => {
                        self.blocks[*block].times(*run)?
                    }
                    FragmentLocation::Memory { run, .. } => run.decode_times()?,
                    FragmentLocation::Points(_) => {
                        return Err(DecodeError("points have no time column").into());
                    }
                };
                let boundaries = builder.step_boundaries(&times);
                self.times_rows += times.len();
                if self.times_rows > TIMES_ROWS_MAX {
                    self.times.clear();
                    self.times_rows = times.len();
                }
                let times = Arc::new(TimeColumn { times, boundaries });
                self.times.insert(key, times.clone());
                Ok(times)
            }
        });
        match (times, &fragment.location) {
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
            // Runs encoded by this process always decode; if one does not, the rest is still
            // returned.
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

    /// The names of all series of many blocks use far more memory than the samples of a few of
    /// them.
    #[test]
    fn a_query_keeps_only_the_columns_that_it_wants() {
        static FAMILY: Family = Family::new("", MetricKind::Gauge, "", 1, "");
        let dir = std::env::temp_dir().join(format!("pegel-fragments-{}", std::process::id()));
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
            let query = RangeQuery::new(selector, now - 1000, now, None);
            let mut limit = TimeLimit::new(None);
            gather_fragments(store.shared(), &query, &mut limit).expect("gathered")
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
