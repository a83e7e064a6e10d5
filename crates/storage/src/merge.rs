//! Merges the numbered objects of a record that ended: object stores cannot append, so each
//! block is an object until then.
//!
//! Blocks are copied in order into as few parts as possible, which replace the first numbered
//! objects; then the other objects are deleted, the last one first. A part is only replaced when
//! its blocks are in merged parts. Whenever the node ends, the parts therefore contain every block,
//! some of them twice, and a reader ignores repetitions. A merge that starts again ignores them
//! too, so that it leads to the same parts.

use pegel_record::{RecordEvent, RecordReader};

use super::object_storage::ObjectClient;
use super::{StorageProblem, StorageProblemKind, part_name};

/// The most bytes of a merged part, unless a single object has more: it is kept in memory.
const MERGED_BYTES_MAX: usize = 16 << 20;
/// The most bytes of an object that is read. A block has less: its samples and texts are limited.
const OBJECT_BYTES_MAX: u64 = 64 << 20;

/// The most attempts of one request.
const STEP_ATTEMPTS: u32 = 3;

/// The progress of a merge.
#[derive(Debug)]
pub(super) struct PartMerge {
    /// The most bytes of a merged part.
    pub(super) bytes_max: usize,
    last_part: u32,
    /// The next object to read.
    next_part: u32,
    /// The number of the next block.
    next_sequence: u64,
    /// Blocks that are not in a merged part yet.
    blocks: Vec<u8>,
    merged_parts: u32,
    /// The objects from this number on are deleted.
    deleted_from: Option<u32>,
    /// Whether objects are damaged: then nothing is changed.
    is_abandoned: bool,
}

impl PartMerge {
    pub(super) fn new(last_part: u32) -> PartMerge {
        PartMerge {
            bytes_max: MERGED_BYTES_MAX,
            last_part,
            next_part: 0,
            next_sequence: 0,
            blocks: Vec::new(),
            merged_parts: 0,
            deleted_from: None,
            is_abandoned: false,
        }
    }

    /// Merges, or continues after a failure.
    pub(super) fn run(&mut self, client: &mut dyn ObjectClient) -> Result<(), StorageProblem> {
        // The record consists of one part already.
        if self.last_part == 0 {
            return Ok(());
        }
        while self.next_part <= self.last_part && !self.is_abandoned {
            self.repeat(|merge| merge.copy_part(client))?;
        }
        if self.is_abandoned {
            return Ok(());
        }
        self.repeat(|merge| merge.write_blocks(client))?;
        let deleted = self.deleted_from.unwrap_or(self.last_part + 1);
        for part in (self.merged_parts..deleted).rev() {
            self.repeat(|_| client.delete(&part_name(part)))?;
            self.deleted_from = Some(part);
        }
        Ok(())
    }

    /// Repeats a step at once if its request was lost: a merge has thousands of them, and the
    /// uploader waits longer after each failure.
    fn repeat(
        &mut self,
        mut step: impl FnMut(&mut PartMerge) -> Result<(), StorageProblem>,
    ) -> Result<(), StorageProblem> {
        for _ in 1..STEP_ATTEMPTS {
            match step(self) {
                Err(problem) if problem.kind == StorageProblemKind::Unreachable => {}
                result => return result,
            }
        }
        step(self)
    }

    fn copy_part(&mut self, client: &mut dyn ObjectClient) -> Result<(), StorageProblem> {
        // An object that does not exist was deleted by a merge that did not end.
        let object = client.read(&part_name(self.next_part), OBJECT_BYTES_MAX)?;
        let object = object.unwrap_or_default();
        let Some((added, next_sequence)) = blocks_from(&object, self.next_sequence) else {
            // Parts that were replaced already are complete, and the others remain.
            self.is_abandoned = true;
            self.blocks = Vec::new();
            return Ok(());
        };
        if self.blocks.len() + added.len() > self.bytes_max {
            self.write_blocks(client)?;
        }
        self.blocks.extend_from_slice(&added);
        self.next_sequence = next_sequence;
        self.next_part += 1;
        Ok(())
    }

    /// Writes a merged part. It replaces an object whose blocks were copied, because each merged
    /// part contains the blocks of at least one object.
    fn write_blocks(&mut self, client: &mut dyn ObjectClient) -> Result<(), StorageProblem> {
        if self.blocks.is_empty() {
            return Ok(());
        }
        client.put(&part_name(self.merged_parts), &self.blocks)?;
        self.blocks = Vec::new();
        self.merged_parts += 1;
        Ok(())
    }
}

/// Returns the blocks of an object whose numbers are at least `next_sequence`, and the number after
/// the last one. Returns `None` if the object contains anything else.
fn blocks_from(object: &[u8], next_sequence: u64) -> Option<(Vec<u8>, u64)> {
    let (mut added, mut next) = (Vec::new(), next_sequence);
    for event in RecordReader::new(object) {
        let (header, position) = match event {
            RecordEvent::Block {
                header, position, ..
            }
            | RecordEvent::Repeated { header, position }
            | RecordEvent::Malformed {
                header, position, ..
            } => (header, position),
            RecordEvent::Missing { .. } => continue,
            RecordEvent::Damaged { .. } => return None,
        };
        if header.sequence < next {
            continue;
        }
        let end = position.checked_add(header.block_bytes())?;
        added.extend_from_slice(object.get(position..end)?);
        next = header.sequence.checked_add(1)?;
    }
    Some((added, next))
}
