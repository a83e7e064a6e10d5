//! LZ4 blocks preceded by their raw length, which is checked when they are read.

use crate::codec::DecodeError;

/// The largest raw length: the store writes no larger block.
const RAW_LEN_MAX: usize = 256 << 20;

pub(crate) fn pack(raw: &[u8], out: &mut Vec<u8>) {
    let len = u32::try_from(raw.len()).expect("blocks are bounded far below 4 GiB");
    out.extend_from_slice(&len.to_le_bytes());
    let start = out.len();
    out.resize(
        start + lz4_flex::block::get_maximum_output_size(raw.len()),
        0,
    );
    let packed = lz4_flex::block::compress_into(raw, &mut out[start..])
        .expect("the buffer has the maximum size");
    out.truncate(start + packed);
}

pub(crate) fn unpack(bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let (len, packed) = bytes
        .split_first_chunk::<4>()
        .ok_or(DecodeError("truncated LZ4 block"))?;
    let len = u32::from_le_bytes(*len) as usize;
    // LZ4 cannot expand data more than 255 times: reject a larger length before allocating.
    if len > RAW_LEN_MAX || len > packed.len().saturating_mul(255) + 64 {
        return Err(DecodeError("invalid length of an LZ4 block"));
    }
    let mut raw = vec![0; len];
    match lz4_flex::block::decompress_into(packed, &mut raw) {
        Ok(written) if written == len => Ok(raw),
        _ => Err(DecodeError("damaged LZ4 block")),
    }
}
