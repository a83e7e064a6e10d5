//! A row of the log: the values of one tick group against those of the tick before.
//!
//! A bitmap says which values changed (value i is bit i % 8 of byte i / 8); then come the changed
//! values, each XORed with its predecessor, as eight planes: first the lowest byte of all of them,
//! last the highest. Planes of equal bytes are what LZ4 is good at.

use super::Corrupt;

/// Both slices have the same length.
pub(crate) fn encode_row(previous: &[u64], current: &[u64], out: &mut Vec<u8>) {
    assert_eq!(
        previous.len(),
        current.len(),
        "a row has as many values as the row before it"
    );
    let mut changes = Vec::with_capacity(current.len());
    for (before, after) in previous.chunks(8).zip(current.chunks(8)) {
        let mut changed = 0_u8;
        for (position, (before, after)) in before.iter().zip(after).enumerate() {
            if before != after {
                changed |= 1 << position;
                changes.push(before ^ after);
            }
        }
        out.push(changed);
    }
    for plane in 0..8 {
        out.extend(changes.iter().map(|change| (change >> (8 * plane)) as u8));
    }
}

/// Turns the previous row into this one, and returns how many bytes the row took. On an error the
/// previous row is as it was.
pub(crate) fn decode_row(bytes: &[u8], previous: &mut [u64]) -> Result<usize, Corrupt> {
    let (bitmap, planes) = bytes
        .split_at_checked(previous.len().div_ceil(8))
        .ok_or(Corrupt("a row ends within its bitmap"))?;
    if let Some(last) = bitmap.last()
        && !previous.len().is_multiple_of(8)
        && last >> (previous.len() % 8) != 0
    {
        return Err(Corrupt("a row marks a value that does not exist"));
    }
    let count: usize = bitmap.iter().map(|byte| byte.count_ones() as usize).sum();
    let planes = planes
        .get(..8 * count)
        .ok_or(Corrupt("a row ends within its values"))?;
    let mut next = 0;
    for (values, changed) in previous.chunks_mut(8).zip(bitmap) {
        let mut changed = *changed;
        while changed != 0 {
            let position = changed.trailing_zeros() as usize;
            changed &= changed - 1;
            let change = (0..8).fold(0, |change, plane| {
                change | u64::from(planes[plane * count + next]) << (8 * plane)
            });
            values[position] ^= change;
            next += 1;
        }
    }
    Ok(bitmap.len() + planes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_follow_each_other() {
        for count in [0, 1, 7, 8, 9, 64, 65, 1000] {
            let mut state = vec![0_u64; count];
            let mut previous = state.clone();
            for round in 0..20_u64 {
                let current: Vec<u64> = (0..count as u64)
                    .map(|i| {
                        if (i + round) % 3 == 0 {
                            (i * round).wrapping_mul(0x9e37_79b9_7f4a_7c15)
                        } else {
                            previous[i as usize]
                        }
                    })
                    .collect();
                let mut bytes = vec![0xaa];
                encode_row(&previous, &current, &mut bytes);
                bytes.extend([1, 2, 3]);
                assert_eq!(decode_row(&bytes[1..], &mut state), Ok(bytes.len() - 4));
                assert_eq!(state, current);
                previous = current;
            }
        }
    }

    #[test]
    fn a_row_without_change_is_only_its_bitmap() {
        let mut bytes = Vec::new();
        encode_row(&[7; 100], &[7; 100], &mut bytes);
        assert_eq!(bytes, [0; 13]);
    }

    #[test]
    fn a_damaged_row_is_an_error_and_changes_nothing() {
        let mut bytes = Vec::new();
        encode_row(&[0; 11], &[u64::MAX; 11], &mut bytes);
        let mut state = [0; 11];
        for end in 0..bytes.len() {
            assert!(
                decode_row(&bytes[..end], &mut state).is_err(),
                "{end} bytes"
            );
        }
        bytes[1] |= 0x08;
        assert!(decode_row(&bytes, &mut state).is_err());
        assert_eq!(state, [0; 11]);
    }
}
