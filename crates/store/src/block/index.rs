//! The decoded index of a block: which series it holds, and where their columns are in the file.
//! Readers find series by binary search over their sorted texts. Decoding checks every position and
//! count against the file, so that a damaged index is an error, never a panic. [`IndexCache`] keeps
//! the indexes used last.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use pegel_metric::prometheus_names::is_metric_name;
use pegel_metric::{Millis, Selector, Series};

use crate::codec::byte_reader::ByteReader;
use crate::codec::{DecodeError, ROWS_MAX};
use crate::series_codec::SeriesDecoder;

/// A block's index, decoded.
#[derive(Debug, Default)]
pub(crate) struct BlockIndex {
    pub groups: Vec<Arc<str>>,
    /// Sorted by text.
    pub series: Vec<Arc<Series>>,
    pub runs: Vec<RunEntry>,
    /// Of all runs, one run after the other.
    pub columns: Vec<ColumnEntry>,
    /// The first entry of each series in `locations`; one more entry at the end.
    starts: Vec<u32>,
    /// (run, column), in the order of the runs.
    locations: Vec<(u32, u32)>,
    /// The series with names that Prometheus does not accept; found when they are first needed.
    foreign_names: OnceLock<Vec<u32>>,
}

#[derive(Debug, Clone)]
pub(crate) struct RunEntry {
    pub group: Option<u32>,
    pub min: Millis,
    pub max: Millis,
    pub rows: usize,
    /// The position of the time column in the file; the value columns follow it.
    pub at: u64,
    pub times_len: u32,
    pub times_crc: u32,
    pub columns: Range<u32>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct ColumnEntry {
    pub series: u32,
    pub at: u64,
    pub len: u32,
    pub crc: u32,
}

impl BlockIndex {
    /// Decodes an index. The runs lie between `data_start` and `data_end`: an index that points
    /// beyond is damaged.
    pub(crate) fn decode(
        raw: &[u8],
        data_start: u64,
        data_end: u64,
    ) -> Result<BlockIndex, DecodeError> {
        let mut reader = ByteReader::new(raw);
        let mut index = BlockIndex::default();
        for _ in 0..reader.varint()? {
            index.groups.push(reader.str()?.into());
        }
        let mut table = SeriesDecoder::default();
        for _ in 0..reader.varint()? {
            index.series.push(table.take(&mut reader)?);
        }
        let mut at = data_start;
        for _ in 0..reader.varint()? {
            index.read_run(&mut reader, &mut at, data_end)?;
        }
        index.build_locations();
        Ok(index)
    }

    fn read_run(
        &mut self,
        reader: &mut ByteReader<'_>,
        at: &mut u64,
        data_end: u64,
    ) -> Result<(), DecodeError> {
        let group = match reader.varint()? {
            0 => None,
            number if number <= self.groups.len() as u64 => Some(number as u32 - 1),
            _ => return Err(DecodeError("run of an unknown group")),
        };
        let min = reader.zigzag()?;
        let max = min
            .checked_add_unsigned(reader.varint()?)
            .ok_or(DecodeError("end time of a run overflows"))?;
        let rows = reader.varint()?;
        if rows == 0 || rows > ROWS_MAX as u64 {
            return Err(DecodeError("invalid row count of a run"));
        }
        let times_at = *at;
        let times_len = advance(at, reader.varint()?, data_end)?;
        let times_crc = reader.u32()?;
        let first = self.columns.len() as u32;
        for _ in 0..reader.varint()? {
            let series = reader.varint()?;
            if series >= self.series.len() as u64 {
                return Err(DecodeError("column of an unknown series"));
            }
            let column_at = *at;
            let len = advance(at, reader.varint()?, data_end)?;
            let crc = reader.u32()?;
            self.columns.push(ColumnEntry {
                series: series as u32,
                at: column_at,
                len,
                crc,
            });
        }
        let columns = first..self.columns.len() as u32;
        self.runs.push(RunEntry {
            group,
            min,
            max,
            rows: rows as usize,
            at: times_at,
            times_len,
            times_crc,
            columns,
        });
        Ok(())
    }

    fn build_locations(&mut self) {
        let mut counts = vec![0u32; self.series.len() + 1];
        for column in &self.columns {
            counts[column.series as usize + 1] += 1;
        }
        for series in 0..self.series.len() {
            counts[series + 1] += counts[series];
        }
        self.starts = counts.clone();
        self.locations = vec![(0, 0); self.columns.len()];
        for (number, run) in self.runs.iter().enumerate() {
            for column in run.columns.clone() {
                let next = &mut counts[self.columns[column as usize].series as usize];
                self.locations[*next as usize] = (number as u32, column);
                *next += 1;
            }
        }
    }

