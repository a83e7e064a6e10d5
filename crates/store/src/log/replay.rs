//! Replays a segment of the log when a store is opened. An incomplete end, left by a crash, is
//! discarded; damaged parts are skipped and counted. Damaged input never causes a panic or an
//! unbounded allocation.

use std::collections::HashMap;
use std::sync::Arc;

use pegel_metric::{GroupRow, GroupSeries, Millis, Point, Series};

use crate::FORMAT_VERSION;
use crate::codec::byte_reader::ByteReader;
use crate::codec::{self, DecodeError};
use crate::lz4_block::unpack;
use crate::sample_run::decode_bitmap;
use crate::series_codec::SeriesDecoder;

use super::frame_encoder::frame_crc;
use super::{
    FRAME_HEAD_LEN, FRAME_LEN_MAX, FRAME_MARK, GROUP_FRAME, HEADER_LEN, MAGIC, PUSH_FRAME, ROW_KEY,
    ROW_PARTLY_PRESENT, SERIES_FRAME, TICK_FRAME,
};

/// The most members of a group and series of a segment, so that a damaged count cannot cause a huge
/// allocation.
const SERIES_MAX: u64 = 16 << 20;

/// The condition of a replayed segment.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ReplayReport {
    /// Bytes after the last complete frame: an incomplete write before a crash.
    pub torn: u64,
    /// Bytes skipped before further complete frames, or in frames that could not be decoded.
    pub damaged: u64,
    /// The version in the header, if it is not supported.
    pub version: Option<u32>,
}

/// Receives the contents of a segment: one call per row or point, in the order in which they were
/// written.
pub(crate) trait LogVisitor {
    fn row(&mut self, time: Millis, row: &GroupRow);
    fn point(&mut self, point: &Point);
}

/// Replays a segment: first all definitions, then the samples in their order.
pub(crate) fn replay(bytes: &[u8], visitor: &mut dyn LogVisitor) -> ReplayReport {
    let mut replayed = ReplayReport::default();
    match read_header(bytes) {
        HeaderCheck::Good => {}
        HeaderCheck::Torn => {
            replayed.torn = bytes.len() as u64;
            return replayed;
        }
        HeaderCheck::Version(version) => {
            replayed.version = Some(version);
            return replayed;
        }
        // Frames have their own marks and checksums, so they are replayed regardless.
        HeaderCheck::Damaged => replayed.damaged += HEADER_LEN as u64,
    }
    let frames = find_frames(bytes, &mut replayed);
    let mut definitions = SegmentDefinitions::default();
    for frame in frames
        .iter()
        .filter(|frame| matches!(frame.kind, GROUP_FRAME | SERIES_FRAME))
    {
        if definitions.read(frame.kind, frame.payload).is_err() {
            replayed.damaged += frame.payload.len() as u64;
        }
    }
    let mut samples = SampleDecoder {
        definitions,
        visitor,
    };
    for frame in &frames {
        if frame.after_damage {
            samples.discard_base_rows();
        }
        let result = match frame.kind {
            TICK_FRAME => samples.tick(frame.payload),
            PUSH_FRAME => samples.push(frame.payload),
            _ => Ok(()),
        };
        if result.is_err() {
            replayed.damaged += frame.payload.len() as u64;
        }
    }
    replayed
}

enum HeaderCheck {
    Good,
    Torn,
    Damaged,
    Version(u32),
}

/// Returns the version in the header of a segment if it is not the supported one; `None` for a
/// damaged header.
pub(crate) fn unsupported_version(header: &[u8]) -> Option<u32> {
    match read_header(header) {
        HeaderCheck::Version(version) => Some(version),
        _ => None,
    }
}

fn read_header(bytes: &[u8]) -> HeaderCheck {
    let Some(header) = bytes.get(..HEADER_LEN) else {
        return HeaderCheck::Torn;
    };
    if header.iter().all(|byte| *byte == 0) {
        return if bytes.iter().all(|byte| *byte == 0) {
            HeaderCheck::Torn
        } else {
            HeaderCheck::Damaged
        };
    }
    let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"));
    if &header[..8] != MAGIC || word(20) != crc32fast::hash(&header[..20]) {
        return HeaderCheck::Damaged;
    }
    match word(8) {
        FORMAT_VERSION => HeaderCheck::Good,
        version => HeaderCheck::Version(version),
    }
}

