//! Floats as integers, bit for bit.
//!
//! Most metrics of a node are decimal numbers with a fixed count of decimal places: bytes,
//! hundredths of a second, microseconds. Times a power of ten it is an integer, and integers pack
//! well.

/// The conversion between the floats of a column and integers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueScale {
    /// Each value is its integer divided by 10 to this power.
    Decimal(u8),
    /// At least one value is not such a decimal. Each integer is the value's bits, in an order in
    /// which neighbouring floats are adjacent.
    Bits,
}

pub(super) const EXPONENT_MAX: u8 = 9;
const POWERS: [f64; EXPONENT_MAX as usize + 1] = [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9];

/// Added to a float within ±2^51, this leaves the nearest integer in the lower bits.
const ROUNDER: f64 = 1.5 * (1_u64 << 52) as f64;
const ROUNDED_MAX: i64 = 1 << 51;

/// Values are checked in blocks without a branch for each, so that the compiler can vectorise the
/// loop.
const BLOCK: usize = 64;

/// Fills `integers` with the smallest decimal form that restores every value bit for bit, or else
/// with the ordered bits.
pub(super) fn to_integers(values: &[f64], integers: &mut Vec<i64>) -> ValueScale {
    integers.clear();
    integers.resize(values.len(), 0);
    let mut exponent = 0;
    // Try a few values first: most columns reveal their exponent at once and need only one pass.
    let step = (values.len() / 8).max(1);
    let mut suspects = values.iter().step_by(step).copied().collect::<Vec<f64>>();
    loop {
        for value in suspects.drain(..) {
            match exponent_of(value, exponent) {
                Some(larger) => exponent = larger,
                None => {
                    for (integer, value) in integers.iter_mut().zip(values) {
                        *integer = to_ordered(*value);
                    }
                    return ValueScale::Bits;
                }
            }
        }
        match find_misfit(values, exponent, integers) {
            None => return ValueScale::Decimal(exponent),
            Some(block) => suspects.extend_from_slice(block),
        }
    }
}

/// Returns a value as an integer at an exponent, if that restores it bit for bit.
#[inline]
pub(super) fn to_integer(value: f64, exponent: u8) -> Option<i64> {
    let (integer, fits) = match exponent {
        0 => whole(value),
        _ => scaled(value, divisor(exponent)),
    };
    fits.then_some(integer)
}

#[inline]
pub(super) fn from_integer(integer: i64, exponent: u8) -> f64 {
    integer as f64 / divisor(exponent)
}

/// Turns the integers of a decimal column, which the slots hold as bits, into its values.
pub(super) fn resolve_decimals(slots: &mut [f64], exponent: u8) {
    if exponent == 0 {
        slots
            .iter_mut()
            .for_each(|slot| *slot = slot.to_bits() as i64 as f64);
        return;
    }
    // Integers with decimal places lie within ±2^51: adding them to the bits of the rounder adds
    // them to its value. Unlike a conversion, the compiler can vectorise that.
    let divisor = divisor(exponent);
    for slot in slots {
        let sum = f64::from_bits(slot.to_bits().wrapping_add(ROUNDER.to_bits()));
        *slot = (sum - ROUNDER) / divisor;
    }
}

/// Returns the divisor that turns an integer of a decimal column into its value.
fn divisor(exponent: u8) -> f64 {
    POWERS[usize::from(exponent)]
}

/// Returns the smallest exponent from `least` on that fits the value.
fn exponent_of(value: f64, least: u8) -> Option<u8> {
    (least..=EXPONENT_MAX).find(|&exponent| to_integer(value, exponent).is_some())
}

/// Returns the first block that holds a value that does not fit.
fn find_misfit<'a>(values: &'a [f64], exponent: u8, integers: &mut [i64]) -> Option<&'a [f64]> {
    let power = POWERS[usize::from(exponent)];
    values
        .chunks(BLOCK)
        .zip(integers.chunks_mut(BLOCK))
        .find_map(|(values, integers)| {
            let mut fits = true;
            for (value, integer) in values.iter().zip(integers) {
                let fit;
                (*integer, fit) = if exponent == 0 {
                    whole(*value)
                } else {
                    scaled(*value, power)
                };
                fits &= fit;
            }
            (!fits).then_some(values)
        })
}

