//! Codes the values of one series. Most values are decimal numbers with few digits, or multiples of
//! a page: such values are coded as whole multiples of their unit, others by the bits that change.

use crate::number_coder::NumberCoder;
use crate::range_coder::{BitCoder, BitModel};

/// The most decimal digits of a unit.
const DIGITS_MAX: u32 = 9;
/// Whole numbers up to this size have an exact f64.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// Values are whole multiples of `factor` / 10^`digits`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ValueUnit {
    digits: u32,
    factor: i64,
}

impl ValueUnit {
    /// Returns the value as a multiple of the unit, if it is exactly one.
    fn to_number(self, value: f64) -> Option<i64> {
        let scaled = (value * power_of_ten(self.digits)).round();
        if scaled.is_nan() || scaled.abs() >= EXACT_MAX {
            return None;
        }
        let number = scaled as i64 / self.factor;
        // Also tells -0.0 from 0.0.
        let is_exact = self.to_value(number).to_bits() == value.to_bits();
        is_exact.then_some(number)
    }

    fn to_value(self, number: i64) -> f64 {
        number.wrapping_mul(self.factor) as f64 / power_of_ten(self.digits)
    }

    /// Returns the unit of all values: as few digits as possible, as large a factor as possible.
    fn of(values: &[f64]) -> Option<ValueUnit> {
        let digits = (0..=DIGITS_MAX).find(|digits| {
            let unit = ValueUnit {
                digits: *digits,
                factor: 1,
            };
            values.iter().all(|value| unit.to_number(*value).is_some())
        })?;
        let unit = ValueUnit { digits, factor: 1 };
        let numbers = values.iter().filter_map(|value| unit.to_number(*value));
        let factor = numbers.fold(0, |gcd, number| greatest_common_divisor(gcd, number.abs()));
        Some(ValueUnit {
            digits,
            factor: factor.max(1),
        })
    }
}

fn power_of_ten(digits: u32) -> f64 {
    // A table: `powi` may round differently on another machine.
    const POWERS: [f64; DIGITS_MAX as usize + 1] =
        [1.0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9];
    POWERS[digits as usize]
}

fn greatest_common_divisor(mut a: i64, mut b: i64) -> i64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// The models of one series.
#[derive(Debug, Default)]
pub(crate) struct ValueCoder {
    /// `None` for values that have no unit.
    unit: Option<ValueUnit>,
    previous: f64,
    numbers: NumberCoder,
    /// Whether the unit is that of the previous block.
    same_unit: BitModel,
    has_unit: BitModel,
    /// For values without a unit.
    bits: BitsCoder,
}

impl ValueCoder {
    /// Codes the values of one block: an encoder writes them, a decoder fills them in.
    pub(crate) fn code(&mut self, coder: &mut impl BitCoder, values: &mut [f64]) {
        let fits = |unit: ValueUnit| values.iter().all(|value| unit.to_number(*value).is_some());
        let is_same = match self.unit {
            Some(unit) => fits(unit),
            // A unit may have become possible.
            None => ValueUnit::of(values).is_none(),
        };
        if !coder.code(&mut self.same_unit, is_same) {
            self.code_unit(coder, ValueUnit::of(values));
        }
        match self.unit {
            Some(unit) => {
                for value in values.iter_mut() {
                    let number = unit.to_number(*value).unwrap_or(0);
                    *value = unit.to_value(self.numbers.code(coder, number));
                }
            }
            None => {
                for value in values.iter_mut() {
                    let bits = self
                        .bits
                        .code(coder, self.previous.to_bits(), value.to_bits());
                    *value = f64::from_bits(bits);
                    self.previous = *value;
                }
            }
        }
        self.previous = values.last().copied().unwrap_or(self.previous);
    }

