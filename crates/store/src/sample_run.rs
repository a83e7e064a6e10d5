//! A run: encoded rows of samples that share one time column. All samples that are no longer
//! appended to are stored in runs, in memory and in blocks: some ticks of one group, or points of
//! one series.

use std::sync::Arc;

use pegel_metric::{GroupSeries, Millis, Series};

use crate::codec::{self, DecodeError, ROWS_MAX};

/// The group or series whose samples a run holds.
#[derive(Debug, Clone)]
pub(crate) enum RunOwner {
    Group(Arc<GroupSeries>),
    Series(Arc<Series>),
}

impl RunOwner {
    pub(crate) fn series(&self) -> &[Arc<Series>] {
        match self {
            RunOwner::Group(members) => &members.series,
            RunOwner::Series(series) => std::slice::from_ref(series),
        }
    }
}

/// The effort spent on a small encoding. The quick one is for samples that stay in memory or are
/// read again soon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EncodingEffort {
    Quick,
    Small,
}

#[derive(Debug)]
pub(crate) struct SampleRun {
    pub owner: RunOwner,
    pub rows: usize,
    pub min: Millis,
    pub max: Millis,
    pub times: Vec<u8>,
    /// In the order of their members; a member without a sample in these rows has no column.
    pub columns: Vec<RunColumn>,
    pub data: Vec<u8>,
}

/// The position of the samples of one member in the run's data.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunColumn {
    pub member: u32,
    pub start: u32,
    pub end: u32,
}

impl SampleRun {
    /// Returns an empty run over `times`, which must be strictly increasing and not empty.
    pub(crate) fn new(owner: RunOwner, times: &[Millis]) -> SampleRun {
        debug_assert!(!times.is_empty() && times.len() <= ROWS_MAX);
        let mut encoded = Vec::new();
        codec::encode_times(times, &mut encoded);
        SampleRun {
            owner,
            rows: times.len(),
            min: times[0],
            max: times[times.len() - 1],
            times: encoded,
            columns: Vec::new(),
            data: Vec::new(),
        }
    }

    /// Encodes points of one series, sorted by time and not empty.
    pub(crate) fn from_points(
        series: &Arc<Series>,
        points: &[(Millis, f64)],
        effort: EncodingEffort,
    ) -> SampleRun {
        let times: Vec<Millis> = points.iter().map(|(time, _)| *time).collect();
        let values: Vec<f64> = points.iter().map(|(_, value)| *value).collect();
        let mut run = SampleRun::new(RunOwner::Series(series.clone()), &times);
        run.add_column(0, &values, None, effort);
        run
    }

    /// Adds the samples of a member: the values of its present rows; `present` is `None` for all.
    pub(crate) fn add_column(
        &mut self,
        member: u32,
        values: &[f64],
        present: Option<&[u64]>,
        effort: EncodingEffort,
    ) {
        if values.is_empty() {
            return;
        }
        let start = self.data.len();
        encode_column(values, present, self.rows, effort, &mut self.data);
        // A run has at most ROWS_MAX rows and its owner's memory is bounded far below 4 GiB.
        self.columns.push(RunColumn {
            member,
            start: start as u32,
            end: self.data.len() as u32,
        });
    }

    /// Finishes the run and shrinks its buffers.
    pub(crate) fn finish(mut self) -> Arc<SampleRun> {
        self.times.shrink_to_fit();
        self.columns.shrink_to_fit();
        self.data.shrink_to_fit();
        Arc::new(self)
    }

    pub(crate) fn column_bytes(&self, column: &RunColumn) -> &[u8] {
        &self.data[column.start as usize..column.end as usize]
    }

    /// Decodes the samples of one column.
    pub(crate) fn decode_points(
        &self,
        column: &RunColumn,
    ) -> Result<Vec<(Millis, f64)>, DecodeError> {
        let times = self.decode_times()?;
        let mut samples = DecodedColumn::default();
        decode_column(self.column_bytes(column), self.rows, &mut samples)?;
        if samples.present.is_none() {
            return Ok(times.into_iter().zip(samples.values).collect());
        }
        let rows = samples.rows(self.rows).map(|row| times[row]);
        Ok(rows.zip(samples.values.iter().copied()).collect())
    }

