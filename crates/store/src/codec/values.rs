//! Encodes and decodes a column of values: chooses the form, writes it and reads it back. The forms
//! are described in `codec/mod.rs`.

use super::bits::{pack, unpack};
use super::byte_reader::ByteReader;
use super::decimal::{EXPONENT_MAX, ValueScale, from_ordered, resolve_decimals, to_integers};
use super::frame_of_reference::FrameOfReference;
use super::repeats::{count_changes, drop_repeats, expand, read_bitmap};
use super::{DecodeError, ROWS_MAX, entropy};

const RAW: u8 = 0;
const CONSTANT: u8 = 1;
/// This and the next two forms have a code one higher for a frame of differences.
const PACKED: u8 = 2;
const ENTROPY: u8 = 4;
const PACKED_CHANGES: u8 = 6;
const FLOATS: u8 = 8;

/// Stored instead of an exponent: the integers are ordered bits.
const BITS: u8 = 15;

/// At this size the search for a smaller form stops.
const SMALL_ENOUGH: usize = 16;

/// Encodes quickly; the result is small where values are decimals or rarely change.
pub(crate) fn encode_quick(values: &[f64], out: &mut Vec<u8>) {
    let start = out.len();
    put_packed(values, out);
    raw_if_smaller(values, start, out);
}

/// Encodes as small as possible, at several times the cost.
pub(crate) fn encode_small(values: &[f64], out: &mut Vec<u8>) {
    let start = out.len();
    if let Some((scale, integers)) = put_packed(values, out)
        && out.len() - start > SMALL_ENOUGH
    {
        if scale == ValueScale::Bits && values.iter().all(|value| value.is_finite()) {
            keep_smaller(start, out, |out| {
                out.push(FLOATS);
                entropy::encode_floats(values, out);
            });
        } else {
            keep_smaller(start, out, |out| put_entropy(scale, &integers, true, out));
            // For increasing values the differences are always smaller.
            if !integers.is_sorted() {
                keep_smaller(start, out, |out| put_entropy(scale, &integers, false, out));
            }
        }
    }
    raw_if_smaller(values, start, out);
}

/// Writes the quick form. Returns the values as integers unless nothing can be smaller.
fn put_packed(values: &[f64], out: &mut Vec<u8>) -> Option<(ValueScale, Vec<i64>)> {
    assert!(
        values.len() <= ROWS_MAX,
        "a column holds at most {ROWS_MAX} values"
    );
    let first = values.first()?;
    let changes = count_changes(values);
    if changes == 0 {
        put_constant(first.to_bits(), out);
        return None;
    }
    let mut integers = Vec::new();
    let scale = to_integers(values, &mut integers);
    let start = out.len();
    let mut offsets = Vec::new();
    let frame = FrameOfReference::narrower(&integers, &mut offsets);
    put_head(PACKED, scale, &frame, out);
    pack(&offsets, frame.width, out);
    if 2 * changes < values.len() {
        keep_smaller(start, out, |out| put_changes(scale, &integers, out));
    }
    Some((scale, integers))
}

fn put_constant(bits: u64, out: &mut Vec<u8>) {
    out.push(CONSTANT);
    // Short numbers end in zero bytes.
    let kept = 8 - bits.trailing_zeros() as usize / 8;
    out.extend_from_slice(&bits.to_be_bytes()[..kept]);
}

fn put_changes(scale: ValueScale, integers: &[i64], out: &mut Vec<u8>) {
    let mut bitmap = Vec::new();
    let kept = drop_repeats(integers, &mut bitmap);
    let mut offsets = Vec::new();
    let frame = FrameOfReference::narrower(&kept, &mut offsets);
    put_head(PACKED_CHANGES, scale, &frame, out);
    out.append(&mut bitmap);
    pack(&offsets, frame.width, out);
}

fn put_entropy(scale: ValueScale, integers: &[i64], delta: bool, out: &mut Vec<u8>) {
    let mut offsets = Vec::new();
    let frame = FrameOfReference::of(integers, delta, &mut offsets);
    put_head(ENTROPY, scale, &frame, out);
    entropy::encode(&offsets, frame.width, out);
}

fn put_head(form: u8, scale: ValueScale, frame: &FrameOfReference, out: &mut Vec<u8>) {
    let scale = match scale {
        ValueScale::Decimal(exponent) => exponent,
        ValueScale::Bits => BITS,
    };
    out.push((form + u8::from(frame.delta)) | (scale << 4));
    frame.put(out);
}

