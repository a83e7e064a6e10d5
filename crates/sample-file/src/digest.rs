//! The digest of the samples of a file, which is part of the name of the file: samples that are
//! written again, after a crash or by another version, get the same name.

use std::fmt;

use aws_lc_rs::digest::{Context, Digest, SHA256, digest};
use pegel_metric::{Millis, Series};

/// The first eight bytes of a SHA-256 over all samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SampleDigest([u8; 8]);

impl SampleDigest {
    /// Returns the digest of the bytes of a file, for a file that another process wrote.
    pub fn of_file(bytes: &[u8]) -> SampleDigest {
        SampleDigest::first_bytes(digest(&SHA256, bytes))
    }

    fn first_bytes(digest: Digest) -> SampleDigest {
        let mut first = [0; 8];
        first.copy_from_slice(&digest.as_ref()[..8]);
        SampleDigest(first)
    }
}

impl fmt::Display for SampleDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Computes a digest from series and their samples.
pub(crate) struct DigestBuilder {
    context: Context,
    bytes: Vec<u8>,
}

impl DigestBuilder {
    pub(crate) fn new() -> DigestBuilder {
        DigestBuilder {
            context: Context::new(&SHA256),
            bytes: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, series: &Series, points: &[(Millis, f64)]) {
        self.bytes.clear();
        for text in [series.text(), series.family().input.as_str()] {
            self.bytes.extend((text.len() as u64).to_le_bytes());
            self.bytes.extend(text.as_bytes());
        }
        self.bytes.extend((points.len() as u64).to_le_bytes());
        self.context.update(&self.bytes);
        for points in points.chunks(512) {
            self.bytes.clear();
            for (time, value) in points {
                self.bytes.extend(time.to_le_bytes());
                self.bytes.extend(value.to_bits().to_le_bytes());
            }
            self.context.update(&self.bytes);
        }
    }

    pub(crate) fn finish(self) -> SampleDigest {
        SampleDigest::first_bytes(self.context.finish())
    }
}

impl fmt::Debug for DigestBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DigestBuilder").finish_non_exhaustive()
    }
}
