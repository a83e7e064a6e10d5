//! Columns that rarely change: which rows differ from the row before, and only those values.
//!
//! Row i is bit i % 8 of byte i / 8; the bit of row 0 is always set.

use super::DecodeError;
use super::byte_reader::ByteReader;

/// Returns the number of rows that differ from the row before, bit for bit.
pub(super) fn count_changes(values: &[f64]) -> usize {
    values
        .windows(2)
        .filter(|pair| pair[0].to_bits() != pair[1].to_bits())
        .count()
}

/// Appends the bitmap to `out` and returns the integers of the rows it marks. Equal integers are
/// equal values.
pub(super) fn drop_repeats(integers: &[i64], out: &mut Vec<u8>) -> Vec<i64> {
    let mut kept = Vec::with_capacity(integers.len());
    for chunk in integers.chunks(8) {
        let mut marks = 0;
        for (position, integer) in chunk.iter().enumerate() {
            if kept.last() != Some(integer) {
                kept.push(*integer);
                marks |= 1 << position;
            }
        }
        out.push(marks);
    }
    kept
}

/// Reads the bitmap of `rows` rows. Returns it with the number of rows it marks: from one to all of
/// them.
pub(super) fn read_bitmap<'a>(
    reader: &mut ByteReader<'a>,
    rows: usize,
) -> Result<(&'a [u8], usize), DecodeError> {
    let bitmap = reader.take(rows.div_ceil(8))?;
    let beyond = bitmap
        .last()
        .is_some_and(|last| !rows.is_multiple_of(8) && last >> (rows % 8) != 0);
    if beyond || bitmap.first().is_none_or(|first| first & 1 == 0) {
        return Err(DecodeError("invalid bitmap of changes"));
    }
    Ok((
        bitmap,
        bitmap.iter().map(|marks| marks.count_ones() as usize).sum(),
    ))
}

/// Distributes the values at the front of `slots`, one for each row that the bitmap marks, over all
/// rows.
pub(super) fn expand(slots: &mut [f64], bitmap: &[u8], kept: usize) {
    // Going backwards, each value is read before its slot is overwritten: no row lies before its
    // value.
    let mut next = kept;
    for row in (0..slots.len()).rev() {
        slots[row] = slots[next - 1];
        next -= usize::from(bitmap[row / 8] >> (row % 8) & 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_come_back() {
        for rows in 1..40_i64 {
            let integers: Vec<i64> = (0..rows).map(|row| row * row / 30).collect();
            let mut bytes = Vec::new();
            let kept = drop_repeats(&integers, &mut bytes);
            let mut reader = ByteReader::new(&bytes);
            let (bitmap, count) = read_bitmap(&mut reader, integers.len()).unwrap();
            assert_eq!(count, kept.len());
            let mut slots: Vec<f64> = kept.iter().map(|&integer| integer as f64).collect();
            slots.resize(integers.len(), 0.0);
            expand(&mut slots, bitmap, count);
            assert!(
                slots
                    .iter()
                    .zip(&integers)
                    .all(|(slot, integer)| *slot == *integer as f64)
            );
        }
    }

    #[test]
    fn a_bitmap_without_its_first_row_or_with_rows_too_many_is_an_error() {
        for (bitmap, rows) in [(&[0b10][..], 2), (&[0b101], 2), (&[0], 1), (&[1], 9)] {
            assert!(
                read_bitmap(&mut ByteReader::new(bitmap), rows).is_err(),
                "{bitmap:?}"
            );
        }
        assert_eq!(
            read_bitmap(&mut ByteReader::new(&[0b101]), 3).map(|(_, kept)| kept),
            Ok(2)
        );
    }
}
