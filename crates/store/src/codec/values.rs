//! A column of values: picks the form, writes it and reads it back. The forms are described in the
//! module above.

use super::bits::{pack, packed_len, unpack};
use super::bytes::Reader;
use super::decimal::{EXPONENT_MAX, Scale, divisor, from_ordered, to_integers};
use super::frame::Frame;
use super::{Corrupt, ROWS_MAX, entropy};

const RAW: u8 = 0;
const CONSTANT: u8 = 1;
const PACKED: u8 = 2;
const PACKED_DELTA: u8 = 3;
const ENTROPY: u8 = 4;
const ENTROPY_DELTA: u8 = 5;

/// In the place of an exponent: the integers are ordered bits.
const BITS: u8 = 15;

/// Quick, and small where values are decimals.
pub(crate) fn encode_quick(values: &[f64], out: &mut Vec<u8>) {
    encode(values, false, out);
}

/// As small as it gets, at several times the cost.
pub(crate) fn encode_small(values: &[f64], out: &mut Vec<u8>) {
    encode(values, true, out);
}

fn encode(values: &[f64], small: bool, out: &mut Vec<u8>) {
    assert!(values.len() <= ROWS_MAX, "a column holds at most {ROWS_MAX} values");
    let Some(first) = values.first() else {
        return;
    };
    let bits = first.to_bits();
    if values.iter().all(|value| value.to_bits() == bits) {
        out.push(CONSTANT);
        // Short numbers end in zero bytes.
        let kept = 8 - bits.trailing_zeros() as usize / 8;
        out.extend_from_slice(&bits.to_be_bytes()[..kept]);
        return;
    }
    let start = out.len();
    let raw = 1 + 8 * values.len();
    let mut integers = Vec::new();
    let mut offsets = Vec::new();
    let scale = to_integers(values, &mut integers);
    let frame = Frame::narrower(&integers, &mut offsets);
    if small {
        put_head(ENTROPY, scale, &frame, out);
        let head = out.len();
        entropy::encode(&offsets, frame.width, out);
        if out.len() - head < packed_len(frame.width, offsets.len()) && out.len() - start < raw {
            return;
        }
        out.truncate(start);
    }
    put_head(PACKED, scale, &frame, out);
    pack(&offsets, frame.width, out);
    if out.len() - start >= raw {
        out.truncate(start);
        out.push(RAW);
        out.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    }
}

fn put_head(form: u8, scale: Scale, frame: &Frame, out: &mut Vec<u8>) {
    let scale = match scale {
        Scale::Decimal(exponent) => exponent,
        Scale::Bits => BITS,
    };
    out.push(form + u8::from(frame.delta) | scale << 4);
    frame.put(out);
}

/// Appends exactly `rows` values, or nothing and an error.
pub(crate) fn decode_values(bytes: &[u8], rows: usize, out: &mut Vec<f64>) -> Result<(), Corrupt> {
    let start = out.len();
    decode(bytes, rows, out).inspect_err(|_| out.truncate(start))
}

fn decode(bytes: &[u8], rows: usize, out: &mut Vec<f64>) -> Result<(), Corrupt> {
    if rows > ROWS_MAX {
        return Err(Corrupt("a column has too many values"));
    }
    if rows == 0 {
        return if bytes.is_empty() { Ok(()) } else { Err(Corrupt("a column without values is not empty")) };
    }
    let mut reader = Reader::new(bytes);
    let head = reader.u8()?;
    match head & 0x0f {
        RAW if head == RAW => decode_raw(reader.rest(), rows, out),
        CONSTANT if head == CONSTANT => decode_constant(reader.rest(), rows, out),
        form @ PACKED..=ENTROPY_DELTA => decode_frame(form, scale_of(head)?, reader, rows, out),
        _ => Err(Corrupt("a column has an unknown form")),
    }
}

fn scale_of(head: u8) -> Result<Scale, Corrupt> {
    match head >> 4 {
        exponent @ 0..=EXPONENT_MAX => Ok(Scale::Decimal(exponent)),
        BITS => Ok(Scale::Bits),
        _ => Err(Corrupt("a column has an unknown exponent")),
    }
}

fn decode_raw(bytes: &[u8], rows: usize, out: &mut Vec<f64>) -> Result<(), Corrupt> {
    let (values, []) = bytes.as_chunks() else {
        return Err(Corrupt("raw values end early"));
    };
    if values.len() != rows {
        return Err(Corrupt("raw values do not fill their place"));
    }
    out.extend(values.iter().map(|bytes| f64::from_le_bytes(*bytes)));
    Ok(())
}

fn decode_constant(bytes: &[u8], rows: usize, out: &mut Vec<f64>) -> Result<(), Corrupt> {
    let mut bits = [0; 8];
    bits.get_mut(..bytes.len()).ok_or(Corrupt("a constant is too long"))?.copy_from_slice(bytes);
    out.resize(out.len() + rows, f64::from_be_bytes(bits));
    Ok(())
}

fn decode_frame(form: u8, scale: Scale, mut reader: Reader<'_>, rows: usize, out: &mut Vec<f64>) -> Result<(), Corrupt> {
    let frame = Frame::read(&mut reader, matches!(form, PACKED_DELTA | ENTROPY_DELTA))?;
    let start = out.len();
    out.resize(start + rows, 0.0);
    let slots = &mut out[start..];
    // The offsets go where the values will be, as bits, and are turned into values in place.
    let offsets = &mut slots[usize::from(frame.delta)..];
    match form {
        PACKED | PACKED_DELTA => unpack(reader.rest(), frame.width, offsets, f64::from_bits)?,
        _ => entropy::decode(reader.rest(), frame.width, offsets, f64::from_bits)?,
    }
    match scale {
        Scale::Bits => frame.resolve(slots, from_ordered),
        Scale::Decimal(0) => frame.resolve(slots, |integer| integer as f64),
        Scale::Decimal(exponent) => {
            frame.resolve(slots, |integer| integer as f64);
            let divisor = divisor(exponent);
            slots.iter_mut().for_each(|slot| *slot /= divisor);
        }
    }
    Ok(())
}
