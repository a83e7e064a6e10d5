//! Entry points for `fuzz/`: the readers and writers of every on-disk format as functions over
//! bytes. Built only with the feature `fuzzing`; not a stable API.

use std::path::Path;
use std::sync::Arc;

use pegel_metric::{GroupRow, Input, Millis, Point, Series, Tick};

use crate::block::{Block, BlockReadError, BlockReader, IndexCache, ReadAhead, open_block};
use crate::codec::{self, ROWS_MAX};
use crate::log::{FRAME_MARK, FrameEncoder, LogVisitor, replay, segment_header};
use crate::sample_run::DecodedColumn;
use crate::{FORMAT_VERSION, Files, StoreOpenError};

pub const COLUMN_ROWS_MAX: usize = ROWS_MAX;

pub fn encode_values(values: &[f64], is_small: bool) -> Vec<u8> {
    let mut out = Vec::new();
    if is_small {
        codec::encode_small(values, &mut out);
    } else {
        codec::encode_quick(values, &mut out);
    }
    out
}

pub fn decode_values(bytes: &[u8], rows: usize) -> Option<Vec<f64>> {
    let mut out = Vec::new();
    codec::decode_values(bytes, rows, &mut out).ok()?;
    Some(out)
}

pub fn encode_times(times: &[Millis]) -> Vec<u8> {
    let mut out = Vec::new();
    codec::encode_times(times, &mut out);
    out
}

pub fn decode_times(bytes: &[u8], rows: usize) -> Option<Vec<Millis>> {
    let mut out = Vec::new();
    codec::decode_times(bytes, rows, &mut out).ok()?;
    Some(out)
}

pub fn encode_row(previous: &[u64], current: &[u64], hints: &mut [u8]) -> Vec<u8> {
    let mut out = Vec::new();
    codec::encode_row(previous, current, hints, &mut out);
    out
}

/// Turns the previous row into this one. Returns the number of bytes read.
pub fn decode_row(bytes: &[u8], previous: &mut [u64]) -> Option<usize> {
    codec::decode_row(bytes, previous).ok()
}

pub fn pack(raw: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    crate::lz4_block::pack(raw, &mut out).expect("inputs of the fuzzer are short");
    out
}

pub fn unpack(bytes: &[u8]) -> Option<Vec<u8>> {
    crate::lz4_block::unpack(bytes).ok()
}

/// Performs the first step of opening: reads `format` in this directory, or writes it.
pub fn check_format(dir: &Path) -> Result<(), StoreOpenError> {
    crate::open::check_format(dir)
}

/// One row or one point of a log: its time, and texts and bits of the values present.
pub type LoggedEntry = (Millis, Vec<(String, u64)>);

/// The contents of a segment.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct SegmentReplay {
    pub logged: Vec<LoggedEntry>,
    pub torn: u64,
    pub damaged: u64,
    pub version: Option<u32>,
}

/// Keeps the first rows and points.
struct EntryCollector {
    logged: Vec<LoggedEntry>,
    max: usize,
}

impl LogVisitor for EntryCollector {
    fn row(&mut self, time: Millis, _: u64, row: &GroupRow) {
        if self.logged.len() == self.max {
            return;
        }
        let members = row.members.series.iter().enumerate();
        let present = members.filter(|(index, _)| row.is_present(*index));
        let values =
            present.map(|(index, series)| (series.text().to_owned(), row.values[index].to_bits()));
        self.logged.push((time, values.collect()));
    }

    fn point(&mut self, _: u64, series: &Arc<Series>, time: Millis, value: f64) {
        if self.logged.len() < self.max {
            let value = (series.text().to_owned(), value.to_bits());
            self.logged.push((time, vec![value]));
        }
    }
}

/// Replays a whole segment and keeps at most `max` rows and points.
pub fn replay_segment(bytes: &[u8], max: usize) -> SegmentReplay {
    let logged = Vec::new();
    let mut keeper = EntryCollector { logged, max };
    let replayed = replay(bytes, &mut keeper);
    SegmentReplay {
        logged: keeper.logged,
        torn: replayed.torn,
        damaged: replayed.damaged,
        version: replayed.version,
    }
}

