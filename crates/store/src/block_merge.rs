//! Writes a block from other runs: those of a frozen head, or of several fresh blocks. Called by
//! maintenance.
//!
//! Sources are sorted by precedence, lowest first. The runs of a group are joined into longer ones
//! as long as their times increase; the points of an ungrouped series are sorted, and of equal
//! times the one with the highest precedence is kept.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use pegel_metric::{GroupSeries, Millis, Series};

use crate::block::{BlockReadError, BlockReader, SplitBlockWriter};
use crate::codec::ROWS_MAX;
use crate::head::sort_keep_last;
use crate::input_class::InputClass;
use crate::sample_run::{
    DecodedColumn, EncodingEffort, RunColumn, RunOwner, SampleRun, bit, decode_column, set_bit,
};

/// A joined run is written at this many rows: small enough to be decoded for a short query, large
/// enough for efficient encoding.
const JOINED_ROWS: usize = 4096;

/// A source of runs.
#[derive(Debug)]
pub(crate) enum MergeSource {
    Memory(Vec<Arc<SampleRun>>),
    Block(BlockReader),
}

/// Selects the samples that go into the block: `start <= time < end`, and of those in memory, of
/// this class; [`InputClass::Mixed`] accepts all. The samples of a block stay in their class, even
/// if their input belongs to another one since.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MergeWindow {
    pub class: InputClass,
    pub start: Millis,
    pub end: Millis,
}

impl MergeWindow {
    fn overlaps(&self, min: Millis, max: Millis) -> bool {
        min < self.end && self.start <= max
    }

    fn accepts(&self, series: &Series) -> bool {
        self.class == InputClass::Mixed || self.class == InputClass::of(series)
    }

    fn rows(&self, times: &[Millis]) -> std::ops::Range<usize> {
        times.partition_point(|time| *time < self.start)
            ..times.partition_point(|time| *time < self.end)
    }
}

/// A source and one of its runs.
type RunLocation = (usize, u32);

/// The group or series whose samples a run holds.
enum RunKey {
    Group(Arc<str>),
    Series(Arc<Series>),
}

impl MergeSource {
    /// Returns the runs that have samples in the window, and their targets, without reading them.
    fn runs_in(&self, window: MergeWindow) -> Vec<(u32, RunKey)> {
        match self {
            MergeSource::Memory(runs) => (0u32..)
                .zip(runs)
                .filter(|(_, run)| window.overlaps(run.min, run.max))
                .filter(|(_, run)| {
                    run.owner
                        .series()
                        .iter()
                        .any(|series| window.accepts(series))
                })
                .map(|(number, run)| match &run.owner {
                    RunOwner::Group(members) => (number, RunKey::Group(members.group.clone())),
                    RunOwner::Series(series) => (number, RunKey::Series(series.clone())),
                })
                .collect(),
            MergeSource::Block(reader) => (0u32..)
                .zip(&reader.index.runs)
                .filter(|(_, run)| window.overlaps(run.min, run.max))
                .filter_map(|(number, run)| {
                    let target = match run.group {
                        Some(group) => RunKey::Group(reader.index.groups[group as usize].clone()),
                        None => {
                            let column = reader.index.columns.get(run.columns.start as usize)?;
                            let series = &reader.index.series[column.series as usize];
                            RunKey::Series(series.clone())
                        }
                    };
                    Some((number, target))
                })
                .collect(),
        }
    }

    /// Loads a run, as far as it is readable.
    fn load(&self, number: u32) -> Result<Option<Arc<SampleRun>>, BlockReadError> {
        match self {
            MergeSource::Memory(runs) => Ok(Some(runs[number as usize].clone())),
            MergeSource::Block(reader) => match reader.run(number) {
                Ok(run) => Ok(run.map(Arc::new)),
                Err(BlockReadError::Io(error)) => Err(BlockReadError::Io(error)),
                // A retry will not help, and one bad run must not prevent merging the rest.
                Err(_) => {
                    self.mark_damaged();
                    Ok(None)
                }
            },
        }
    }

