//! A frame of reference: integers as small offsets from a common base.

use super::DecodeError;
use super::bits::width_of;
use super::byte_reader::{ByteReader, put_zigzag};

/// The parameters that turn offsets back into integers. With `delta`, the offsets are those of the
/// differences between neighbours, one fewer than integers, and `first` is the first integer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameOfReference {
    pub(super) delta: bool,
    first: i64,
    base: i64,
    /// Low bits that are zero in every offset and left out: sizes are often multiples of pages and
    /// sectors.
    shift: u32,
    /// The number of bits of the largest offset.
    pub(super) width: u32,
}

/// The smallest and the largest of some integers.
#[derive(Debug, Clone, Copy)]
struct IntegerRange {
    least: i64,
    largest: i64,
}

impl IntegerRange {
    const NONE: IntegerRange = IntegerRange {
        least: i64::MAX,
        largest: i64::MIN,
    };

    #[inline(always)]
    fn add(&mut self, integer: i64) {
        self.least = self.least.min(integer);
        self.largest = self.largest.max(integer);
    }

    fn width(self) -> u32 {
        width_of(self.largest.wrapping_sub(self.least) as u64)
    }
}

impl FrameOfReference {
    /// Returns the frame with the narrower offsets and replaces the contents of `offsets` with
    /// them. There must be at least one integer.
    pub(super) fn narrower(integers: &[i64], offsets: &mut Vec<u64>) -> FrameOfReference {
        let spans = value_and_delta_ranges(integers);
        let delta = spans[1].width() < spans[0].width();
        FrameOfReference::from_range(integers, spans[usize::from(delta)], delta, offsets)
    }

    /// Returns the frame of the given kind.
    pub(super) fn of(integers: &[i64], delta: bool, offsets: &mut Vec<u64>) -> FrameOfReference {
        FrameOfReference::from_range(
            integers,
            value_and_delta_ranges(integers)[usize::from(delta)],
            delta,
            offsets,
        )
    }

    fn from_range(
        integers: &[i64],
        span: IntegerRange,
        delta: bool,
        offsets: &mut Vec<u64>,
    ) -> FrameOfReference {
        let base = span.least;
        offsets.clear();
        if delta {
            offsets.extend(
                integers
                    .windows(2)
                    .map(|pair| pair[1].wrapping_sub(pair[0]).wrapping_sub(base) as u64),
            );
        } else {
            offsets.extend(
                integers
                    .iter()
                    .map(|integer| integer.wrapping_sub(base) as u64),
            );
        }
        // The number of low zero bits common to all offsets; an offset of zero has only zero bits.
        let shift = offsets
            .iter()
            .fold(0, |bits, offset| bits | offset)
            .trailing_zeros()
            % 64;
        if shift > 0 {
            offsets.iter_mut().for_each(|offset| *offset >>= shift);
        }
        let width = span.width().saturating_sub(shift);
        FrameOfReference {
            delta,
            first: integers[0],
            base,
            shift,
            width,
        }
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        if self.delta {
            put_zigzag(out, self.first);
        }
        put_zigzag(out, self.base);
        out.push(self.shift as u8);
        out.push(self.width as u8);
    }

    pub(super) fn read(
        reader: &mut ByteReader<'_>,
        delta: bool,
    ) -> Result<FrameOfReference, DecodeError> {
        let first = if delta { reader.zigzag()? } else { 0 };
        let base = reader.zigzag()?;
        let shift = u32::from(reader.u8()?);
        let width = u32::from(reader.u8()?);
        if shift > 63 || shift + width > 64 {
            return Err(DecodeError("frame wider than 64 bits"));
        }
        Ok(FrameOfReference {
            delta,
            first,
            base,
            shift,
            width,
        })
    }

    /// Returns the slots of a column into which the offsets are decoded.
    pub(super) fn offsets<'a>(&self, slots: &'a mut [f64]) -> &'a mut [f64] {
        &mut slots[usize::from(self.delta)..]
    }

    /// Turns the bits of offsets into integers, and each integer into a value with `value_of`. With
    /// `delta`, the first slot is not an offset but receives the first integer.
    #[inline(always)]
    pub(super) fn resolve(&self, slots: &mut [f64], value_of: impl Fn(i64) -> f64) {
        let integer_of = |slot: f64| {
            self.base
                .wrapping_add((slot.to_bits() << self.shift) as i64)
        };
        if !self.delta {
            slots
                .iter_mut()
                .for_each(|slot| *slot = value_of(integer_of(*slot)));
        } else if let Some((first, steps)) = slots.split_first_mut() {
            let mut last = self.first;
            *first = value_of(last);
            for slot in steps {
                last = last.wrapping_add(integer_of(*slot));
                *slot = value_of(last);
            }
        }
    }
}

/// Returns the range of the integers, and the range of the differences between neighbours.
fn value_and_delta_ranges(integers: &[i64]) -> [IntegerRange; 2] {
    let mut plain = IntegerRange::NONE;
    let mut delta = IntegerRange::NONE;
    plain.add(integers[0]);
    for pair in integers.windows(2) {
        plain.add(pair[1]);
        delta.add(pair[1].wrapping_sub(pair[0]));
    }
    if integers.len() == 1 {
        delta = IntegerRange {
            least: 0,
            largest: 0,
        };
    }
    [plain, delta]
}
