//! Reads the blocks of a record, and reports those that are damaged or missing.

use crate::block::{
    BlockDamage, DamagedBlock, HEADER_BYTES, RecordBlockHeader, RecordBlockKind, find_block,
    parse_block,
};
use crate::sample_coder::{MalformedBlock, RecordSamples, SampleCoder};
use crate::text::inflate;

/// The search for a whole block after damage may compute checksums over this many times the
/// record: bytes that look like many overlapping blocks would take quadratic time otherwise.
const SEARCH_FACTOR: usize = 4;

/// The content of a block.
#[derive(Debug, Clone, PartialEq)]
pub enum BlockContent {
    /// A document, an autopsy or the end: JSON.
    Text(String),
    Samples(Vec<RecordSamples>),
    /// Samples that depend on a missing or damaged block.
    Undecodable,
}

/// What the reader finds next.
#[derive(Debug, Clone, PartialEq)]
pub enum RecordEvent {
    Block {
        header: RecordBlockHeader,
        position: usize,
        content: BlockContent,
    },
    /// A block that was read before: it is skipped.
    Repeated {
        header: RecordBlockHeader,
        position: usize,
    },
    /// Blocks that do not occur.
    Missing { first: u64, last: u64 },
    /// Bytes that are not a whole block.
    Damaged {
        position: usize,
        bytes: usize,
        /// The number of the damaged block, if its header is intact.
        sequence: Option<u64>,
        damage: BlockDamage,
    },
    /// A block with right checksums that this program cannot decode.
    Malformed {
        header: RecordBlockHeader,
        position: usize,
        error: MalformedBlock,
    },
}

/// Reads a record from memory: one file, or all parts of a record one after the other.
#[derive(Debug)]
pub struct RecordReader<'a> {
    bytes: &'a [u8],
    position: usize,
    /// The number of the next block, unless it is missing.
    next_sequence: u64,
    /// `None` until the next key block.
    coder: Option<SampleCoder>,
    search_bytes_left: usize,
}

impl<'a> RecordReader<'a> {
    pub fn new(bytes: &'a [u8]) -> RecordReader<'a> {
        RecordReader {
            bytes,
            position: 0,
            next_sequence: 0,
            coder: None,
            search_bytes_left: bytes.len().saturating_mul(SEARCH_FACTOR),
        }
    }

    /// Skips to the next whole block.
    fn skip_damage(&mut self, DamagedBlock { damage, header }: DamagedBlock) -> RecordEvent {
        let position = self.position;
        self.position = self.next_whole_block(header);
        // Foreign bytes between two blocks cost nothing; if they were a block, it is missing later.
        let header = header.filter(|header| header.sequence == self.next_sequence);
        if header.is_some() {
            self.next_sequence = self.next_sequence.saturating_add(1);
        }
        // Documents do not change the models.
        if header.is_some_and(|header| header.kind.has_samples()) {
            self.coder = None;
        }
        RecordEvent::Damaged {
            position,
            bytes: self.position - position,
            sequence: header.map(|header| header.sequence),
            damage,
        }
    }

    /// Returns the position of the next whole block after the current position.
    fn next_whole_block(&mut self, header: Option<RecordBlockHeader>) -> usize {
        if let Some(header) = header.filter(|_| self.search_bytes_left == 0) {
            return (self.position + header.block_bytes()).min(self.bytes.len());
        }
        let mut start = self.position + 1;
        while let Some(found) = find_block(self.bytes, start) {
            let candidate = parse_block(&self.bytes[found..]);
            let header = match candidate {
                Ok(_) => return found,
                Err(damaged) => damaged.header,
            };
            if let Some(header) = header {
                if self.search_bytes_left == 0 {
                    return found;
                }
                let searched = header.block_bytes();
                self.search_bytes_left = self.search_bytes_left.saturating_sub(searched);
            }
            start = found + 1;
        }
        self.bytes.len()
    }

    fn decode(
        &mut self,
        kind: RecordBlockKind,
        body: &[u8],
    ) -> Result<BlockContent, MalformedBlock> {
        match kind {
            RecordBlockKind::Document | RecordBlockKind::Autopsy | RecordBlockKind::End => {
                return inflate(body).map(BlockContent::Text);
            }
            RecordBlockKind::Key => self.coder = Some(SampleCoder::default()),
            RecordBlockKind::Samples => {}
        }
        let Some(mut coder) = self.coder.take() else {
            return Ok(BlockContent::Undecodable);
        };
        let samples = coder.decode(body)?;
        self.coder = Some(coder);
        Ok(BlockContent::Samples(samples))
    }
}

impl Iterator for RecordReader<'_> {
    type Item = RecordEvent;

    fn next(&mut self) -> Option<RecordEvent> {
        let bytes = self.bytes;
        let position = self.position;
        if position == bytes.len() {
            return None;
        }
        let (header, body) = match parse_block(&bytes[position..]) {
            Ok(block) => block,
            Err(damaged) => return Some(self.skip_damage(damaged)),
        };
        let (expected, found) = (self.next_sequence, header.sequence);
        if found > expected {
            self.next_sequence = found;
            self.coder = None;
            return Some(RecordEvent::Missing {
                first: expected,
                last: found - 1,
            });
        }
        self.position += HEADER_BYTES + body.len();
        if found < expected {
            return Some(RecordEvent::Repeated { header, position });
        }
        self.next_sequence = expected.saturating_add(1);
        let content = self.decode(header.kind, body);
        Some(match content {
            Ok(content) => RecordEvent::Block {
                header,
                position,
                content,
            },
            Err(error) => RecordEvent::Malformed {
                header,
                position,
                error,
            },
        })
    }
}

#[cfg(test)]
mod tests;