    fn mark_damaged(&self) {
        if let MergeSource::Block(reader) = self {
            reader.block.mark_damaged();
        }
    }
}

/// Writes all samples of `sources` that lie in `window`.
pub(crate) fn merge_into_block(
    sources: &[MergeSource],
    window: MergeWindow,
    effort: EncodingEffort,
    writer: &mut SplitBlockWriter,
) -> Result<(), BlockReadError> {
    let mut groups: BTreeMap<Arc<str>, Vec<RunLocation>> = BTreeMap::new();
    let mut ungrouped: BTreeMap<Arc<Series>, Vec<RunLocation>> = BTreeMap::new();
    for (at, source) in sources.iter().enumerate() {
        for (number, target) in source.runs_in(window) {
            let locations = match target {
                RunKey::Group(group) => groups.entry(group).or_default(),
                RunKey::Series(series) => ungrouped.entry(series).or_default(),
            };
            locations.push((at, number));
        }
    }
    for (group, locations) in groups {
        merge_group(&group, sources, &locations, window, effort, writer)?;
    }
    for (series, mut locations) in ungrouped {
        add_group_locations(&series, sources, window, &mut locations);
        merge_ungrouped(&series, sources, &locations, window, effort, writer)?;
    }
    Ok(())
}

/// Within one block the points of an ungrouped series take precedence over those of a group. Where
/// a series is in both, its samples in groups are merged with its ungrouped ones here, so that a
/// newer block's group still takes precedence over an older block's points. (Within a head,
/// `Head::append_row` ensures this.)
fn add_group_locations(
    series: &Series,
    sources: &[MergeSource],
    window: MergeWindow,
    locations: &mut Vec<RunLocation>,
) {
    for (at, source) in sources.iter().enumerate() {
        let MergeSource::Block(reader) = source else {
            continue;
        };
        let known = reader.index.number_of(series);
        for &(number, _) in known.map_or(&[][..], |known| reader.index.locations_of(known)) {
            let run = &reader.index.runs[number as usize];
            if run.group.is_some() && window.overlaps(run.min, run.max) {
                locations.push((at, number));
            }
        }
    }
    locations.sort_unstable();
}

/// A part of a joined run: a loaded run and the range of its rows that is used.
struct RunSlice {
    run: Arc<SampleRun>,
    source: usize,
    rows: std::ops::Range<usize>,
}

fn merge_group(
    group: &Arc<str>,
    sources: &[MergeSource],
    locations: &[RunLocation],
    window: MergeWindow,
    effort: EncodingEffort,
    writer: &mut SplitBlockWriter,
) -> Result<(), BlockReadError> {
    let mut parts: Vec<RunSlice> = Vec::new();
    let mut times: Vec<Millis> = Vec::new();
    for &(source, number) in locations {
        let Some(run) = sources[source].load(number)? else {
            continue;
        };
        let Ok(run_times) = run.decode_times() else {
            sources[source].mark_damaged();
            continue;
        };
        let rows = window.rows(&run_times);
        let added = &run_times[rows.clone()];
        let Some(&first) = added.first() else {
            continue;
        };
        let steps_back = times.last().is_some_and(|last| first <= *last);
        if steps_back || times.len() >= JOINED_ROWS || times.len() + added.len() > ROWS_MAX {
            write_joined(group, sources, &parts, &times, window, effort, writer)?;
            parts.clear();
            times.clear();
        }
        times.extend_from_slice(added);
        parts.push(RunSlice { run, source, rows });
    }
    write_joined(group, sources, &parts, &times, window, effort, writer)
}

