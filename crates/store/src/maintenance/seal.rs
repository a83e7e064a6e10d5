//! Sealing: merges the fresh blocks of one class and one finished hour into one sealed block.

use std::sync::Arc;

use pegel_metric::Millis;

use crate::block::{Block, BlockKind, BlockReadError, BlockReader, FooterFields};
use crate::block_merge::{MergeSource, MergeWindow};
use crate::context::StoreContext;
use crate::input_class::InputClass;

use super::write_block;

/// A sealed block holds one UTC hour.
const HOUR_MS: Millis = 3_600_000;
/// An hour is sealed this long after its end, so that late samples are still included.
const SEAL_AFTER_MS: Millis = HOUR_MS;

/// Merges the fresh blocks of the oldest finished hour. Returns false if there is none.
pub(super) fn seal_hour(shared: &StoreContext, class: InputClass) -> Result<bool, BlockReadError> {
    let fresh = fresh_blocks(shared, class);
    let Some(end) = sealable_hour_end(&fresh, shared.now()) else {
        return Ok(false);
    };
    let inputs = overlapping_blocks(fresh, end - 1);
    let sources = open_sources(shared, &inputs)?;
    let log_through = inputs
        .iter()
        .map(|block| block.log_through)
        .max()
        .unwrap_or(0);
    let replaces: Vec<u64> = inputs.iter().map(|block| block.id).collect();

    let window = |start, end| MergeWindow { class, start, end };
    let mut made = Vec::new();
    if inputs.iter().any(|block| block.max >= end) {
        // Samples beyond the hour go to a new fresh block. Until the sealed block exists, which
        // names the blocks it replaces, these samples merely exist twice.
        let rest = window(end, Millis::MAX);
        let ending = FooterFields {
            log_through,
            ..FooterFields::default()
        };
        write_block(shared, BlockKind::Fresh, &sources, rest, ending, &mut made)?;
    }
    let ending = FooterFields {
        log_through,
        sealed_until: end,
        replaces: replaces.clone(),
    };
    let hour = window(Millis::MIN, end);
    write_block(shared, BlockKind::Sealed, &sources, hour, ending, &mut made)?;

    let mut state = shared.write();
    state.blocks.retain(|block| !replaces.contains(&block.id));
    state.add_blocks(made.into_iter().map(Arc::new));
    drop(state);
    inputs
        .iter()
        .for_each(|block| remove_merged_block(shared, block));
    Ok(true)
}

fn fresh_blocks(shared: &StoreContext, class: InputClass) -> Vec<Arc<Block>> {
    let state = shared.read();
    let fresh = state
        .blocks
        .iter()
        .filter(|block| block.kind == BlockKind::Fresh && block.class == class);
    fresh.cloned().collect()
}

/// Returns the end of the oldest hour of these blocks if it is due for sealing.
fn sealable_hour_end(blocks: &[Arc<Block>], now: Millis) -> Option<Millis> {
    // An empty block has no times; it only records which log it replaced.
    let oldest = blocks
        .iter()
        .map(|block| block.min)
        .filter(|min| *min != Millis::MIN)
        .min()?;
    let end = (oldest.div_euclid(HOUR_MS) + 1).saturating_mul(HOUR_MS);
    (end <= now.saturating_sub(SEAL_AFTER_MS)).then_some(end)
}

/// Opens the blocks to merge. An unreadable block is left out, and set aside afterwards.
fn open_sources(
    shared: &StoreContext,
    blocks: &[Arc<Block>],
) -> Result<Vec<MergeSource>, BlockReadError> {
    let mut sources = Vec::new();
    for block in blocks {
        match BlockReader::open(block, &shared.indexes) {
            Ok(reader) => sources.push(MergeSource::Block(reader)),
            Err(BlockReadError::Io(error)) => return Err(BlockReadError::Io(error)),
            Err(_) => drop(block.mark_damaged()),
        }
    }
    Ok(sources)
}

/// Returns the blocks that begin up to `reach`, and those that overlap them. Samples beyond the
/// hour are rewritten into a block with a higher id, which would take precedence over a newer block
/// with the same times: overlapping blocks must be merged together.
fn overlapping_blocks(mut blocks: Vec<Arc<Block>>, mut reach: Millis) -> Vec<Arc<Block>> {
    while let Some(max) = blocks
        .iter()
        .filter(|block| block.min <= reach)
        .map(|block| block.max)
        .find(|max| *max > reach)
    {
        reach = max;
    }
    blocks.retain(|block| block.min <= reach);
    blocks
}

/// Removes a block's file after its samples were merged into another block.
fn remove_merged_block(shared: &StoreContext, block: &Block) {
    shared.indexes.remove(block.id);
    if block.is_damaged() {
        shared.set_aside(&block.path, "parts of this block are unreadable");
    } else {
        block.delete_on_drop();
    }
}
