//! A row of the log: the values of one tick group against those of the tick before.
//!
//! A bitmap marks the values that changed (value i is bit i % 8 of byte i / 8). Then comes a
//! control byte for each changed value: its low half is a decimal exponent, its high half a count
//! of bytes. The change is the difference of the two values as integers at that exponent
//! (`decimal.rs`), zigzag, cut to that many bytes; with exponent 15 it is the XOR of their bits.
//! Last come the bytes of all changes as planes: the lowest byte of every change, then the second
//! byte of those that have one, and so on. LZ4 compresses equal neighbours in planes and control
//! bytes well.

use super::DecodeError;
use super::decimal::{EXPONENT_MAX, from_integer, to_integer};

/// The exponent of a change that is an XOR.
const XOR: u8 = 15;

/// The exponents that fitted last, one per value: the start of the search. They only save time:
/// each row stores the exponents it uses.
pub(crate) type ExponentHints = Vec<u8>;

/// Encodes a row. All slices must have the same length.
pub(crate) fn encode_row(previous: &[u64], current: &[u64], hints: &mut [u8], out: &mut Vec<u8>) {
    assert_eq!(
        previous.len(),
        current.len(),
        "a row has as many values as the row before it"
    );
    assert_eq!(hints.len(), current.len(), "every value has its hint");
    let start = out.len();
    out.resize(start + current.len().div_ceil(8), 0);
    let mut changes = Vec::with_capacity(current.len());
    for (at, (before, after)) in previous.iter().zip(current).enumerate() {
        if before == after {
            continue;
        }
        out[start + at / 8] |= 1 << (at % 8);
        let (exponent, change) = difference(*before, *after, &mut hints[at]);
        let len = (64 - change.leading_zeros()).div_ceil(8) as u8;
        out.push(exponent | len << 4);
        changes.push((change, len));
    }
    let len_max = changes.iter().map(|(_, len)| *len).max().unwrap_or(0);
    for plane in 0..len_max {
        let longer = changes.iter().filter(|(_, len)| *len > plane);
        out.extend(longer.map(|(change, _)| (change >> (8 * plane)) as u8));
    }
}

/// Returns the exponent and the change.
fn difference(before: u64, after: u64, hint: &mut u8) -> (u8, u64) {
    let (old, new) = (f64::from_bits(before), f64::from_bits(after));
    let difference_at = |exponent: u8| {
        let old = to_integer(old, exponent)?;
        let difference = to_integer(new, exponent)?.checked_sub(old)?;
        Some((difference << 1 ^ difference >> 63) as u64)
    };
    if *hint <= EXPONENT_MAX {
        // Usually the last exponent fits again; a larger one is needed now and then, a smaller one
        // rarely.
        let found = (*hint..=EXPONENT_MAX)
            .chain(0..*hint)
            .find_map(|exponent| Some((exponent, difference_at(exponent)?)));
        if let Some((exponent, change)) = found {
            *hint = exponent;
            return (exponent, change);
        }
        *hint = XOR;
    }
    (XOR, before ^ after)
}

/// Turns the previous row into this one and returns the number of bytes read. On an error the
/// contents of `previous` are invalid.
pub(crate) fn decode_row(bytes: &[u8], previous: &mut [u64]) -> Result<usize, DecodeError> {
    let (bitmap, rest) = bytes
        .split_at_checked(previous.len().div_ceil(8))
        .ok_or(DecodeError("truncated bitmap of a row"))?;
    if let Some(last) = bitmap.last()
        && !previous.len().is_multiple_of(8)
        && last >> (previous.len() % 8) != 0
    {
        return Err(DecodeError("bitmap of a row marks a nonexistent value"));
    }
    let count: usize = bitmap.iter().map(|byte| byte.count_ones() as usize).sum();
    let (controls, mut planes) = rest
        .split_at_checked(count)
        .ok_or(DecodeError("truncated control bytes of a row"))?;
    if controls.iter().any(|control| control >> 4 > 8) {
        return Err(DecodeError("change longer than eight bytes"));
    }
    let mut changes = vec![0u64; count];
    for plane in 0..8 {
        for (change, _) in changes
            .iter_mut()
            .zip(controls)
            .filter(|(_, control)| *control >> 4 > plane)
        {
            let (byte, more) = planes
                .split_first()
                .ok_or(DecodeError("truncated values of a row"))?;
            *change |= u64::from(*byte) << (8 * plane);
            planes = more;
        }
    }
    let marked = (0..previous.len()).filter(|at| bitmap[at / 8] >> (at % 8) & 1 == 1);
    for ((at, change), control) in marked.zip(changes).zip(controls) {
        previous[at] = apply(previous[at], change, control & 15)?;
    }
    Ok(bytes.len() - planes.len())
}

