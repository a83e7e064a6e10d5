//! The columns of a response of `/tree/select`: the times, values and partial results of one
//! series. A column stands alone; it starts with the number of its elements.

use crate::number_forms::{NumberForm, NumberState};
use crate::partial_ticks::{CellState, PartialCell};
use crate::tick_bytes::{TickBytes, TickCodecError, put_varint, put_zigzag};

/// The code in place of a form: the value before is repeated.
const REPEAT: u8 = 7;

/// Fewer equal values than this continue a run of differences: each costs one byte there.
const REPEATS_MIN: usize = 4;

/// Encodes times, which must rise.
pub fn encode_times(times: &[i64]) -> Vec<u8> {
    debug_assert!(times.is_sorted_by(|a, b| a < b), "times rise");
    let mut out = Vec::with_capacity(32);
    put_varint(&mut out, times.len() as u64);
    let Some(&first) = times.first() else {
        return out;
    };
    put_zigzag(&mut out, first);
    let mut before = 0_i64;
    let mut intervals = times
        .windows(2)
        .map(|pair| pair[1].wrapping_sub(pair[0]))
        .peekable();
    while let Some(interval) = intervals.next() {
        let mut repeats = 0;
        while intervals.next_if_eq(&interval).is_some() {
            repeats += 1;
        }
        put_zigzag(&mut out, interval.wrapping_sub(before));
        put_varint(&mut out, repeats);
        before = interval;
    }
    out
}

/// Decodes at most `max` times. They rise.
pub fn decode_times(bytes: &[u8], max: usize) -> Result<Vec<i64>, TickCodecError> {
    let mut bytes = TickBytes::new(bytes);
    let count = bytes.count(max)?;
    let mut times = Vec::new();
    if count > 0 {
        let mut time = bytes.zigzag()?;
        times.push(time);
        let mut interval = 0_i64;
        while times.len() < count {
            interval = interval.wrapping_add(bytes.zigzag()?);
            let repeats = bytes.count(count - times.len() - 1)?;
            times.reserve(repeats + 1);
            for _ in 0..=repeats {
                // As unsigned: an interval may exceed half of the range.
                let next = time.checked_add_unsigned(interval as u64);
                let next = next.filter(|&next| next > time);
                time = next.ok_or(TickCodecError::TimeOrder)?;
                times.push(time);
            }
        }
    }
    bytes.end()?;
    Ok(times)
}

/// Encodes values, to the bit.
pub fn encode_values(values: &[f64]) -> Vec<u8> {
    let mut out = Vec::with_capacity(16 + 2 * values.len());
    put_varint(&mut out, values.len() as u64);
    let mut state = NumberState::default();
    let mut run = ValueRun::default();
    let mut rest = values;
    while let Some(&value) = rest.first() {
        let repeats = rest.iter().take_while(|value| state.is_same(**value));
        let repeats = repeats.count();
        if repeats >= REPEATS_MIN {
            run.finish(&mut out);
            put_varint(&mut out, (repeats as u64) << 3 | u64::from(REPEAT));
            rest = &rest[repeats..];
            continue;
        }
        let number = state.choose(value);
        if run.form != number.form {
            run.finish(&mut out);
            run.form = number.form;
        }
        state.write(number, &mut run.payload);
        run.count += 1;
        rest = &rest[1..];
    }
    run.finish(&mut out);
    out
}

/// Values of one form that are not written yet, because their number comes first.
#[derive(Debug, Default)]
struct ValueRun {
    form: NumberForm,
    count: u64,
    payload: Vec<u8>,
}

impl ValueRun {
    fn finish(&mut self, out: &mut Vec<u8>) {
        if self.count > 0 {
            put_varint(out, self.count << 3 | self.form as u64);
            out.append(&mut self.payload);
            self.count = 0;
        }
    }
}

/// Decodes at most `max` values.
pub fn decode_values(bytes: &[u8], max: usize) -> Result<Vec<f64>, TickCodecError> {
    let mut bytes = TickBytes::new(bytes);
    let count = bytes.count(max)?;
    // A value has at least one byte, unless it is repeated.
    let mut values = Vec::with_capacity(count.min(bytes.len()));
    let mut state = NumberState::default();
    while values.len() < count {
        let header = bytes.varint()?;
        let (run, code) = (header >> 3, (header & 7) as u8);
        let limit = count - values.len();
        let run_fits = usize::try_from(run).ok();
        let run_fits = run_fits.filter(|run| (1..=limit).contains(run));
        let run = run_fits.ok_or(TickCodecError::TooMany { count: run, limit })?;
        if code == REPEAT {
            values.resize(values.len() + run, state.value);
            continue;
        }
        let form = NumberForm::from_code(code)?;
        for _ in 0..run {
            state.read(form, &mut bytes)?;
            values.push(state.value);
        }
    }
    bytes.end()?;
    Ok(values)
}

/// Encodes the partial results of one series.
pub fn encode_partials(cells: &[PartialCell]) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, cells.len() as u64);
    let mut state = CellState::default();
    for cell in cells {
        state.write(cell, &mut out);
    }
    out
}

/// Decodes at most `max` partial results.
pub fn decode_partials(bytes: &[u8], max: usize) -> Result<Vec<PartialCell>, TickCodecError> {
    let mut bytes = TickBytes::new(bytes);
    let count = bytes.count(max)?;
    // A cell has at least one byte.
    if count > bytes.len() {
        return Err(TickCodecError::Truncated);
    }
    let mut cells = Vec::with_capacity(count);
    let mut state = CellState::default();
    for _ in 0..count {
        state.read(&mut bytes)?;
        cells.push(state.cell.clone());
    }
    bytes.end()?;
    Ok(cells)
}
