//! Codes one sequence of whole numbers: predicts each one, and codes the difference with models
//! that learn from the numbers before.

use crate::range_coder::{BitCoder, BitModel};

/// The number of bits of a difference, plus one.
const LENGTHS: usize = 65;
/// The models of sizes depend on the size of the previous difference, in this many classes.
const CLASSES: usize = 6;

/// The models of one sequence.
#[derive(Debug, Default)]
pub(crate) struct NumberCoder {
    previous: i64,
    previous_delta: i64,
    /// The average delta, times eight.
    average_delta: i64,
    /// The recent size of the differences for each way to predict, in 1/256 bits.
    errors: [i32; 3],
    /// Whether the last two differences were 0.
    history: usize,
    class: usize,
    zero: [BitModel; 4],
    /// Only sequences that change need these.
    changes: Option<Box<ChangeModels>>,
}

#[derive(Debug)]
struct ChangeModels {
    sign: BitModel,
    length: [[BitModel; LENGTHS]; CLASSES],
    /// The two highest bits below the leading one.
    second: [BitModel; LENGTHS],
    third: [[BitModel; 2]; LENGTHS],
}

impl Default for ChangeModels {
    fn default() -> ChangeModels {
        ChangeModels {
            sign: BitModel::default(),
            length: [[BitModel::default(); LENGTHS]; CLASSES],
            second: [BitModel::default(); LENGTHS],
            third: [[BitModel::default(); 2]; LENGTHS],
        }
    }
}

impl NumberCoder {
    /// Sets the number before the next one, when the unit of the sequence changes.
    pub(crate) fn restart_at(&mut self, previous: i64) {
        self.previous = previous;
        self.previous_delta = 0;
        self.average_delta = 0;
    }

    /// Codes a number: an encoder writes it and returns it, a decoder returns what it reads.
    pub(crate) fn code(&mut self, coder: &mut impl BitCoder, number: i64) -> i64 {
        let predictions = [0, self.previous_delta, self.average_delta >> 3];
        let best = (0..3).min_by_key(|way| self.errors[*way]).unwrap_or(0);
        let predicted = self.previous.wrapping_add(predictions[best]);
        let difference = self.code_difference(coder, number.wrapping_sub(predicted));
        let number = predicted.wrapping_add(difference);
        let delta = number.wrapping_sub(self.previous);
        for (error, prediction) in self.errors.iter_mut().zip(predictions) {
            let size = bit_length(delta.wrapping_sub(prediction)) as i32 * 256;
            *error += (size - *error) / 16;
        }
        self.previous = number;
        self.previous_delta = delta;
        let average = self.average_delta;
        self.average_delta = average.wrapping_add(delta.wrapping_sub(average >> 3));
        number
    }

    fn code_difference(&mut self, coder: &mut impl BitCoder, difference: i64) -> i64 {
        let is_zero = coder.code(&mut self.zero[self.history], difference == 0);
        self.history = (self.history << 1 | usize::from(!is_zero)) & 3;
        if is_zero {
            self.class = 0;
            return 0;
        }
        let models = self.changes.get_or_insert_default();
        let is_negative = coder.code(&mut models.sign, difference < 0);
        let size = difference.unsigned_abs();
        // The number of bits, as so many ones and a zero.
        let wanted = bit_length(difference) as usize;
        let lengths = &mut models.length[self.class];
        let mut length = 1;
        while length < LENGTHS - 1 && coder.code(&mut lengths[length], length < wanted) {
            length += 1;
        }
        self.class = (length.div_ceil(4)).min(CLASSES - 1);
        // The bits below the leading one.
        let mut rest = length as u32 - 1;
        let mut value: u64 = 1;
        if rest > 0 {
            rest -= 1;
            let bit = coder.code(&mut models.second[length], size >> rest & 1 == 1);
            value = value << 1 | u64::from(bit);
            if rest > 0 {
                rest -= 1;
                let model = &mut models.third[length][usize::from(bit)];
                let bit = coder.code(model, size >> rest & 1 == 1);
                value = value << 1 | u64::from(bit);
            }
        }
        let mask = (1_u64 << rest) - 1;
        let low = coder.code_plain(size & mask, rest);
        let value = value << rest | low;
        let value = value as i64;
        if is_negative {
            value.wrapping_neg()
        } else {
            value
        }
    }
}

/// Returns the number of bits of the absolute value.
fn bit_length(number: i64) -> u32 {
    64 - number.unsigned_abs().leading_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::range_coder::{RangeDecoder, RangeEncoder};

    fn round_trip(numbers: &[i64]) -> usize {
        let (mut encoder, mut coder) = (RangeEncoder::new(), NumberCoder::default());
        for number in numbers {
            assert_eq!(coder.code(&mut encoder, *number), *number);
        }
        let bytes = encoder.finish();
        let (mut decoder, mut coder) = (RangeDecoder::new(&bytes), NumberCoder::default());
        for number in numbers {
            assert_eq!(coder.code(&mut decoder, 0), *number);
        }
        bytes.len()
    }

    #[test]
    fn all_numbers_read_back() {
        round_trip(&[
            0,
            1,
            -1,
            i64::MAX,
            i64::MIN,
            0,
            i64::MIN,
            i64::MAX,
            1 << 53,
            7,
        ]);
        let powers = (0..63).flat_map(|bits| [1_i64 << bits, -(1_i64 << bits), (1 << bits) - 1]);
        round_trip(&powers.collect::<Vec<_>>());
    }

    #[test]
    fn what_can_be_predicted_costs_little() {
        let constant = vec![123_456_789; 3600];
        assert!(round_trip(&constant) < 30);
        let regular: Vec<i64> = (0..3600)
            .map(|tick| 1_700_000_000_000 + tick * 1000)
            .collect();
        assert!(round_trip(&regular) < 40);
        let noisy: Vec<i64> = (0..3600_i64)
            .map(|tick| tick * 100 + tick * 7919 % 4)
            .collect();
        let bytes = round_trip(&noisy);
        assert!(bytes < 3600 / 2, "{bytes}");
    }
}