fn write_joined(
    group: &Arc<str>,
    sources: &[MergeSource],
    parts: &[RunSlice],
    times: &[Millis],
    window: MergeWindow,
    effort: EncodingEffort,
    writer: &mut SplitBlockWriter,
) -> Result<(), BlockReadError> {
    if times.is_empty() {
        return Ok(());
    }
    // For each series its column in each part: (part, column).
    let mut columns: HashMap<&Arc<Series>, Vec<(usize, usize)>> = HashMap::new();
    let mut order: Vec<&Arc<Series>> = Vec::new();
    for (number, part) in parts.iter().enumerate() {
        let has_all_classes = matches!(sources[part.source], MergeSource::Memory(_));
        for (column, entry) in part.run.columns.iter().enumerate() {
            let series = &part.run.owner.series()[entry.member as usize];
            if has_all_classes && !window.accepts(series) {
                continue;
            }
            let locations = columns.entry(series).or_default();
            match locations.last_mut() {
                None => order.push(series),
                // A group that names a series twice: its last column wins, as everywhere.
                Some(last) if last.0 == number => {
                    last.1 = column;
                    continue;
                }
                Some(_) => {}
            }
            locations.push((number, column));
        }
    }
    let series = order.iter().map(|series| (*series).clone()).collect();
    let members = Arc::new(GroupSeries {
        group: group.clone(),
        series,
        stale_after: 0,
    });
    let mut joined = SampleRun::new(RunOwner::Group(members.clone()), times);
    let mut values: Vec<f64> = Vec::with_capacity(times.len());
    let mut present = vec![0u64; times.len().div_ceil(64)];
    let mut samples = DecodedColumn::default();
    let firsts: Vec<usize> = parts
        .iter()
        .scan(0, |next, part| {
            let first = *next;
            *next += part.rows.len();
            Some(first)
        })
        .collect();
    for (member, series) in order.iter().enumerate() {
        values.clear();
        present.fill(0);
        for &(number, column) in &columns[series] {
            let part = &parts[number];
            let bytes = part.run.column_bytes(&part.run.columns[column]);
            if decode_column(bytes, part.run.rows, &mut samples).is_err() {
                sources[part.source].mark_damaged();
                continue;
            }
            take_rows(&samples, part, firsts[number], &mut values, &mut present);
        }
        joined.add_column(member as u32, &values, Some(&present), effort);
        if joined.data.len() >= writer.limits().run_bytes {
            writer.add(&joined)?;
            joined = SampleRun::new(RunOwner::Group(members.clone()), times);
        }
    }
    Ok(writer.add(&joined)?)
}

/// Appends the samples of the part's rows; row `part.rows.start` becomes row `first` of the result.
fn take_rows(
    samples: &DecodedColumn,
    part: &RunSlice,
    first: usize,
    values: &mut Vec<f64>,
    present: &mut [u64],
) {
    let mut next = 0;
    for row in 0..part.rows.end {
        let is_present = samples.present.as_ref().is_none_or(|bits| bit(bits, row));
        if is_present && row >= part.rows.start {
            values.push(samples.values[next]);
            set_bit(present, first + row - part.rows.start);
        }
        next += usize::from(is_present);
    }
}

fn merge_ungrouped(
    series: &Arc<Series>,
    sources: &[MergeSource],
    locations: &[RunLocation],
    window: MergeWindow,
    effort: EncodingEffort,
    writer: &mut SplitBlockWriter,
) -> Result<(), BlockReadError> {
    let mut points: Vec<(Millis, f64)> = Vec::new();
    for &(source, number) in locations {
        let Some(run) = sources[source].load(number)? else {
            continue;
        };
        let members = run.owner.series();
        let is_its = |column: &&RunColumn| members[column.member as usize] == *series;
        let Some(column) = run.columns.iter().rfind(is_its) else {
            continue;
        };
        match run.decode_points(column) {
            Ok(decoded) => points.extend(decoded),
            Err(_) => sources[source].mark_damaged(),
        }
    }
    points.retain(|(time, _)| window.start <= *time && *time < window.end);
    sort_keep_last(&mut points);
    for chunk in points.chunks(ROWS_MAX) {
        writer.add(&SampleRun::from_points(series, chunk, effort))?;
    }
    Ok(())
}
