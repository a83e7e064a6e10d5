//! Entropy coding of numbers with pco: the smallest form, used for sealed blocks.
//!
//! The wrapped form of pco without its header: chunk metadata, then one page. For integers, frames
//! already do the work of pco's modes and delta encodings, so that only the simplest of each is
//! used, on the narrowest type that holds the offsets, because pco writes the bounds of its bins at
//! full width. Floats that are not decimals are left to pco's own search.

use pco::data_types::Number;
use pco::wrapped::{FileCompressor, FileDecompressor};
use pco::{ChunkConfig, DeltaSpec, ModeSpec, PagingSpec};

use super::{DecodeError, ROWS_MAX};

/// Level 8 is 3 to 8 % smaller on node metrics, for 1.2 to 3.5 times the time.
const LEVEL: usize = 4;

/// pco's own format number, major and minor, which is implied by the store's format number.
const PCO_FORMAT: [u8; 2] = [4, 1];

const UNDECODABLE: DecodeError = DecodeError("cannot decode entropy-coded numbers");

/// Encodes at least one offset; none may need more than `width` bits.
pub(super) fn encode(offsets: &[u64], width: u32, out: &mut Vec<u8>) {
    match width {
        0..=8 => encode_as(offsets, |offset| offset as u8, out),
        9..=16 => encode_as(offsets, |offset| offset as u16, out),
        17..=32 => encode_as(offsets, |offset| offset as u32, out),
        _ => encode_as(offsets, |offset| offset, out),
    }
}

/// Encodes at least one value. pco searches for a common factor, repeated values and smooth curves.
/// All values must be finite: pco calculates with them, and the bits of a NaN after a calculation
/// differ between machines.
pub(super) fn encode_floats(values: &[f64], out: &mut Vec<u8>) {
    compress(values, ModeSpec::Auto, DeltaSpec::Auto, out);
}

fn encode_as<N: Number>(offsets: &[u64], narrow: impl Fn(u64) -> N, out: &mut Vec<u8>) {
    let numbers: Vec<N> = offsets.iter().map(|&offset| narrow(offset)).collect();
    compress(&numbers, ModeSpec::Classic, DeltaSpec::NoOp, out);
}

fn compress<N: Number>(numbers: &[N], mode: ModeSpec, delta: DeltaSpec, out: &mut Vec<u8>) {
    let config = ChunkConfig::default()
        .with_compression_level(LEVEL)
        .with_mode_spec(mode)
        .with_delta_spec(delta)
        .with_paging_spec(PagingSpec::Exact(vec![numbers.len()]))
        .with_enable_8_bit(true);
    let mut chunk = FileCompressor::default()
        .chunk_compressor(numbers, &config)
        .expect("the configuration is valid and there is at least one number");
    chunk
        .write_meta(&mut *out)
        .expect("writing to memory does not fail");
    chunk
        .write_page(0, out)
        .expect("writing to memory does not fail");
}

/// Decodes the output of [`encode`] into `out`, each number converted by `from`. It must fill
/// `bytes` exactly.
pub(super) fn decode<T>(
    bytes: &[u8],
    width: u32,
    out: &mut [T],
    from: impl Fn(u64) -> T,
) -> Result<(), DecodeError> {
    check_integer_metadata(bytes, out.len())?;
    match width {
        0..=8 => decode_as::<u8, T>(bytes, out, from),
        9..=16 => decode_as::<u16, T>(bytes, out, from),
        17..=32 => decode_as::<u32, T>(bytes, out, from),
        _ => decode_as::<u64, T>(bytes, out, from),
    }
}

/// Decodes the output of [`encode_floats`] into `out`. It must fill `bytes` exactly.
pub(super) fn decode_floats(bytes: &[u8], out: &mut [f64]) -> Result<(), DecodeError> {
    check_float_metadata(bytes)?;
    decompress(bytes, out)
}

fn decode_as<N: Number + Into<u64>, T>(
    bytes: &[u8],
    out: &mut [T],
    from: impl Fn(u64) -> T,
) -> Result<(), DecodeError> {
    let mut numbers = vec![N::default(); out.len()];
    decompress(bytes, &mut numbers)?;
    for (slot, number) in out.iter_mut().zip(numbers) {
        *slot = from(number.into());
    }
    Ok(())
}

fn decompress<N: Number>(bytes: &[u8], numbers: &mut [N]) -> Result<(), DecodeError> {
    let (file, _) = FileDecompressor::new(PCO_FORMAT.as_slice()).map_err(|_| UNDECODABLE)?;
    let (mut chunk, rest) = file
        .chunk_decompressor::<N, _>(bytes)
        .map_err(|_| UNDECODABLE)?;
    let mut page = chunk
        .page_decompressor(rest, numbers.len())
        .map_err(|_| UNDECODABLE)?;
    let progress = page.read(numbers).map_err(|_| UNDECODABLE)?;
    if progress.finished && page.into_src().is_empty() {
        Ok(())
    } else {
        Err(UNDECODABLE)
    }
}

// pco returns errors for damaged data, but trusts the sizes in its metadata before it has seen the
// data: a dictionary or a window may allocate hundreds of megabytes. The metadata begins with four
// bits of mode, the fields of that mode, and four bits of delta encoding, so that sizes that the
// store never writes can be rejected before pco sees them.

