//! LZ4 blocks preceded by their raw length. The same limit holds when they are written and read:
//! what [`pack`] accepts, [`unpack`] returns.

use crate::codec::DecodeError;

/// The largest raw length.
pub(crate) const RAW_LEN_MAX: usize = 256 << 20;

/// The error returned for data that could not be read back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} bytes exceed the limit of {RAW_LEN_MAX} bytes of an LZ4 block")]
pub(crate) struct PackError(usize);

/// Appends a block. On failure nothing is appended.
pub(crate) fn pack(raw: &[u8], out: &mut Vec<u8>) -> Result<(), PackError> {
    if raw.len() > RAW_LEN_MAX {
        return Err(PackError(raw.len()));
    }
    // Far below 4 GiB.
    out.extend_from_slice(&(raw.len() as u32).to_le_bytes());
    let start = out.len();
    out.resize(
        start + lz4_flex::block::get_maximum_output_size(raw.len()),
        0,
    );
    let packed = lz4_flex::block::compress_into(raw, &mut out[start..])
        .expect("the buffer has the maximum size");
    out.truncate(start + packed);
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_read_back_and_more_is_refused() {
        // Zeros compress most, and mapped zero pages take no memory until they are written.
        let raw = vec![0; RAW_LEN_MAX + 1];
        let mut packed = Vec::new();
        assert_eq!(pack(&raw, &mut packed), Err(PackError(RAW_LEN_MAX + 1)));
        assert!(packed.is_empty(), "nothing is written that cannot be read");
        pack(&raw[..RAW_LEN_MAX], &mut packed).expect("the largest block");
        assert!(unpack(&packed).is_ok_and(|read| read == raw[..RAW_LEN_MAX]));
    }
}