/// A segment as the store writes it.
#[derive(Debug)]
pub struct SegmentWriter {
    encoder: FrameEncoder,
    bytes: Vec<u8>,
}

impl Default for SegmentWriter {
    fn default() -> SegmentWriter {
        SegmentWriter {
            encoder: FrameEncoder::default(),
            bytes: segment_header(1).to_vec(),
        }
    }
}

impl SegmentWriter {
    pub fn tick(&mut self, tick: &Tick) {
        self.encoder.tick(tick, &vec![true; tick.rows().len()]);
        self.take();
    }

    pub fn push(&mut self, input: Input, points: &[Point]) {
        self.encoder.push(input, points);
        self.take();
    }

    /// Appends a frame with any content and a valid checksum; `body` is compressed, `prefix` is
    /// not.
    pub fn frame(&mut self, kind: u8, prefix: &[u8], body: &[u8]) {
        let payload = [prefix, &pack(body)].concat();
        let mut covered = vec![kind, 0];
        covered.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        covered.extend_from_slice(&payload);
        self.bytes.extend_from_slice(&FRAME_MARK);
        self.bytes.extend_from_slice(&covered[..6]);
        let crc = crc32fast::hash(&covered);
        self.bytes.extend_from_slice(&crc.to_le_bytes());
        self.bytes.extend_from_slice(&payload);
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn take(&mut self) {
        let frames = self.encoder.take_frames();
        self.bytes.extend_from_slice(&frames);
        self.encoder.recycle(frames);
    }
}

/// Builds a block with any data and any index, and valid checksums of the index and the footer.
pub fn build_block(kind: u32, data: &[u8], raw_index: &[u8]) -> Vec<u8> {
    let mut bytes = b"PEGELBLK".to_vec();
    bytes.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    bytes.extend_from_slice(&kind.to_le_bytes());
    bytes.extend_from_slice(data);
    let index = pack(raw_index);
    let mut footer = (bytes.len() as u64).to_le_bytes().to_vec();
    footer.extend_from_slice(&(index.len() as u32).to_le_bytes());
    footer.extend_from_slice(&crc32fast::hash(&index).to_le_bytes());
    // Times, log and seal are irrelevant here; no block is replaced.
    footer.extend_from_slice(&[0; 36]);
    let crc = crc32fast::hash(&footer);
    footer.extend_from_slice(&crc.to_le_bytes());
    footer.extend_from_slice(b"PGLE");
    bytes.extend_from_slice(&index);
    bytes.extend_from_slice(&footer);
    bytes
}

/// Reads a whole block in every possible way. Returns the number of samples.
pub fn read_block(files: &Arc<dyn Files>, path: &Path) -> Result<u64, String> {
    let read = |block: Block| -> Result<u64, BlockReadError> {
        let reader = BlockReader::open(&Arc::new(block), &IndexCache::new(1 << 20))?;
        let mut count = 0;
        for run in 0..reader.index.runs.len() as u32 {
            // A damaged run costs only itself.
            count += read_run(&reader, run).unwrap_or(0);
        }
        for series in 0..reader.index.series.len() as u32 {
            let number = reader
                .index
                .number_of(&reader.index.series[series as usize]);
            count += number.map_or(0, |number| reader.index.locations_of(number).len() as u64);
        }
        Ok(count)
    };
    open_block(files, path, 1)
        .and_then(read)
        .map_err(|error| error.to_string())
}

fn read_run(reader: &BlockReader, run: u32) -> Result<u64, BlockReadError> {
    let entry = &reader.index.runs[run as usize];
    let mut samples = DecodedColumn::default();
    let mut ahead = ReadAhead::new(0);
    let mut count = reader.times(run)?.len() as u64;
    for column in entry.columns.clone() {
        reader.samples(run, column, None, &mut samples)?;
        let alone = std::mem::take(&mut samples);
        reader.samples(run, column, Some(&mut ahead), &mut samples)?;
        assert_eq!(alone.values.len(), samples.values.len());
        count += samples.rows(entry.rows).count() as u64;
    }
    if let Some(whole) = reader.run(run)? {
        assert!(whole.columns.len() <= entry.columns.len());
    }
    Ok(count)
}