/// Checks the metadata of integers: mode and delta encoding 0, then four bits of table size, then
/// fifteen bits with the count of bins, which must not exceed the count of numbers.
fn check_integer_metadata(bytes: &[u8], count: usize) -> Result<(), DecodeError> {
    let head = *bytes.first_chunk().ok_or(UNDECODABLE)?;
    let bins = ((u32::from_le_bytes(head) >> 12) & 0x7fff) as usize;
    if head[0] == 0 && (1..=count).contains(&bins) {
        Ok(())
    } else {
        Err(UNDECODABLE)
    }
}

/// Checks the metadata of floats: no dictionary; no delta encoding (0), differences (1), or
/// lookback (2) within a window: five bits of its size (log, less one), then four of initial state,
/// which is one value and written as 0.
fn check_float_metadata(bytes: &[u8]) -> Result<(), DecodeError> {
    const WINDOW_LOG_MAX: u16 = ROWS_MAX.ilog2() as u16;
    let delta_at = match bytes.first().ok_or(UNDECODABLE)? & 0x0f {
        0 => 0, // plain
        2 => 8, // a factor of 64 bits
        3 => 1, // a count of bits, in 8
        _ => return Err(UNDECODABLE),
    };
    let delta = bytes.get(delta_at..).ok_or(UNDECODABLE)?;
    match (delta.first().ok_or(UNDECODABLE)? >> 4, delta.get(1..3)) {
        (0 | 1, _) => Ok(()),
        (2, Some(&[a, b])) => {
            let lookback = u16::from_le_bytes([a, b]);
            let fits = (lookback & 0x1f) < WINDOW_LOG_MAX && (lookback >> 5) & 0x0f == 0;
            if fits { Ok(()) } else { Err(UNDECODABLE) }
        }
        _ => Err(UNDECODABLE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pco_still_writes_the_format_that_blocks_promise() {
        let mut header = Vec::new();
        FileCompressor::default().write_header(&mut header).unwrap();
        assert_eq!(
            header, PCO_FORMAT,
            "a new pco format needs a new format number of the store"
        );
    }

    #[test]
    fn metadata_that_asks_for_much_memory_is_refused_before_pco_sees_it() {
        let mut bytes = Vec::new();
        encode(&[1, 2, 3, 4, 1000, 5], 10, &mut bytes);
        let mut out = [0; 6];
        assert_eq!(decode(&bytes, 10, &mut out, |offset| offset), Ok(()));
        for first in 1..=u8::MAX {
            bytes[0] = first;
            assert_eq!(
                decode(&bytes, 10, &mut out, |offset| offset),
                Err(UNDECODABLE)
            );
        }
        let many_bins = [0, 0xff, 0xff, 0x07, 0, 0, 0, 0];
        assert_eq!(
            decode(&many_bins, 10, &mut out, |offset| offset),
            Err(UNDECODABLE)
        );
    }

    #[test]
    fn a_dictionary_or_a_large_window_is_refused_before_pco_sees_it() {
        // The position of the delta encoding depends on the mode.
        for (mode, delta_at) in [(0, 0), (2, 8), (3, 1)] {
            for window_log in 1..=32 {
                let mut head = [0; 16];
                head[0] = mode;
                head[delta_at] |= 0x20;
                head[delta_at + 1] = window_log - 1;
                assert_eq!(
                    check_float_metadata(&head).is_ok(),
                    window_log <= 13,
                    "{mode}, {window_log}"
                );
                head[delta_at + 2] = 1;
                assert_eq!(
                    check_float_metadata(&head),
                    Err(UNDECODABLE),
                    "mode {mode} with more state"
                );
            }
        }
        for mode in [1, 4, 5, 15] {
            assert_eq!(
                check_float_metadata(&[mode, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
                Err(UNDECODABLE)
            );
        }
    }

    #[test]
    fn floats_of_every_mode_read_back_from_the_longest_column() {
        let factor: Vec<f64> = (0..ROWS_MAX)
            .map(|i| (i * 7919 % 1013) as f64 * 0.7)
            .collect();
        let single: Vec<f64> = (0..ROWS_MAX)
            .map(|i| f64::from((i as f32).sqrt()))
            .collect();
        let distinct: Vec<f64> = (0..ROWS_MAX)
            .map(|i| 1.0 / (3 + i * i % 4001) as f64)
            .collect();
        let smooth: Vec<f64> = (0..ROWS_MAX)
            .map(|i| 9.0 + (i as f64 / 99.0).sin())
            .collect();
        let mut modes = Vec::new();
        for values in [factor, single, distinct, smooth] {
            let mut bytes = Vec::new();
            encode_floats(&values, &mut bytes);
            modes.push(bytes[0] & 0x0f);
            let mut back = vec![0.0; values.len()];
            assert_eq!(
                decode_floats(&bytes, &mut back),
                Ok(()),
                "mode {}",
                bytes[0]
            );
            assert_eq!(back, values);
        }
        assert_eq!(modes, [2, 3, 0, 0]);
    }
}
