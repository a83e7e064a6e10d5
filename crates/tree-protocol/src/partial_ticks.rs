//! The ticks of a parent: partial results over itself and all nodes below it, as differences to
//! the tick before on the same stream. The entries are those of [`value_ticks`](crate::value_ticks)
//! with a cell in place of a value.

use bytes::Bytes;

use crate::limits::{SKETCH_BYTES_MAX, SKETCHES_BYTES_MAX};
use crate::number_forms::{NumberForm, NumberState};
use crate::tick_bytes::{TickBytes, TickCodecError, put_varint, put_zigzag};
use crate::value_ticks::{ABSENT, EntryReader, EntryWriter};

/// The code of an entry that has a cell.
const CELL: u8 = 0;

/// The partial result of one series. For a counter `sum`, `min`, `max` and `sketch` are those of
/// the increase per second, and `total` is the sum of the totals; for a gauge `total` is 0.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PartialCell {
    pub count: u64,
    pub sum: f64,
    pub min: f64,
    pub max: f64,
    pub total: f64,
    /// The distribution of values, in the coding of `pegel-reduction`.
    pub sketch: Bytes,
}

/// The bits of the first byte of a cell: which parts differ from the cell before.
mod cell_parts {
    pub(super) const COUNT: u8 = 1;
    /// The first of four bits: sum, min, max, total.
    pub(super) const NUMBERS: u8 = 1 << 1;
    pub(super) const SKETCH: u8 = 1 << 5;
    /// All numbers that are written keep their forms, and no forms are written.
    pub(super) const SAME_FORMS: u8 = 1 << 6;
    pub(super) const UNKNOWN: u8 = 1 << 7;
}

/// The last cell of a sequence, as both sides know it.
#[derive(Debug, Clone, Default)]
pub(crate) struct CellState {
    pub(crate) cell: PartialCell,
    /// Sum, min, max, total.
    numbers: [NumberState; 4],
}

impl CellState {
    fn is_same(&self, cell: &PartialCell) -> bool {
        let numbers = [cell.sum, cell.min, cell.max, cell.total];
        let mut states = self.numbers.iter().zip(numbers);
        self.cell.count == cell.count
            && states.all(|(state, number)| state.is_same(number))
            && self.cell.sketch == cell.sketch
    }

    pub(crate) fn write(&mut self, cell: &PartialCell, out: &mut Vec<u8>) {
        let formed = [0, 1, 2, 3].map(|index| {
            let value = [cell.sum, cell.min, cell.max, cell.total][index];
            let state = &self.numbers[index];
            (!state.is_same(value)).then(|| state.choose(value))
        });
        let mut numbers = self.numbers.iter().zip(&formed);
        let keeps_forms =
            numbers.all(|(state, number)| number.is_none_or(|number| number.form == state.form()));
        let mut parts = 0;
        if cell.count != self.cell.count {
            parts |= cell_parts::COUNT;
        }
        for (index, number) in formed.iter().enumerate() {
            parts |= (u8::from(number.is_some()) * cell_parts::NUMBERS) << index;
        }
        if cell.sketch != self.cell.sketch {
            parts |= cell_parts::SKETCH;
        }
        if keeps_forms {
            parts |= cell_parts::SAME_FORMS;
        }
        out.push(parts);
        if parts & cell_parts::COUNT != 0 {
            put_zigzag(out, cell.count.wrapping_sub(self.cell.count) as i64);
        }
        for (state, number) in self.numbers.iter_mut().zip(formed) {
            let Some(number) = number else { continue };
            if !keeps_forms {
                out.push(number.form as u8);
            }
            state.write(number, out);
        }
        if parts & cell_parts::SKETCH != 0 {
            put_varint(out, cell.sketch.len() as u64);
            out.extend_from_slice(&cell.sketch);
        }
        self.cell.clone_from(cell);
    }

