//! Access for fuzz/.

use crate::block::{RecordBlockHeader, RecordBlockKind};

/// Returns a block with right checksums around any body.
pub fn frame_body(kind: RecordBlockKind, sequence: u64, body: &[u8]) -> Vec<u8> {
    let mut block = Vec::new();
    RecordBlockHeader::new(kind, sequence, (0, 0), body).write(body, &mut block);
    block
}