/// Replaces the bytes from `start` on with the output of `write` if that is smaller.
fn keep_smaller(start: usize, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let middle = out.len();
    write(out);
    if out.len() - middle < middle - start {
        out.drain(start..middle);
    } else {
        out.truncate(middle);
    }
}

fn raw_if_smaller(values: &[f64], start: usize, out: &mut Vec<u8>) {
    if out.len() - start > 1 + 8 * values.len() {
        out.truncate(start);
        out.push(RAW);
        out.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    }
}

/// Appends exactly `rows` values, or nothing on an error.
pub(crate) fn decode_values(
    bytes: &[u8],
    rows: usize,
    out: &mut Vec<f64>,
) -> Result<(), DecodeError> {
    if rows > ROWS_MAX {
        return Err(DecodeError("too many values in a column"));
    }
    let start = out.len();
    out.resize(start + rows, 0.0);
    decode(bytes, &mut out[start..]).inspect_err(|_| out.truncate(start))
}

fn decode(bytes: &[u8], slots: &mut [f64]) -> Result<(), DecodeError> {
    if slots.is_empty() {
        return if bytes.is_empty() {
            Ok(())
        } else {
            Err(DecodeError("data in a column without values"))
        };
    }
    let mut reader = ByteReader::new(bytes);
    let head = reader.u8()?;
    match head & 0x0f {
        RAW if head == RAW => decode_raw(reader.rest(), slots),
        CONSTANT if head == CONSTANT => decode_constant(reader.rest(), slots),
        FLOATS if head == FLOATS => entropy::decode_floats(reader.rest(), slots),
        form @ PACKED..FLOATS => {
            let scale = scale_of(head)?;
            let frame = FrameOfReference::read(&mut reader, form & 1 != 0)?;
            decode_framed(form & !1, scale, frame, reader, slots)
        }
        _ => Err(DecodeError("unknown form of a column")),
    }
}

fn scale_of(head: u8) -> Result<ValueScale, DecodeError> {
    match head >> 4 {
        exponent @ 0..=EXPONENT_MAX => Ok(ValueScale::Decimal(exponent)),
        BITS => Ok(ValueScale::Bits),
        _ => Err(DecodeError("unknown exponent of a column")),
    }
}

fn decode_raw(bytes: &[u8], slots: &mut [f64]) -> Result<(), DecodeError> {
    if bytes.len() != 8 * slots.len() {
        return Err(DecodeError("wrong length of raw values"));
    }
    for (slot, bytes) in slots.iter_mut().zip(bytes.as_chunks().0) {
        *slot = f64::from_le_bytes(*bytes);
    }
    Ok(())
}

fn decode_constant(bytes: &[u8], slots: &mut [f64]) -> Result<(), DecodeError> {
    let mut bits = [0; 8];
    bits.get_mut(..bytes.len())
        .ok_or(DecodeError("constant too long"))?
        .copy_from_slice(bytes);
    slots.fill(f64::from_be_bytes(bits));
    Ok(())
}

/// Decodes offsets into the slots of the values, as bits, and turns them into values in place.
fn decode_framed(
    form: u8,
    scale: ValueScale,
    frame: FrameOfReference,
    mut reader: ByteReader<'_>,
    slots: &mut [f64],
) -> Result<(), DecodeError> {
    if form == PACKED_CHANGES {
        let (bitmap, kept) = read_bitmap(&mut reader, slots.len())?;
        decode_framed(PACKED, scale, frame, reader, &mut slots[..kept])?;
        expand(slots, bitmap, kept);
        return Ok(());
    }
    let (bytes, offsets) = (reader.rest(), frame.offsets(slots));
    match form {
        ENTROPY => entropy::decode(bytes, frame.width, offsets, f64::from_bits)?,
        _ => unpack(bytes, frame.width, offsets, f64::from_bits)?,
    }
    resolve(&frame, scale, slots);
    Ok(())
}

fn resolve(frame: &FrameOfReference, scale: ValueScale, slots: &mut [f64]) {
    match scale {
        ValueScale::Bits => frame.resolve(slots, from_ordered),
        ValueScale::Decimal(exponent) => {
            frame.resolve(slots, |integer| f64::from_bits(integer as u64));
            resolve_decimals(slots, exponent);
        }
    }
}