    /// Returns the numbers of the series that can match: all, unless the selector lists exact
    /// names; with them, those whose names Prometheus does not accept if the selector wants them.
    /// The caller still evaluates the selector on each of them.
    pub(crate) fn candidates(&self, selector: &Selector) -> Vec<Range<usize>> {
        let Some(names) = selector.exact_names() else {
            return std::iter::once(0..self.series.len()).collect();
        };
        let position_of = |text: &str| self.series.partition_point(|series| series.text() < text);
        let mut ranges = Vec::new();
        for name in names {
            // First the bare name, then all series with labels; longer names may sort between the
            // two.
            let bare = position_of(name);
            let is_there = self
                .series
                .get(bare)
                .is_some_and(|series| series.text() == name);
            ranges.push(bare..bare + usize::from(is_there));
            ranges.push(position_of(&format!("{name}{{"))..position_of(&format!("{name}|")));
        }
        if selector.includes_foreign_names() {
            let foreign = self.foreign_names.get_or_init(|| self.find_foreign_names());
            ranges.extend(foreign.iter().map(|at| *at as usize..*at as usize + 1));
        }
        ranges
    }

    fn find_foreign_names(&self) -> Vec<u32> {
        let series = (0..).zip(&self.series);
        let foreign = series.filter(|(_, series)| !is_metric_name(series.name()));
        foreign.map(|(at, _)| at).collect()
    }

    /// Returns an index of only these columns, and the location of each in it as (run, column). It
    /// has no series and no groups: a query that needs a few columns of many blocks must not hold
    /// the names of all their series.
    pub(crate) fn subset(&self, locations: &[(u32, u32)]) -> (BlockIndex, Vec<(u32, u32)>) {
        let mut order: Vec<usize> = (0..locations.len()).collect();
        order.sort_unstable_by_key(|&at| locations[at]);
        let mut subset = BlockIndex::default();
        let mut renumbered = vec![(0, 0); locations.len()];
        let mut last_run = None;
        for at in order {
            let (run, column) = locations[at];
            let number = subset.columns.len() as u32;
            subset.columns.push(self.columns[column as usize]);
            if last_run != Some(run) {
                last_run = Some(run);
                subset.runs.push(RunEntry {
                    group: None,
                    columns: number..number,
                    ..self.runs[run as usize].clone()
                });
            }
            let run = subset.runs.len() - 1;
            subset.runs[run].columns.end = number + 1;
            renumbered[at] = (run as u32, number);
        }
        (subset, renumbered)
    }

    pub(crate) fn number_of(&self, series: &Series) -> Option<u32> {
        let found = self.series.binary_search_by(|known| (**known).cmp(series));
        found.ok().map(|at| at as u32)
    }

    /// Returns the locations of a series: (run, column), in the order of the runs.
    pub(crate) fn locations_of(&self, series: u32) -> &[(u32, u32)] {
        &self.locations
            [self.starts[series as usize] as usize..self.starts[series as usize + 1] as usize]
    }

    /// Returns the approximate memory used: texts, and the allocations around them for each series
    /// and family.
    fn bytes(&self) -> usize {
        let mut bytes = self.runs.len() * size_of::<RunEntry>()
            + self.columns.len() * (size_of::<ColumnEntry>() + 8);
        let mut family = None;
        for series in &self.series {
            bytes += series.text().len() + 72;
            // Series of one family are adjacent and share it.
            if family.is_none_or(|known| !Arc::ptr_eq(known, series.family())) {
                let new = series.family();
                bytes += new.name.len() + new.help.len() + new.unit.len() + 160;
                family = Some(new);
            }
        }
        bytes
    }
}

fn advance(at: &mut u64, len: u64, end: u64) -> Result<u32, DecodeError> {
    *at = at
        .checked_add(len)
        .filter(|next| *next <= end)
        .ok_or(DecodeError("column exceeds the data"))?;
    u32::try_from(len).map_err(|_| DecodeError("invalid length of a column"))
}

/// A cache of the most recently used indexes, limited by bytes.
#[derive(Debug)]
pub(crate) struct IndexCache {
    bytes_max: usize,
    /// Block id, index and its size in memory; the most recently used at the end.
    entries: Mutex<Vec<(u64, Arc<BlockIndex>, usize)>>,
}

impl IndexCache {
    pub(crate) fn new(bytes_max: usize) -> IndexCache {
        IndexCache {
            bytes_max,
            entries: Mutex::default(),
        }
    }

    pub(crate) fn get_or<E>(
        &self,
        id: u64,
        load: impl FnOnce() -> Result<BlockIndex, E>,
    ) -> Result<Arc<BlockIndex>, E> {
        {
            let mut entries = self.entries.lock();
            if let Some(at) = entries.iter().position(|(known, ..)| *known == id) {
                let entry = entries.remove(at);
                let index = entry.1.clone();
                entries.push(entry);
                return Ok(index);
            }
        }
        let index = Arc::new(load()?);
        let mut entries = self.entries.lock();
        entries.push((id, index.clone(), index.bytes()));
        let mut total: usize = entries.iter().map(|(.., bytes)| bytes).sum();
        while total > self.bytes_max && entries.len() > 1 {
            total -= entries.remove(0).2;
        }
        Ok(index)
    }

    pub(crate) fn remove(&self, id: u64) {
        let mut entries = self.entries.lock();
        entries.retain(|(known, ..)| *known != id);
    }
}
