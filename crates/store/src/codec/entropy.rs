//! Offsets of a frame, as pco's bins and offsets: the smallest form, for sealed blocks.
//!
//! The wrapped form of pco without its header: chunk metadata, then one page. Frames have done what
//! pco's modes and delta encodings do, so that only the plainest of each is used, on the narrowest
//! integer type that holds the offsets, because pco writes the bounds of its bins at full width. Only
//! floats that are not decimals need pco's own search.

use pco::data_types::Number;
use pco::wrapped::{FileCompressor, FileDecompressor};
use pco::{ChunkConfig, DeltaSpec, ModeSpec, PagingSpec};

use super::{Corrupt, ROWS_MAX};

pub(super) const LEVEL: usize = 4;

/// pco's own format number, major and minor, which the store's format number stands for.
const PCO_FORMAT: [u8; 2] = [4, 1];

const DAMAGED: Corrupt = Corrupt("entropy-coded values do not decode");

pub(super) fn encode(offsets: &[u64], width: u32, out: &mut Vec<u8>) {
    match width {
        0..=8 => encode_as(offsets, |offset| offset as u8, DeltaSpec::NoOp, out),
        9..=16 => encode_as(offsets, |offset| offset as u16, DeltaSpec::NoOp, out),
        17..=32 => encode_as(offsets, |offset| offset as u32, DeltaSpec::NoOp, out),
        _ => encode_as(offsets, |offset| offset, DeltaSpec::NoOp, out),
    }
}

/// For integers that no frame makes small: pco also looks for repeated values and smooth curves.
pub(super) fn encode_searching(integers: &[u64], out: &mut Vec<u8>) {
    encode_as(integers, |integer| integer, DeltaSpec::Auto, out);
}

fn encode_as<N: Number>(
    offsets: &[u64],
    narrow: impl Fn(u64) -> N,
    delta: DeltaSpec,
    out: &mut Vec<u8>,
) {
    let numbers: Vec<N> = offsets.iter().map(|&offset| narrow(offset)).collect();
    let config = ChunkConfig::default()
        .with_compression_level(LEVEL)
        .with_mode_spec(ModeSpec::Classic)
        .with_delta_spec(delta)
        .with_paging_spec(PagingSpec::Exact(vec![numbers.len()]))
        .with_enable_8_bit(true);
    let mut chunk = FileCompressor::default()
        .chunk_compressor(&numbers, &config)
        .expect("the configuration is valid and there is at least one number");
    chunk
        .write_meta(&mut *out)
        .expect("writing to memory does not fail");
    chunk
        .write_page(0, out)
        .expect("writing to memory does not fail");
}

/// Fills `out` with what [`encode`] was given, each through `from`. It must fill `bytes` exactly.
pub(super) fn decode<T>(bytes: &[u8], width: u32, out: &mut [T], from: impl Fn(u64) -> T) -> Result<(), Corrupt> {
    check_plain(bytes, out.len())?;
    match width {
        0..=8 => decode_as::<u8, T>(bytes, out, from),
        9..=16 => decode_as::<u16, T>(bytes, out, from),
        17..=32 => decode_as::<u32, T>(bytes, out, from),
        _ => decode_as::<u64, T>(bytes, out, from),
    }
}

/// The same for [`encode_searching`].
pub(super) fn decode_searching<T>(bytes: &[u8], out: &mut [T], from: impl Fn(u64) -> T) -> Result<(), Corrupt> {
    check_searching(bytes)?;
    decode_as::<u64, T>(bytes, out, from)
}

fn decode_as<N: Number + Into<u64>, T>(bytes: &[u8], out: &mut [T], from: impl Fn(u64) -> T) -> Result<(), Corrupt> {
    let (file, _) = FileDecompressor::new(PCO_FORMAT.as_slice()).map_err(|_| DAMAGED)?;
    let (mut chunk, rest) = file.chunk_decompressor::<N, _>(bytes).map_err(|_| DAMAGED)?;
    let mut page = chunk.page_decompressor(rest, out.len()).map_err(|_| DAMAGED)?;
    let mut numbers = vec![N::default(); out.len()];
    let progress = page.read(&mut numbers).map_err(|_| DAMAGED)?;
    if !progress.finished || !page.into_src().is_empty() {
        return Err(DAMAGED);
    }
    for (slot, number) in out.iter_mut().zip(numbers) {
        *slot = from(number.into());
    }
    Ok(())
}

// pco answers damage with errors, but believes the sizes in its metadata before it has seen the data:
// a dictionary or a window may ask for hundreds of megabytes. The metadata begins with four bits of
// mode, always 0 here, and four of delta encoding, so that larger sizes than were ever written are
// refused before pco sees them.

/// No delta encoding, and no more bins than values.
fn check_plain(bytes: &[u8], count: usize) -> Result<(), Corrupt> {
    let Some(&head) = bytes.first_chunk() else {
        return Err(DAMAGED);
    };
    // After the first byte, four bits of table size, then fifteen for the count of bins.
    let bins = (u32::from_le_bytes(head) >> 12 & 0x7fff) as usize;
    if head[0] != 0 || bins == 0 || bins > count { Err(DAMAGED) } else { Ok(()) }
}

/// No delta encoding, differences of some order, or looking back within a window: five bits of its
/// size (log, less one), then four of initial state, which is one value and written as 0.
fn check_searching(bytes: &[u8]) -> Result<(), Corrupt> {
    const WINDOW_LOG_MAX: u16 = ROWS_MAX.ilog2() as u16;
    match bytes {
        [0x00 | 0x10, ..] => Ok(()),
        [0x20, a, b, ..] => {
            let lookback = u16::from_le_bytes([*a, *b]);
            if (lookback & 0x1f) < WINDOW_LOG_MAX && lookback >> 5 & 0x0f == 0 { Ok(()) } else { Err(DAMAGED) }
        }
        _ => Err(DAMAGED),
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
        assert_eq!(bytes[0], 0);
        for first in 1..=u8::MAX {
            bytes[0] = first;
            assert_eq!(
                decode(&bytes, 10, &mut [0; 6], |offset| offset),
                Err(DAMAGED)
            );
        }
        assert_eq!(
            decode(
                &[0, 0xff, 0xff, 0x07, 0, 0, 0, 0],
                10,
                &mut [0; 6],
                |offset| offset
            ),
            Err(DAMAGED)
        );
    }
}
