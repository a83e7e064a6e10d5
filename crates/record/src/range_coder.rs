//! An adaptive binary range coder: each bit is coded with the probability that its model learned
//! from the bits before. Integer arithmetic only: every machine decodes the same.

/// Probabilities are fractions of this.
const ONE: u32 = 1 << 15;
const PROBABILITY_MIN: u16 = 64;
/// How many bits a model averages over once it has seen enough.
const WINDOW_MAX: u8 = 24;
/// The range is at least this after each bit.
const RANGE_MIN: u32 = 1 << 24;
/// The most zeros at the end that are left out.
const ZEROS_MAX: u32 = 4;

/// The probability that a bit is set, learned from the bits before.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BitModel {
    probability: u16,
    seen: u8,
}

impl Default for BitModel {
    fn default() -> BitModel {
        BitModel {
            probability: (ONE / 2) as u16,
            seen: 0,
        }
    }
}

impl BitModel {
    fn update(&mut self, bit: bool) {
        let target = if bit { ONE as i32 } else { 0 };
        self.seen = (self.seen + 1).min(WINDOW_MAX - 2);
        let window = i32::from(self.seen) + 1;
        let moved = i32::from(self.probability) + (target - i32::from(self.probability)) / window;
        let max = ONE as i32 - i32::from(PROBABILITY_MIN);
        self.probability = moved.clamp(i32::from(PROBABILITY_MIN), max) as u16;
    }
}

/// Codes bits in both directions, so that encoder and decoder share one description of the data.
pub(crate) trait BitCoder {
    /// Codes a bit: an encoder writes `bit` and returns it, a decoder returns what it reads.
    fn code(&mut self, model: &mut BitModel, bit: bool) -> bool;

    /// Codes the lowest `count` bits without a model.
    fn code_plain(&mut self, bits: u64, count: u32) -> u64;
}

/// Writes bits.
#[derive(Debug)]
pub(crate) struct RangeEncoder {
    low: u64,
    range: u32,
    /// The last byte, which a carry may still change, and the number of 0xff bytes after it.
    cache: u8,
    pending: u64,
    is_first: bool,
    out: Vec<u8>,
}

impl RangeEncoder {
    pub(crate) fn new() -> RangeEncoder {
        RangeEncoder {
            low: 0,
            range: u32::MAX,
            cache: 0,
            pending: 0,
            is_first: true,
            out: Vec::new(),
        }
    }

    /// Returns the bytes. Up to [`ZEROS_MAX`] zeros at the end are left out: a decoder reads zeros
    /// beyond the end.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        for _ in 0..5 {
            self.shift_low();
        }
        for _ in 0..ZEROS_MAX {
            self.out.pop_if(|byte| *byte == 0);
        }
        self.out
    }

    fn normalize(&mut self) {
        while self.range < RANGE_MIN {
            self.range <<= 8;
            self.shift_low();
        }
    }

    fn shift_low(&mut self) {
        let carry = (self.low >> 32) as u8;
        if self.low < 0xff00_0000 || carry != 0 {
            if !self.is_first {
                self.out.push(self.cache.wrapping_add(carry));
            }
            self.is_first = false;
            for _ in 0..self.pending {
                self.out.push(0xff_u8.wrapping_add(carry));
            }
            self.pending = 0;
            self.cache = (self.low >> 24) as u8;
        } else {
            self.pending += 1;
        }
        self.low = (self.low << 8) & 0xffff_ffff;
    }
}

impl BitCoder for RangeEncoder {
    fn code(&mut self, model: &mut BitModel, bit: bool) -> bool {
        let bound = (self.range >> 15) * u32::from(model.probability);
        if bit {
            self.range = bound;
        } else {
            self.low += u64::from(bound);
            self.range -= bound;
        }
        model.update(bit);
        self.normalize();
        bit
    }

