//! Decodes the frames of a segment: definitions of groups and series, rows of ticks, and points.
//! Used by the replay at opening and by readers of the log. Damaged input never causes a panic or
//! an unbounded allocation.

use std::collections::HashMap;
use std::sync::Arc;

use pegel_metric::{GroupRow, GroupSeries, Millis, Series};

use crate::codec::byte_reader::ByteReader;
use crate::codec::{self, DecodeError};
use crate::lz4_block::unpack;
use crate::sample_run::decode_bitmap;
use crate::series_codec::SeriesDecoder;

use super::{GROUP_FRAME, PUSH_FRAME, ROW_KEY, ROW_PARTLY_PRESENT, SERIES_FRAME, TICK_FRAME};

/// The most members of a group and series of a segment, so that a damaged count cannot cause a huge
/// allocation.
const SERIES_MAX: u64 = 16 << 20;
/// The most ids that may be missing from the list of series, because their definition is damaged.
const LIST_GAP_MAX: usize = 1 << 20;

/// Receives the contents of a segment: one call per row or point, in the order in which they were
/// written. Groups and series have numbers that are valid within their segment, so that a reader
/// can keep its state of them in a list.
pub trait LogVisitor {
    /// Receives a row of the group version with this number.
    fn row(&mut self, time: Millis, group: u64, row: &GroupRow);
    /// Receives a point of the series with this number.
    fn point(&mut self, number: u64, series: &Arc<Series>, time: Millis, value: f64);
}

/// The definitions in a segment. Ids are never reused, so their order does not matter.
#[derive(Debug, Default)]
struct SegmentDefinitions {
    groups: HashMap<u64, GroupDecoder>,
    series: SeriesById,
}

/// The series of a segment. Their ids count up from 0, so a list holds them; ids far beyond it,
/// which only a damaged log has, are in a map.
#[derive(Debug, Default)]
struct SeriesById {
    list: Vec<Option<Arc<Series>>>,
    others: HashMap<u64, Arc<Series>>,
}

impl SeriesById {
    fn insert(&mut self, id: u64, series: Arc<Series>) {
        match usize::try_from(id) {
            Ok(at) if at <= self.list.len() + LIST_GAP_MAX => {
                if self.list.len() <= at {
                    self.list.resize(at + 1, None);
                }
                self.list[at] = Some(series);
            }
            _ => drop(self.others.insert(id, series)),
        }
    }

    #[inline]
    fn get(&self, id: u64) -> Option<&Arc<Series>> {
        match self.list.get(usize::try_from(id).ok()?) {
            Some(series) => series.as_ref(),
            None => self.others.get(&id),
        }
    }
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

/// Decodes the frames of one segment, in the order in which they were written.
#[derive(Debug, Default)]
pub(crate) struct SegmentDecoder {
    definitions: SegmentDefinitions,
}

impl SegmentDecoder {
    /// Decodes one frame. The readable part of a damaged frame is visited before the error is
    /// returned.
    pub(super) fn frame(
        &mut self,
        kind: u8,
        payload: &[u8],
        visitor: &mut dyn LogVisitor,
    ) -> Result<(), DecodeError> {
        match kind {
            GROUP_FRAME | SERIES_FRAME => self.definitions.read(kind, payload),
            TICK_FRAME => self.tick(payload, visitor),
            PUSH_FRAME => self.push(payload, visitor),
            _ => Ok(()),
        }
    }

    /// Marks the base rows as lost: rows are skipped until the next key row of their group.
    pub(super) fn discard_base_rows(&mut self) {
        self.definitions
            .groups
            .values_mut()
            .for_each(|group| group.has_base_row = false);
    }

    fn tick(&mut self, payload: &[u8], visitor: &mut dyn LogVisitor) -> Result<(), DecodeError> {
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
            // A row of an unknown group or without its base row is skipped; the others are read.
            result = result.and(self.row(time, bytes, visitor));
        }
        result
    }

    fn row(
        &mut self,
        time: Millis,
        bytes: &[u8],
        visitor: &mut dyn LogVisitor,
    ) -> Result<(), DecodeError> {
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
        visitor.row(time, id, &group.row);
        Ok(())
    }

    fn push(&mut self, payload: &[u8], visitor: &mut dyn LogVisitor) -> Result<(), DecodeError> {
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
            match self.definitions.series.get(id) {
                Some(series) => visitor.point(id, series, time, value),
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
            pack(&raw, &mut payload).expect("short");
            let read = SegmentDefinitions::default().read(SERIES_FRAME, &payload);
            assert_eq!(read.is_ok(), is_good, "first id {first}: {read:?}");
        }
    }
}