    pub(crate) fn read(&mut self, bytes: &mut TickBytes<'_>) -> Result<(), TickCodecError> {
        let parts = bytes.u8()?;
        if parts & cell_parts::UNKNOWN != 0 {
            return Err(TickCodecError::Form(parts));
        }
        if parts & cell_parts::COUNT != 0 {
            self.cell.count = self.cell.count.wrapping_add(bytes.zigzag()? as u64);
        }
        for (index, state) in self.numbers.iter_mut().enumerate() {
            if parts & cell_parts::NUMBERS << index == 0 {
                continue;
            }
            let form = match parts & cell_parts::SAME_FORMS {
                0 => NumberForm::from_code(bytes.u8()?)?,
                _ => state.form(),
            };
            state.read(form, bytes)?;
        }
        [self.cell.sum, self.cell.min, self.cell.max, self.cell.total] =
            self.numbers.map(|state| state.value);
        if parts & cell_parts::SKETCH != 0 {
            let length = bytes.varint()?;
            let limit = SKETCH_BYTES_MAX;
            if length > limit as u64 {
                return Err(TickCodecError::SketchSize { length, limit });
            }
            self.cell.sketch = Bytes::copy_from_slice(bytes.take(length as usize)?);
        }
        Ok(())
    }
}

/// A series of a stream.
#[derive(Debug, Clone, Default)]
struct PartialSeries {
    state: CellState,
    is_present: bool,
}

/// Encodes the ticks of one stream.
#[derive(Debug, Default)]
pub struct PartialTickEncoder {
    series: Vec<PartialSeries>,
    /// The size of the last tick, as the capacity of the next one.
    capacity: usize,
}

impl PartialTickEncoder {
    pub fn new() -> PartialTickEncoder {
        PartialTickEncoder::default()
    }

    /// Encodes the next tick. `cells` is sorted by id, without duplicates; ids that are not listed
    /// are absent in this tick.
    pub fn encode(&mut self, cells: &[(u32, PartialCell)]) -> Bytes {
        debug_assert!(cells.is_sorted_by(|a, b| a.0 < b.0), "sorted by id");
        if let Some(&(last, _)) = cells.last()
            && last as usize >= self.series.len()
        {
            self.series
                .resize(last as usize + 1, PartialSeries::default());
        }
        let mut writer = EntryWriter::new(self.capacity + 16);
        let mut cells = cells.iter().peekable();
        for (id, series) in (0_u32..).zip(&mut self.series) {
            if let Some((_, cell)) = cells.next_if(|listed| listed.0 == id) {
                if !series.is_present || !series.state.is_same(cell) {
                    writer.entry(id, CELL);
                    series.state.write(cell, &mut writer.out);
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
pub struct PartialTickDecoder {
    series: Vec<PartialSeries>,
    series_max: usize,
    /// The bytes of all sketches, also of series that are absent: they are kept.
    sketches: usize,
    is_failed: bool,
}

impl PartialTickDecoder {
    /// Accepts ids below `series_max`.
    pub fn new(series_max: usize) -> PartialTickDecoder {
        PartialTickDecoder {
            series: Vec::new(),
            series_max,
            sketches: 0,
            is_failed: false,
        }
    }

    /// Changes the limit of ids, for callers that accept only ids that were defined.
    pub fn set_series_max(&mut self, series_max: usize) {
        self.series_max = series_max;
    }

    /// Decodes the next tick. After an error no series has a cell, and every further call fails.
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
            match code {
                ABSENT => {
                    let series = self.series.get_mut(index);
                    let series = series.filter(|series| series.is_present);
                    series.ok_or(TickCodecError::AbsentBefore(id))?.is_present = false;
                }
                CELL => {
                    if index >= self.series.len() {
                        self.series.resize(index + 1, PartialSeries::default());
                    }
                    let series = &mut self.series[index];
                    self.sketches -= series.state.cell.sketch.len();
                    series.state.read(&mut reader.bytes)?;
                    self.sketches += series.state.cell.sketch.len();
                    if self.sketches > SKETCHES_BYTES_MAX {
                        let limit = SKETCHES_BYTES_MAX;
                        return Err(TickCodecError::SketchesSize { limit });
                    }
                    series.is_present = true;
                }
                other => return Err(TickCodecError::Form(other)),
            }
        }
        Ok(())
    }

    /// Returns the cell of a series in the newest tick; `None` if it is absent.
    pub fn cell(&self, id: u32) -> Option<&PartialCell> {
        let series = self.series.get(id as usize)?;
        series.is_present.then_some(&series.state.cell)
    }

    /// Returns the cells of the newest tick, sorted by id.
    pub fn cells(&self) -> impl Iterator<Item = (u32, &PartialCell)> + '_ {
        let present = (0_u32..).zip(&self.series);
        let present = present.filter(|(_, series)| series.is_present);
        present.map(|(id, series)| (id, &series.state.cell))
    }
}
