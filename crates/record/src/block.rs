//! The frame of a block: a header of fixed size with a checksum of its own, then the body.

use pegel_metric::Millis;

/// The first bytes of each block. After damage a reader searches for them.
const MAGIC: [u8; 4] = *b"PGLR";
const VERSION: u8 = 1;
/// The header without its checksum.
const CHECKED_BYTES: usize = 40;
pub(crate) const HEADER_BYTES: usize = CHECKED_BYTES + 4;

/// The kind of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordBlockKind {
    /// A document: the snapshot of the machine, the configuration.
    Document,
    /// Samples that are decoded without an earlier block.
    Key,
    /// Samples that require all blocks of samples since the last key block.
    Samples,
    /// The state of a task that was killed or failed.
    Autopsy,
    /// The end of the record.
    End,
}

impl RecordBlockKind {
    const ALL: [RecordBlockKind; 5] = [
        RecordBlockKind::Document,
        RecordBlockKind::Key,
        RecordBlockKind::Samples,
        RecordBlockKind::Autopsy,
        RecordBlockKind::End,
    ];

    fn to_byte(self) -> u8 {
        self as u8 + 1
    }

    fn from_byte(byte: u8) -> Option<RecordBlockKind> {
        let mut kinds = RecordBlockKind::ALL.into_iter();
        kinds.find(|kind| kind.to_byte() == byte)
    }

    /// Returns the name used in JSON and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            RecordBlockKind::Document => "document",
            RecordBlockKind::Key => "key",
            RecordBlockKind::Samples => "samples",
            RecordBlockKind::Autopsy => "autopsy",
            RecordBlockKind::End => "end",
        }
    }

    /// Whether the block contains samples.
    pub fn has_samples(self) -> bool {
        matches!(self, RecordBlockKind::Key | RecordBlockKind::Samples)
    }
}

/// The header of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordBlockHeader {
    pub kind: RecordBlockKind,
    /// The blocks of a record are numbered from 0.
    pub sequence: u64,
    /// The times of its first and its last sample.
    pub start: Millis,
    pub end: Millis,
    pub(crate) body_bytes: u32,
    body_checksum: u32,
}

impl RecordBlockHeader {
    pub(crate) fn new(
        kind: RecordBlockKind,
        sequence: u64,
        (start, end): (Millis, Millis),
        body: &[u8],
    ) -> RecordBlockHeader {
        RecordBlockHeader {
            kind,
            sequence,
            start,
            end,
            body_bytes: body.len() as u32,
            body_checksum: crc32fast::hash(body),
        }
    }

    /// Returns the number of bytes of the whole block.
    pub fn block_bytes(&self) -> usize {
        HEADER_BYTES + self.body_bytes as usize
    }

    /// Whether `body` is the body that this header was written for.
    pub(crate) fn matches(&self, body: &[u8]) -> bool {
        body.len() == self.body_bytes as usize && crc32fast::hash(body) == self.body_checksum
    }

    /// Appends the header and its body.
    pub(crate) fn write(&self, body: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        out.reserve(HEADER_BYTES + body.len());
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[VERSION, self.kind.to_byte(), 0, 0]);
        out.extend_from_slice(&self.sequence.to_le_bytes());
        out.extend_from_slice(&self.start.to_le_bytes());
        out.extend_from_slice(&self.end.to_le_bytes());
        out.extend_from_slice(&self.body_bytes.to_le_bytes());
        out.extend_from_slice(&self.body_checksum.to_le_bytes());
        let checksum = crc32fast::hash(&out[start..]);
        out.extend_from_slice(&checksum.to_le_bytes());
        out.extend_from_slice(body);
    }

    /// Parses the header at the start of `bytes`.
    pub(crate) fn parse(bytes: &[u8]) -> Result<RecordBlockHeader, BlockDamage> {
        let Some(head) = bytes.first_chunk::<HEADER_BYTES>() else {
            let start = &bytes[..bytes.len().min(MAGIC.len())];
            return Err(match MAGIC.starts_with(start) {
                true => BlockDamage::Truncated,
                false => BlockDamage::NoHeader,
            });
        };
        if !head.starts_with(&MAGIC) {
            return Err(BlockDamage::NoHeader);
        }
        if crc32fast::hash(&head[..CHECKED_BYTES]) != word(head, CHECKED_BYTES) {
            return Err(BlockDamage::Header);
        }
        let kind = RecordBlockKind::from_byte(head[5]).filter(|_| head[4] == VERSION);
        Ok(RecordBlockHeader {
            kind: kind.ok_or(BlockDamage::Version(head[4], head[5]))?,
            sequence: long_word(head, 8),
            start: long_word(head, 16) as i64,
            end: long_word(head, 24) as i64,
            body_bytes: word(head, 32),
            body_checksum: word(head, 36),
        })
    }
}

fn word(head: &[u8; HEADER_BYTES], at: usize) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&head[at..at + 4]);
    u32::from_le_bytes(bytes)
}

fn long_word(head: &[u8; HEADER_BYTES], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&head[at..at + 8]);
    u64::from_le_bytes(bytes)
}

/// Why bytes are not a whole block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BlockDamage {
    #[error("the record ends within a block")]
    Truncated,
    #[error("no block starts here")]
    NoHeader,
    #[error("wrong checksum of the header")]
    Header,
    #[error("wrong checksum of the body")]
    Body,
    #[error("block of version {0}, kind {1}; this program reads version 1, kinds 1 to 5")]
    Version(u8, u8),
}

/// Bytes that are not a whole block. The header of a block with a damaged or truncated body may be
/// intact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DamagedBlock {
    pub(crate) damage: BlockDamage,
    pub(crate) header: Option<RecordBlockHeader>,
}

/// Returns the header and the body of the block at the start of `bytes`.
pub(crate) fn parse_block(bytes: &[u8]) -> Result<(RecordBlockHeader, &[u8]), DamagedBlock> {
    let damaged = |damage, header| DamagedBlock { damage, header };
    let header = RecordBlockHeader::parse(bytes).map_err(|damage| damaged(damage, None))?;
    match bytes.get(HEADER_BYTES..header.block_bytes()) {
        None => Err(damaged(BlockDamage::Truncated, Some(header))),
        Some(body) if header.matches(body) => Ok((header, body)),
        Some(_) => Err(damaged(BlockDamage::Body, Some(header))),
    }
}

/// Returns the position of the first possible block at or after `start`.
pub(crate) fn find_block(bytes: &[u8], start: usize) -> Option<usize> {
    let found = memchr::memmem::find(bytes.get(start..)?, &MAGIC)?;
    Some(start + found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_of_each_byte_and_each_truncation_is_detected() {
        let header = RecordBlockHeader::new(RecordBlockKind::Key, 7, (-5, 1 << 40), b"body");
        let mut block = Vec::new();
        header.write(b"body", &mut block);
        assert_eq!(parse_block(&block), Ok((header, &b"body"[..])));
        for position in 0..block.len() {
            let mut damaged = block.clone();
            damaged[position] ^= 0x10;
            let found = parse_block(&damaged).expect_err("damage").header;
            // A damaged body leaves the header readable.
            let expected = (position >= HEADER_BYTES).then_some(header);
            assert_eq!(found, expected, "byte {position}");
        }
        for length in 0..block.len() {
            let damaged = parse_block(&block[..length]).expect_err("truncated");
            assert_eq!(damaged.damage, BlockDamage::Truncated, "{length} bytes");
        }
        let two = [&block[..], &block[..]].concat();
        assert_eq!(find_block(&two, 1), Some(block.len()));
        assert_eq!(find_block(&two, block.len() + 1), None);
    }
}