    fn code_plain(&mut self, bits: u64, count: u32) -> u64 {
        for position in (0..count).rev() {
            self.range >>= 1;
            if bits >> position & 1 == 1 {
                self.low += u64::from(self.range);
            }
            self.normalize();
        }
        bits
    }
}

/// Reads bits. All bytes decode to something; beyond their end are zeros.
#[derive(Debug)]
pub(crate) struct RangeDecoder<'a> {
    code: u32,
    range: u32,
    rest: &'a [u8],
    /// How many bytes were read beyond the end.
    missing: u32,
}

impl<'a> RangeDecoder<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> RangeDecoder<'a> {
        let mut decoder = RangeDecoder {
            code: 0,
            range: u32::MAX,
            rest: bytes,
            missing: 0,
        };
        for _ in 0..4 {
            decoder.code = decoder.code << 8 | decoder.next_byte();
        }
        decoder
    }

    /// Whether more was read than an encoder can have left out.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.missing > ZEROS_MAX
    }

    fn next_byte(&mut self) -> u32 {
        let Some((first, rest)) = self.rest.split_first() else {
            self.missing = self.missing.saturating_add(1);
            return 0;
        };
        self.rest = rest;
        u32::from(*first)
    }

    fn normalize(&mut self) {
        while self.range < RANGE_MIN {
            self.range <<= 8;
            self.code = self.code << 8 | self.next_byte();
        }
    }
}

impl BitCoder for RangeDecoder<'_> {
    fn code(&mut self, model: &mut BitModel, _: bool) -> bool {
        let bound = (self.range >> 15) * u32::from(model.probability);
        let bit = self.code < bound;
        if bit {
            self.range = bound;
        } else {
            self.code -= bound;
            self.range -= bound;
        }
        model.update(bit);
        self.normalize();
        bit
    }

    fn code_plain(&mut self, _: u64, count: u32) -> u64 {
        let mut bits = 0;
        for _ in 0..count {
            self.range >>= 1;
            let bit = self.code >= self.range;
            if bit {
                self.code -= self.range;
            }
            bits = bits << 1 | u64::from(bit);
            self.normalize();
        }
        bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sequence of pseudo-random numbers.
    fn numbers(seed: u64) -> impl FnMut() -> u64 {
        let mut state = seed;
        move || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            state >> 33
        }
    }

    #[test]
    fn bits_read_back_and_likely_ones_are_cheap() {
        for likely in [1, 2, 100, 10_000] {
            let mut next = numbers(likely);
            let bits: Vec<(bool, u64)> = (0..20_000)
                .map(|_| (next().is_multiple_of(likely), next()))
                .collect();
            let (mut encoder, mut model) = (RangeEncoder::new(), BitModel::default());
            for (bit, plain) in &bits {
                encoder.code(&mut model, *bit);
                if *bit {
                    encoder.code_plain(plain & 0x3f, 6);
                }
            }
            let bytes = encoder.finish();
            if likely == 10_000 {
                assert!(bytes.len() < 100, "{} bytes", bytes.len());
            }
            let (mut decoder, mut model) = (RangeDecoder::new(&bytes), BitModel::default());
            for (bit, plain) in &bits {
                assert_eq!(decoder.code(&mut model, false), *bit);
                if *bit {
                    assert_eq!(decoder.code_plain(0, 6), plain & 0x3f);
                }
            }
        }
    }

    #[test]
    fn carries_reach_earlier_bytes() {
        // Bits that keep the low end close to a power of two.
        for count in 1..300 {
            let mut encoder = RangeEncoder::new();
            for _ in 0..count {
                encoder.code_plain(1, 1);
            }
            encoder.code_plain(0b10, 2);
            let bytes = encoder.finish();
            let mut decoder = RangeDecoder::new(&bytes);
            for _ in 0..count {
                assert_eq!(decoder.code_plain(0, 1), 1);
            }
            assert_eq!(decoder.code_plain(0, 2), 0b10);
        }
    }
}