    pub(crate) fn decode_times(&self) -> Result<Vec<Millis>, DecodeError> {
        let mut times = Vec::with_capacity(self.rows);
        codec::decode_times(&self.times, self.rows, &mut times)?;
        Ok(times)
    }

    /// Returns the memory used.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<SampleRun>()
            + self.times.len()
            + self.data.len()
            + self.columns.len() * size_of::<RunColumn>()
    }
}

/// The decoded samples of one member: the values of its present rows.
#[derive(Debug, Default)]
pub(crate) struct DecodedColumn {
    pub values: Vec<f64>,
    /// One bit per row; `None` if every row is present.
    pub present: Option<Vec<u64>>,
}

impl DecodedColumn {
    /// Returns the rows that are present.
    pub(crate) fn rows(&self, rows: usize) -> impl Iterator<Item = usize> + '_ {
        (0..rows).filter(|row| match &self.present {
            None => true,
            Some(bits) => bit(bits, *row),
        })
    }
}

const ALL_PRESENT: u8 = 0;
const SOME_PRESENT: u8 = 1;

fn encode_column(
    values: &[f64],
    present: Option<&[u64]>,
    rows: usize,
    effort: EncodingEffort,
    out: &mut Vec<u8>,
) {
    match present {
        Some(bits) if values.len() < rows => {
            out.push(SOME_PRESENT);
            put_bitmap(bits, rows, out);
        }
        _ => out.push(ALL_PRESENT),
    }
    match effort {
        EncodingEffort::Quick => codec::encode_quick(values, out),
        EncodingEffort::Small => codec::encode_small(values, out),
    }
}

/// Decodes the samples of a column into `into`, replacing its contents.
pub(crate) fn decode_column(
    bytes: &[u8],
    rows: usize,
    into: &mut DecodedColumn,
) -> Result<(), DecodeError> {
    into.values.clear();
    into.present = None;
    let (&flag, body) = bytes.split_first().ok_or(DecodeError("empty column"))?;
    match flag {
        ALL_PRESENT => codec::decode_values(body, rows, &mut into.values),
        SOME_PRESENT => {
            let bitmap_len = rows.div_ceil(8);
            if body.len() < bitmap_len {
                return Err(DecodeError("truncated presence bitmap"));
            }
            let (bitmap, values) = body.split_at(bitmap_len);
            let bits = decode_bitmap(bitmap);
            if !rows.is_multiple_of(64) && bits[rows / 64] >> (rows % 64) != 0 {
                return Err(DecodeError("presence bit beyond the last row"));
            }
            let count = bits.iter().map(|word| word.count_ones() as usize).sum();
            codec::decode_values(values, count, &mut into.values)?;
            into.present = Some(bits);
            Ok(())
        }
        _ => Err(DecodeError("unknown kind of column")),
    }
}

pub(crate) fn bit(bits: &[u64], index: usize) -> bool {
    bits[index / 64] >> (index % 64) & 1 == 1
}

pub(crate) fn set_bit(bits: &mut [u64], index: usize) {
    bits[index / 64] |= 1 << (index % 64);
}

/// Appends `count` bits, the first one in the lowest bit of the first byte.
pub(crate) fn put_bitmap(bits: &[u64], count: usize, out: &mut Vec<u8>) {
    let bytes = bits.iter().flat_map(|word| word.to_le_bytes());
    out.extend(bytes.take(count.div_ceil(8)));
}

/// Reads the bytes that [`put_bitmap`] wrote.
pub(crate) fn decode_bitmap(bytes: &[u8]) -> Vec<u64> {
    let mut bits = vec![0; bytes.len().div_ceil(8)];
    for (index, byte) in bytes.iter().enumerate() {
        bits[index / 8] |= u64::from(*byte) << (index % 8 * 8);
    }
    bits
}