    fn code_unit(&mut self, coder: &mut impl BitCoder, unit: Option<ValueUnit>) {
        if !coder.code(&mut self.has_unit, unit.is_some()) {
            self.unit = None;
            return;
        }
        let unit = unit.unwrap_or(ValueUnit {
            digits: 0,
            factor: 1,
        });
        let digits = coder.code_plain(u64::from(unit.digits), 4) as u32;
        let factor = code_length_and_bits(coder, unit.factor.unsigned_abs());
        let unit = ValueUnit {
            digits: digits.min(DIGITS_MAX),
            factor: (factor as i64).max(1),
        };
        self.unit = Some(unit);
        self.numbers
            .restart_at(unit.to_number(self.previous).unwrap_or(0));
    }
}

/// Codes a number as its length and its bits.
fn code_length_and_bits(coder: &mut impl BitCoder, number: u64) -> u64 {
    let length = coder.code_plain(u64::from(64 - number.leading_zeros()), 7) as u32;
    coder.code_plain(number, length.min(64))
}

/// Codes floating-point numbers by the bits in which they differ from the previous one.
#[derive(Debug, Default)]
struct BitsCoder {
    same: BitModel,
    /// The number of leading bytes that are equal, as a tree of three bits.
    leading: [BitModel; 8],
}

impl BitsCoder {
    fn code(&mut self, coder: &mut impl BitCoder, previous: u64, bits: u64) -> u64 {
        let changed = previous ^ bits;
        if coder.code(&mut self.same, changed == 0) {
            return previous;
        }
        let leading = u64::from(changed.leading_zeros() / 8).min(7);
        let mut node = 1;
        for position in (0..3).rev() {
            let bit = coder.code(&mut self.leading[node], leading >> position & 1 == 1);
            node = node << 1 | usize::from(bit);
        }
        let leading = (node - 8) as u32;
        previous ^ coder.code_plain(changed, 64 - 8 * leading)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::range_coder::{RangeDecoder, RangeEncoder};

    fn round_trip(blocks: &[&[f64]]) -> usize {
        let (mut encoder, mut coder) = (RangeEncoder::new(), ValueCoder::default());
        for block in blocks {
            coder.code(&mut encoder, &mut block.to_vec());
        }
        let bytes = encoder.finish();
        let (mut decoder, mut coder) = (RangeDecoder::new(&bytes), ValueCoder::default());
        for block in blocks {
            let mut values = vec![0.0; block.len()];
            coder.code(&mut decoder, &mut values);
            let bits = |values: &[f64]| {
                values
                    .iter()
                    .map(|value| value.to_bits())
                    .collect::<Vec<_>>()
            };
            assert_eq!(bits(&values), bits(block), "{block:?}");
        }
        bytes.len()
    }

    #[test]
    fn values_read_back_bit_for_bit() {
        let odd = [
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            -0.0,
            5e-324,
            f64::MAX,
            0.1 + 0.2,
        ];
        let stale = f64::from_bits(0x7ff0_0000_0000_0002);
        round_trip(&[
            &odd,
            &[1.0, 2.5],
            &[stale, 3.0],
            &[4096.0, 8192.0],
            &[1e300],
            &[],
        ]);
        round_trip(&[
            &[0.01, 0.02],
            &[0.03],
            &[1e15, -1e15],
            &[9_007_199_254_740_993.0],
            &[0.125],
        ]);
    }

    #[test]
    fn the_unit_of_values_is_found_and_kept() {
        let unit = |values: &[f64]| ValueUnit::of(values).map(|unit| (unit.digits, unit.factor));
        assert_eq!(unit(&[4096.0, 12_288.0]), Some((0, 4096)));
        assert_eq!(unit(&[0.25, 1.75]), Some((2, 25)));
        assert_eq!(unit(&[std::f64::consts::PI]), None);
        let pages: Vec<f64> = (0..600_u32)
            .map(|tick| f64::from(tick * 37 % 11) * 4096.0)
            .collect();
        let blocks: Vec<&[f64]> = pages.chunks(10).collect();
        assert!(round_trip(&blocks) < 600 * 5 / 8);
    }
}