#[inline(always)]
fn whole(value: f64) -> (i64, bool) {
    let integer = value as i64;
    (integer, (integer as f64).to_bits() == value.to_bits())
}

#[inline(always)]
fn scaled(value: f64, power: f64) -> (i64, bool) {
    let rounded = value * power + ROUNDER;
    let integer = (rounded.to_bits() as i64).wrapping_sub(ROUNDER.to_bits() as i64);
    let back = (rounded - ROUNDER) / power;
    let in_range = (integer.wrapping_add(ROUNDED_MAX) as u64) < 2 * ROUNDED_MAX as u64;
    (integer, in_range & (back.to_bits() == value.to_bits()))
}

/// Maps the bits of floats to integers in the same order: negative floats grow away from zero in
/// their bits. The function is its own inverse.
#[inline(always)]
fn flip_negative(bits: i64) -> i64 {
    bits ^ ((bits >> 63) & i64::MAX)
}

fn to_ordered(value: f64) -> i64 {
    flip_negative(value.to_bits() as i64)
}

#[inline(always)]
pub(super) fn from_ordered(integer: i64) -> f64 {
    f64::from_bits(flip_negative(integer) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale_of(values: &[f64]) -> ValueScale {
        let mut integers = Vec::new();
        let scale = to_integers(values, &mut integers);
        let back = integers.iter().map(|&integer| match scale {
            ValueScale::Decimal(exponent) => from_integer(integer, exponent),
            ValueScale::Bits => from_ordered(integer),
        });
        for (back, value) in back.zip(values) {
            assert_eq!(back.to_bits(), value.to_bits(), "{value} with {scale:?}");
        }
        scale
    }

    #[test]
    fn the_smallest_exponent_is_found() {
        for (values, expected) in [
            (vec![], ValueScale::Decimal(0)),
            (vec![3.0, -7.0], ValueScale::Decimal(0)),
            (
                vec![9_007_199_254_740_993.0, 1.8e18, -9.2e18],
                ValueScale::Decimal(0),
            ),
            (vec![0.5, 1.0, 0.25], ValueScale::Decimal(2)),
            (vec![123_456.78, 0.1 + 0.7], ValueScale::Bits),
            (vec![1.000_001, 86_400.123_456], ValueScale::Decimal(6)),
            (vec![1e-9, 0.0], ValueScale::Decimal(9)),
            (vec![1e-10], ValueScale::Bits),
            (vec![1.0 / 3.0], ValueScale::Bits),
            (vec![1.8e19], ValueScale::Bits),
            (vec![0.1, 1e16], ValueScale::Bits),
            (vec![-0.0], ValueScale::Bits),
            (vec![1.0, f64::NAN], ValueScale::Bits),
            (vec![f64::INFINITY], ValueScale::Bits),
            (vec![f64::MIN_POSITIVE / 2.0], ValueScale::Bits),
        ] {
            assert_eq!(scale_of(&values), expected, "{values:?}");
        }
    }

    #[test]
    fn one_value_with_more_places_is_found_wherever_it_stands() {
        for at in 0..300 {
            let mut values = vec![2.0; 300];
            values[at] = 0.125;
            assert_eq!(scale_of(&values), ValueScale::Decimal(3));
            values[at] = f64::NAN;
            assert_eq!(scale_of(&values), ValueScale::Bits);
        }
    }

    #[test]
    fn the_bounds_of_rounding_are_exact() {
        for integer in [
            ROUNDED_MAX - 1,
            ROUNDED_MAX,
            ROUNDED_MAX + 1,
            -ROUNDED_MAX,
            -ROUNDED_MAX - 1,
            (1 << 53) - 1,
        ] {
            scale_of(&[integer as f64 / 10.0, integer as f64 / 100.0, 0.1]);
        }
    }

    #[test]
    fn ordered_bits_keep_the_order_of_floats() {
        let sorted = [
            f64::NEG_INFINITY,
            -1.5,
            -5e-324,
            -0.0,
            0.0,
            5e-324,
            1.5,
            f64::INFINITY,
        ];
        assert!(sorted.is_sorted_by_key(|&value| to_ordered(value)));
    }
}
