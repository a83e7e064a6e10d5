//! Retention: whole blocks are dropped by age and by size.

use std::sync::Arc;

use crate::block::Block;
use crate::shared::Shared;

/// Drops whole blocks: those beyond their age, then the oldest until log and blocks fit.
pub(super) fn drop_old(shared: &Shared) {
    let oldest_kept = shared.oldest_kept();
    let mut state = shared.write();
    let (mut dropped, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut state.blocks)
        .into_iter()
        .partition(|block| block.max < oldest_kept);
    state.blocks = kept;
    let mut total = state.log_bytes() + state.blocks.iter().map(|block| block.bytes).sum::<u64>();
    while total > shared.options.keep_bytes {
        let Some(at) = oldest_block(&state.blocks) else {
            break;
        };
        let block = state.blocks.remove(at);
        total -= block.bytes;
        dropped.push(block);
    }
    drop(state);
    for block in dropped {
        tracing::debug!(path = %block.path.display(), "dropped a block by age or size");
        shared.indexes.forget(block.id);
        block.doom();
    }
}

/// The block to drop first when there is no room: the oldest of those that overrule no other. Without a block
/// that overrules it, an older one would show samples that were replaced. (What is beyond its age is not
/// shown at all.)
fn oldest_block(blocks: &[Arc<Block>]) -> Option<usize> {
    let overrules = |at: usize| {
        let block = &blocks[at];
        blocks[..at]
            .iter()
            .any(|weaker| weaker.overlaps(block.min, block.max))
    };
    (0..blocks.len())
        .filter(|at| !overrules(*at))
        .min_by_key(|at| blocks[*at].max)
}