struct LogFrame<'a> {
    kind: u8,
    payload: &'a [u8],
    after_damage: bool,
}

/// Finds the complete frames of a segment and counts the bytes between and after them.
fn find_frames<'a>(bytes: &'a [u8], replayed: &mut ReplayReport) -> Vec<LogFrame<'a>> {
    let mut frames = Vec::new();
    let mut at = HEADER_LEN;
    let mut after_damage = false;
    // The search for the next complete frame reads each claimed payload; the sum of these reads is
    // bounded too.
    let mut budget = bytes.len().saturating_mul(16);
    while at < bytes.len() {
        if let Some((kind, payload)) = frame_at(&bytes[at..], &mut budget) {
            frames.push(LogFrame {
                kind,
                payload,
                after_damage,
            });
            after_damage = false;
            at += FRAME_HEAD_LEN + payload.len();
            continue;
        }
        let next =
            (at + 1..bytes.len()).find(|&next| frame_at(&bytes[next..], &mut budget).is_some());
        match next {
            Some(next) => {
                replayed.damaged += (next - at) as u64;
                after_damage = true;
                at = next;
            }
            None => {
                replayed.torn = (bytes.len() - at) as u64;
                break;
            }
        }
    }
    frames
}

/// Returns the kind and payload of the frame at the start of `bytes`, if its checksum is right.
fn frame_at<'a>(bytes: &'a [u8], budget: &mut usize) -> Option<(u8, &'a [u8])> {
    if bytes.len() < FRAME_HEAD_LEN || bytes[..2] != FRAME_MARK || bytes[3] != 0 {
        return None;
    }
    let kind = bytes[2];
    let len = u32::from_le_bytes(bytes[4..8].try_into().expect("four bytes")) as usize;
    let crc = u32::from_le_bytes(bytes[8..12].try_into().expect("four bytes"));
    if len > FRAME_LEN_MAX || bytes.len() - FRAME_HEAD_LEN < len {
        return None;
    }
    *budget = budget.checked_sub(len)?;
    let frame = &bytes[..FRAME_HEAD_LEN + len];
    (frame_crc(frame) == crc).then_some((kind, &frame[FRAME_HEAD_LEN..]))
}

/// The definitions in a segment. Ids are never reused, so their order does not matter.
#[derive(Debug, Default)]
struct SegmentDefinitions {
    groups: HashMap<u64, GroupDecoder>,
    series: HashMap<u64, Arc<Series>>,
}

#[derive(Debug)]
struct GroupDecoder {
    row: GroupRow,
    previous: Vec<u64>,
    /// False after damage, until the next key row.
    has_base_row: bool,
}

impl SegmentDefinitions {
    fn read(&mut self, kind: u8, payload: &[u8]) -> Result<(), DecodeError> {
        let raw = unpack(payload)?;
        let mut reader = ByteReader::new(&raw);
        if kind == GROUP_FRAME {
            let id = reader.varint()?;
            let group = reader.str()?.into();
            let stale_after = reader.zigzag()?;
            let count = reader.varint()?;
            let series = read_series(&mut reader, count)?;
            let previous = vec![0; series.len()];
            let members = Arc::new(GroupSeries {
                group,
                series,
                stale_after,
            });
            let row = GroupRow {
                members,
                values: Vec::new(),
                present: Vec::new(),
            };
            self.groups.entry(id).or_insert(GroupDecoder {
                row,
                previous,
                has_base_row: false,
            });
        } else {
            let first = reader.varint()?;
            let count = reader.varint()?;
            let end = first
                .checked_add(count)
                .ok_or(DecodeError("series id overflows"))?;
            for (id, series) in (first..end).zip(read_series(&mut reader, count)?) {
                self.series.insert(id, series);
            }
        }
        Ok(())
    }
}

fn read_series(reader: &mut ByteReader<'_>, count: u64) -> Result<Vec<Arc<Series>>, DecodeError> {
    if count > SERIES_MAX {
        return Err(DecodeError("too many series"));
    }
    let mut table = SeriesDecoder::default();
    (0..count).map(|_| table.take(reader)).collect()
}

