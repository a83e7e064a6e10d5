//! The ticks of a leaf: the values of its series, as differences to the tick before on the same
//! stream. The child encodes, its parent decodes. Only series that changed, appeared or became
//! absent are written; docs/tree-protocol.md has the bytes.
//!
//! The decoder reads untrusted bytes. Ids are checked against the number of series before memory
//! is allocated for them. After an error both sides disagree about earlier values, so that a
//! decoder refuses everything from then on: the stream must be closed.

use bytes::Bytes;

use crate::number_forms::{NumberForm, NumberState};
use crate::tick_bytes::{TickBytes, TickCodecError, put_varint};

/// The code in place of a form: the series is absent from this tick on.
pub(crate) const ABSENT: u8 = 7;

/// The gap of ids that fits into the first byte of an entry; this and larger ones need a varint.
const SHORT_GAPS: u32 = 31;

/// Writes the first byte of each entry: the code, and the number of ids that are skipped.
#[derive(Debug)]
pub(crate) struct EntryWriter {
    pub(crate) out: Vec<u8>,
    next_id: u32,
}

impl EntryWriter {
    pub(crate) fn new(capacity: usize) -> EntryWriter {
        EntryWriter {
            out: Vec::with_capacity(capacity),
            next_id: 0,
        }
    }

    #[inline]
    pub(crate) fn entry(&mut self, id: u32, code: u8) {
        let gap = id - self.next_id;
        self.out.push((gap.min(SHORT_GAPS) as u8) << 3 | code);
        if gap >= SHORT_GAPS {
            put_varint(&mut self.out, u64::from(gap - SHORT_GAPS));
        }
        self.next_id = id + 1;
    }
}

/// Reads the first bytes of entries.
#[derive(Debug)]
pub(crate) struct EntryReader<'a> {
    pub(crate) bytes: TickBytes<'a>,
    next_id: u64,
    limit: usize,
}

impl<'a> EntryReader<'a> {
    pub(crate) fn new(bytes: &'a [u8], limit: usize) -> EntryReader<'a> {
        EntryReader {
            bytes: TickBytes::new(bytes),
            next_id: 0,
            limit,
        }
    }

    /// Returns the id and the code of the next entry.
    #[inline]
    pub(crate) fn entry(&mut self) -> Result<Option<(u32, u8)>, TickCodecError> {
        if self.bytes.is_empty() {
            return Ok(None);
        }
        let first = self.bytes.u8()?;
        let mut gap = u64::from(first >> 3);
        if gap >= u64::from(SHORT_GAPS) {
            gap = gap.saturating_add(self.bytes.varint()?);
        }
        let id = self.next_id.saturating_add(gap);
        let limit = self.limit;
        let fitting = u32::try_from(id).ok();
        let fitting = fitting.filter(|&id| (id as usize) < limit);
        let fitting = fitting.ok_or(TickCodecError::SeriesId { id, limit })?;
        self.next_id = id + 1;
        Ok(Some((fitting, first & 7)))
    }
}

/// A series of a stream.
#[derive(Debug, Clone, Copy, Default)]
struct TickSeries {
    number: NumberState,
    is_present: bool,
}

/// Encodes the ticks of one stream.
#[derive(Debug, Default)]
pub struct ValueTickEncoder {
    series: Vec<TickSeries>,
    /// The size of the last tick, as the capacity of the next one.
    capacity: usize,
}

impl ValueTickEncoder {
    pub fn new() -> ValueTickEncoder {
        ValueTickEncoder::default()
    }

    /// Encodes the next tick. `values` is sorted by id, without duplicates; ids that are not listed
    /// are absent in this tick.
    pub fn encode(&mut self, values: &[(u32, f64)]) -> Bytes {
        debug_assert!(values.is_sorted_by(|a, b| a.0 < b.0), "sorted by id");
        if let Some(&(last, _)) = values.last()
            && last as usize >= self.series.len()
        {
            self.series.resize(last as usize + 1, TickSeries::default());
        }
        let mut writer = EntryWriter::new(self.capacity + 16);
        let mut values = values.iter().peekable();
        for (id, series) in (0_u32..).zip(&mut self.series) {
            if let Some(&(_, value)) = values.next_if(|listed| listed.0 == id) {
                if !series.is_present || !series.number.is_same(value) {
                    let number = series.number.choose(value);
                    writer.entry(id, number.form as u8);
                    series.number.write(number, &mut writer.out);
                    series.is_present = true;
                }
            } else if series.is_present {
                series.is_present = false;
                writer.entry(id, ABSENT);
            }
        }
        self.capacity = writer.out.len();
        writer.out.into()
    }
}

/// Decodes the ticks of one stream.
#[derive(Debug)]
pub struct ValueTickDecoder {
    series: Vec<TickSeries>,
    series_max: usize,
    is_failed: bool,
}

impl ValueTickDecoder {
    /// Accepts ids below `series_max`.
    pub fn new(series_max: usize) -> ValueTickDecoder {
        ValueTickDecoder {
            series: Vec::new(),
            series_max,
            is_failed: false,
        }
    }

    /// Changes the limit of ids, for callers that accept only ids that were defined.
    pub fn set_series_max(&mut self, series_max: usize) {
        self.series_max = series_max;
    }

    /// Decodes the next tick. After an error no series has a value, and every further call fails.
    pub fn decode(&mut self, bytes: &[u8]) -> Result<(), TickCodecError> {
        if self.is_failed {
            return Err(TickCodecError::Failed);
        }
        let decoded = self.read_entries(bytes);
        if decoded.is_err() {
            self.is_failed = true;
            self.series = Vec::new();
        }
        decoded
    }

    fn read_entries(&mut self, bytes: &[u8]) -> Result<(), TickCodecError> {
        let mut reader = EntryReader::new(bytes, self.series_max);
        while let Some((id, code)) = reader.entry()? {
            let index = id as usize;
            if code == ABSENT {
                let series = self.series.get_mut(index);
                let series = series.filter(|series| series.is_present);
                series.ok_or(TickCodecError::AbsentBefore(id))?.is_present = false;
                continue;
            }
            if index >= self.series.len() {
                self.series.resize(index + 1, TickSeries::default());
            }
            let series = &mut self.series[index];
            let form = NumberForm::from_code(code)?;
            series.number.read(form, &mut reader.bytes)?;
            series.is_present = true;
        }
        Ok(())
    }

    /// Returns the value of a series in the newest tick; `None` if it is absent.
    pub fn value(&self, id: u32) -> Option<f64> {
        let series = self.series.get(id as usize)?;
        series.is_present.then_some(series.number.value)
    }

    /// Returns the values of the newest tick, sorted by id.
    pub fn values(&self) -> impl Iterator<Item = (u32, f64)> + '_ {
        let present = (0_u32..).zip(&self.series);
        let present = present.filter(|(_, series)| series.is_present);
        present.map(|(id, series)| (id, series.number.value))
    }
}
