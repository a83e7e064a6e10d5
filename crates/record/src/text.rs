//! Deflated text: documents, and the names of series.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;

use crate::sample_coder::MalformedBlock;

/// The most bytes of an inflated text.
pub(crate) const TEXT_BYTES_MAX: usize = 16 << 20;

/// Deflates a text. An empty one stays empty.
pub(crate) fn deflate(text: &str) -> Vec<u8> {
    if text.is_empty() {
        return Vec::new();
    }
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    let written = encoder.write_all(text.as_bytes());
    let finished = written.and_then(|()| encoder.finish());
    finished.expect("writing to memory does not fail")
}

pub(crate) fn inflate(bytes: &[u8]) -> Result<String, MalformedBlock> {
    let mut text = String::new();
    if bytes.is_empty() {
        return Ok(text);
    }
    let mut decoder = DeflateDecoder::new(bytes).take(TEXT_BYTES_MAX as u64 + 1);
    let read = decoder.read_to_string(&mut text);
    read.map_err(|_| MalformedBlock("not deflated UTF-8"))?;
    if text.len() > TEXT_BYTES_MAX {
        return Err(MalformedBlock("text exceeds 16 MiB"));
    }
    Ok(text)
}