struct SampleDecoder<'a> {
    definitions: SegmentDefinitions,
    visitor: &'a mut dyn LogVisitor,
}

impl SampleDecoder<'_> {
    /// Marks the base rows as lost: rows are skipped until the next key row of their group.
    fn discard_base_rows(&mut self) {
        self.definitions
            .groups
            .values_mut()
            .for_each(|group| group.has_base_row = false);
    }

    fn tick(&mut self, payload: &[u8]) -> Result<(), DecodeError> {
        let mut reader = ByteReader::new(payload);
        reader.u8()?;
        let time = reader.u64()? as Millis;
        let raw = unpack(reader.rest())?;
        let mut reader = ByteReader::new(&raw);
        let count = reader.varint()?;
        let mut result = Ok(());
        for _ in 0..count {
            let len = reader.varint()?;
            let bytes = reader
                .take(usize::try_from(len).map_err(|_| DecodeError("invalid length of a row"))?)?;
            // A row of an unknown group, or without its base row, costs only itself.
            result = result.and(self.row(time, bytes));
        }
        result
    }

    fn row(&mut self, time: Millis, bytes: &[u8]) -> Result<(), DecodeError> {
        let mut reader = ByteReader::new(bytes);
        let id = reader.varint()?;
        let flags = reader.u8()?;
        let group = self
            .definitions
            .groups
            .get_mut(&id)
            .ok_or(DecodeError("row of an unknown group"))?;
        let width = group.previous.len();
        let mut present = vec![u64::MAX; width.div_ceil(64)];
        if flags & ROW_PARTLY_PRESENT != 0 {
            present = decode_bitmap(reader.take(width.div_ceil(8))?);
        }
        if !width.is_multiple_of(64)
            && let Some(last) = present.last_mut()
        {
            *last &= (1 << (width % 64)) - 1;
        }
        if flags & ROW_KEY != 0 {
            group.previous.fill(0);
            group.has_base_row = true;
        }
        if !group.has_base_row {
            return Err(DecodeError("row without its base row"));
        }
        if let Err(error) = codec::decode_row(reader.rest(), &mut group.previous) {
            group.has_base_row = false;
            return Err(error);
        }
        group.row.present = present;
        group.row.values.clear();
        group
            .row
            .values
            .extend(group.previous.iter().map(|bits| f64::from_bits(*bits)));
        self.visitor.row(time, &group.row);
        Ok(())
    }

    fn push(&mut self, payload: &[u8]) -> Result<(), DecodeError> {
        let (_, body) = payload.split_first().ok_or(DecodeError("empty push"))?;
        let raw = unpack(body)?;
        let mut reader = ByteReader::new(&raw);
        let count = reader.varint()?;
        let mut time: Millis = 0;
        let mut result = Ok(());
        for _ in 0..count {
            let id = reader.varint()?;
            time = time.wrapping_add(reader.zigzag()?);
            let value = f64::from_bits(reader.u64()?);
            match self.definitions.series.get(&id) {
                Some(series) => self.visitor.point(&Point {
                    series: series.clone(),
                    time,
                    value,
                }),
                None => result = Err(DecodeError("point of an unknown series")),
            }
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::byte_reader::put_varint;
    use crate::lz4_block::pack;

    /// Found by fuzzing: a valid checksum, and a first id that is the highest possible.
    #[test]
    fn ids_of_series_that_overflow_are_damage() {
        for (first, is_good) in [(0, true), (u64::MAX - 2, true), (u64::MAX - 1, false)] {
            let mut raw = Vec::new();
            put_varint(&mut raw, first);
            put_varint(&mut raw, 2);
            // Name, kind, unit, level, help, labels; then the same family again.
            raw.extend_from_slice(b"\x01m\x01\0\0\0\0");
            raw.extend_from_slice(b"\0\x07{a=\"1\"}");
            let mut payload = Vec::new();
            pack(&raw, &mut payload);
            let read = SegmentDefinitions::default().read(SERIES_FRAME, &payload);
            assert_eq!(read.is_ok(), is_good, "first id {first}: {read:?}");
        }
    }
}
