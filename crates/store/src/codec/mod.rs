//! The encodings of the store: columns of values, columns of times, rows of the log. Pure functions
//! over bytes: the reader must know the number of rows and has verified a checksum. Damaged bytes
//! that pass the checksum give errors or wrong numbers, never a panic, and never use more memory
//! than [`ROWS_MAX`] rows.
//!
//! All of this belongs to the format number of the store (`format` in its directory): any change of
//! the bytes requires a new number. That includes the format of pco, which is 4.1.
//!
//! Numbers are little-endian; *varint* is LEB128, *zigzag* a varint of a signed number.
//!
//! # Values
//!
//! f64, bit for bit: NaNs, infinities and -0.0 are preserved. No rows are encoded as no bytes. Else
//! the first byte holds the form in its lower four bits and the scale in its upper four.
//!
//! | form | after the first byte |
//! |---|---|
//! | 0 raw | 8 bytes for each value; scale 0 |
//! | 1 constant | the bits of the value, highest byte first, without trailing zero bytes; scale 0 |
//! | 2, 3 packed | frame, packed offsets |
//! | 4, 5 entropy | frame, offsets by pco as u8, u16, u32 or u64, the narrowest that holds the frame's width |
//! | 6, 7 packed changes | frame, bitmap of the rows that differ from the row before, packed offsets of these |
//! | 8 floats | the values by pco as f64; scale 0 |
//!
//! The scale turns values into integers: 0 to 9 is the power of ten by which an integer is divided
//! to be the value again; 15 takes the bits of the value, with all but the sign inverted in
//! negative ones.
//!
//! A frame turns integers into offsets: *first* (zigzag, odd forms only), *base* (zigzag), *shift*
//! (u8), *width* (u8, bits of the largest offset). In even forms an integer is base + (offset <<
//! shift). In odd forms that is the difference to the integer before, wrapping at 64 bits; *first*
//! stands before all, and there is one offset fewer than integers.
//!
//! Packed offsets follow each other without gaps, lowest bit first, and end with the last byte
//! begun. A bitmap has row i in bit i % 8 of byte i / 8. pco's part is the metadata of a chunk and
//! one page of its wrapped format; integers use neither modes nor delta encodings, floats no
//! dictionary.
//!
//! The quick encoder picks the smaller of 1, 2, 3, 6, 7 and 0; the small one looks at 4, 5 and 8
//! too.
//!
//! # Times
//!
//! Milliseconds (i64), strictly increasing. No rows are encoded as no bytes; else the first time
//! (zigzag), and if there are more rows, one byte of form and the steps from row to row, all
//! unsigned:
//!
//! | form | after the form |
//! |---|---|
//! | 0 runs | step and count (varints), until all rows are covered |
//! | 1 packed | least step (varint), width (u8), packed offsets from the least step |
//! | 2 entropy | least step (varint), width (u8), these offsets by pco as above |
//!
//! # Rows of the log
//!
//! Against the row before, as bits of f64: a bitmap of the values that changed, then their XOR with
//! the value before in eight planes, from the lowest byte of all of them to the highest. The log
//! compresses the whole with LZ4.

mod bits;
pub(crate) mod byte_reader;
mod decimal;
mod entropy;
mod frame_of_reference;
mod repeats;
mod row;
#[cfg(test)]
mod tests;
mod times;
mod values;

pub(crate) use row::{ExponentHints, decode_row, encode_row};
pub(crate) use times::{decode_times, encode_times};
pub(crate) use values::{decode_values, encode_quick, encode_small};

/// The most rows that one encoded column holds.
pub(crate) const ROWS_MAX: usize = 8192;

/// An error for bytes that no encoder writes: damaged, or written by another program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct DecodeError(pub(crate) &'static str);
