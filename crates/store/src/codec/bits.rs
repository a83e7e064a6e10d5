//! Numbers of one width, 0 to 64 bits, packed without gaps, lowest bit first.

use super::DecodeError;

/// Returns the number of bits that the largest number needs.
pub(super) fn width_of(largest: u64) -> u32 {
    64 - largest.leading_zeros()
}

pub(super) fn packed_len(width: u32, count: usize) -> usize {
    (width as usize * count).div_ceil(8)
}

/// Packs numbers, each of which must fit in `width` bits.
pub(super) fn pack(numbers: &[u64], width: u32, out: &mut Vec<u8>) {
    if width == 0 {
        return;
    }
    out.reserve(packed_len(width, numbers.len()) + 8);
    let mut word = 0_u64;
    let mut filled = 0;
    for &number in numbers {
        word |= number << filled;
        filled += width;
        if filled >= 64 {
            out.extend_from_slice(&word.to_le_bytes());
            filled -= 64;
            // The bits that did not fit. With none left over, the shift by the whole width must
            // give 0.
            word = number.checked_shr(width - filled).unwrap_or(0);
        }
    }
    out.extend_from_slice(&word.to_le_bytes()[..filled.div_ceil(8) as usize]);
}

/// Fills `out` with the numbers, each converted by `from`. They must fill `bytes` exactly.
pub(super) fn unpack<T>(
    bytes: &[u8],
    width: u32,
    out: &mut [T],
    from: impl Fn(u64) -> T,
) -> Result<(), DecodeError> {
    if width > 64 {
        return Err(DecodeError("packed numbers are wider than 64 bits"));
    }
    if bytes.len() != packed_len(width, out.len()) {
        return Err(DecodeError("wrong length of packed numbers"));
    }
    // For widths that are known at compile time, the positions within a group are constants. Most
    // columns have one of these.
    macro_rules! unpack_by_width {
        ($($narrow:literal)*) => {
            match width as usize {
                0 => out.iter_mut().for_each(|slot| *slot = from(0)),
                $($narrow => unpack_groups::<T, false>(bytes, $narrow, out, from),)*
                width @ 1..=NARROW_MAX => unpack_groups::<T, false>(bytes, width, out, from),
                width => unpack_groups::<T, true>(bytes, width, out, from),
            }
        };
    }
    unpack_by_width!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16);
    Ok(())
}

/// Up to this many bits, a number lies within the 8 bytes that begin where it begins.
const NARROW_MAX: usize = 56;

/// Eight numbers fill `width` bytes, so that each group of eight begins on a byte. A read may reach
/// up to this many bytes beyond its group.
const OVERREAD: usize = 9;

#[inline(always)]
fn unpack_groups<T, const WIDE: bool>(
    bytes: &[u8],
    width: usize,
    out: &mut [T],
    from: impl Fn(u64) -> T,
) {
    let groups = (out.len() / 8).min(bytes.len().saturating_sub(OVERREAD) / width);
    let (grouped, last) = out.split_at_mut(8 * groups);
    for (index, group) in grouped.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let window = &bytes[index * width..][..width + OVERREAD];
        for (position, slot) in group.iter_mut().enumerate() {
            *slot = from(number_at::<WIDE>(window, position * width, width));
        }
    }
    let rest = &bytes[groups * width..];
    // Here `rest` is shorter than 64 + OVERREAD bytes.
    let mut padded = [0_u8; 64 + 2 * OVERREAD];
    padded[..rest.len()].copy_from_slice(rest);
    for (position, slot) in last.iter_mut().enumerate() {
        *slot = from(number_at::<WIDE>(&padded, position * width, width));
    }
}

#[inline(always)]
fn number_at<const WIDE: bool>(bytes: &[u8], bit: usize, width: usize) -> u64 {
    let from = &bytes[bit / 8..bit / 8 + OVERREAD];
    let word = u64::from_le_bytes([
        from[0], from[1], from[2], from[3], from[4], from[5], from[6], from[7],
    ]);
    let mut number = word >> (bit % 8);
    if WIDE {
        // Two shifts, because with `bit % 8 == 0` one would be by 64.
        number |= u64::from(from[8]) << 1 << (63 - bit % 8);
    }
    number & (u64::MAX >> (64 - width))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_width_reads_back_at_every_length() {
        for width in 0..=64 {
            for count in (0..70).chain([255, 256, 257]) {
                let mask = if width == 0 {
                    0
                } else {
                    u64::MAX >> (64 - width)
                };
                let numbers: Vec<u64> = (0..count as u64)
                    .map(|i| {
                        (i + 1)
                            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                            .rotate_left(i as u32)
                            & mask
                    })
                    .collect();
                let mut bytes = Vec::new();
                pack(&numbers, width, &mut bytes);
                assert_eq!(bytes.len(), packed_len(width, count));
                let mut back = vec![1; count];
                unpack(&bytes, width, &mut back, |number| number).unwrap();
                assert_eq!(back, numbers, "{count} of {width} bits");
            }
        }
    }

    #[test]
    fn a_wrong_size_or_width_is_an_error() {
        assert!(unpack(&[0; 4], 5, &mut [0; 8], |number| number).is_err());
        assert!(unpack(&[0; 6], 5, &mut [0; 8], |number| number).is_err());
        assert!(unpack(&[0; 65], 65, &mut [0; 8], |number| number).is_err());
    }
}