fn apply(before: u64, change: u64, exponent: u8) -> Result<u64, DecodeError> {
    if exponent == XOR {
        return Ok(before ^ change);
    }
    if exponent > EXPONENT_MAX {
        return Err(DecodeError("unknown exponent"));
    }
    let old = to_integer(f64::from_bits(before), exponent).ok_or(DecodeError(
        "decimal change of a value that is not a decimal",
    ))?;
    let difference = (change >> 1) as i64 ^ -((change & 1) as i64);
    let new = old
        .checked_add(difference)
        .ok_or(DecodeError("integer overflow in a change"))?;
    Ok(from_integer(new, exponent).to_bits())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encodes rows one after the other and checks that each reads back.
    fn follow(rows: &[Vec<f64>]) -> Vec<usize> {
        let width = rows[0].len();
        let (mut previous, mut state) = (vec![0u64; width], vec![0u64; width]);
        let mut hints = vec![0; width];
        let mut sizes = Vec::new();
        for row in rows {
            let current: Vec<u64> = row.iter().map(|value| value.to_bits()).collect();
            let mut bytes = vec![0xaa];
            encode_row(&previous, &current, &mut hints, &mut bytes);
            sizes.push(bytes.len() - 1);
            bytes.extend([1, 2, 3]);
            assert_eq!(decode_row(&bytes[1..], &mut state), Ok(bytes.len() - 4));
            assert_eq!(state, current);
            previous = current;
        }
        sizes
    }

    #[test]
    fn rows_follow_each_other() {
        let odd = [
            f64::NAN,
            -0.0,
            0.0,
            f64::INFINITY,
            5e-324,
            1.0 / 3.0,
            1e300,
            -7.25,
            9.2e18,
            0.1,
            -9.2e18,
        ];
        for width in [1, 7, 8, 9, 64, 65, 500] {
            let rows: Vec<Vec<f64>> = (0..40)
                .map(|round| {
                    (0..width)
                        .map(|at| match (at + round) % 5 {
                            0 => odd[(at * 7 + round) % odd.len()],
                            1 => (at * 100 + round) as f64 / 100.0,
                            2 => at as f64,
                            3 => (at * round) as f64 * 1e6,
                            _ => (at + round) as f64 / 1e6,
                        })
                        .collect()
                })
                .collect();
            follow(&rows);
        }
    }

    #[test]
    fn a_counter_costs_a_control_byte_and_its_step() {
        let size_with_step = |step: i64| {
            let rows: Vec<Vec<f64>> = (0..5)
                .map(|n| vec![(123_456 + step * n) as f64 / 100.0; 80])
                .collect();
            follow(&rows)[4]
        };
        assert_eq!(size_with_step(93), 10 + 80 + 80);
        assert_eq!(size_with_step(-93), 10 + 80 + 80);
        assert_eq!(
            size_with_step(128),
            10 + 80 + 2 * 80,
            "as a zigzag it has nine bits"
        );
    }

    #[test]
    fn a_row_without_change_is_only_its_bitmap() {
        let mut bytes = Vec::new();
        encode_row(&[7; 100], &[7; 100], &mut [0; 100], &mut bytes);
        assert_eq!(bytes, [0; 13]);
    }

    #[test]
    fn a_damaged_row_is_an_error() {
        let mut bytes = Vec::new();
        encode_row(&[0; 11], &[u64::MAX; 11], &mut [0; 11], &mut bytes);
        for end in 0..bytes.len() {
            assert!(
                decode_row(&bytes[..end], &mut [0; 11]).is_err(),
                "{end} bytes"
            );
        }
        bytes[1] |= 0x08;
        assert!(decode_row(&bytes, &mut [0; 11]).is_err());
        // A difference where the value before is not a decimal.
        assert!(decode_row(&[1, 0x12, 5], &mut [f64::NAN.to_bits()]).is_err());
        assert!(decode_row(&[1, 0x1c, 5], &mut [0]).is_err());
        assert!(decode_row(&[1, 0x92], &mut [0]).is_err());
    }
}
