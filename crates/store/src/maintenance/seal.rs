//! Sealing: the fresh blocks of one class and of an hour that is over become one sealed block.

use std::sync::Arc;

use pegel_metric::Millis;

use crate::block::{Block, BlockKind, BlockReadError, BlockReader, FooterFields};
use crate::block_merge::{MergeSource, MergeWindow};
use crate::context::StoreContext;
use crate::input_class::InputClass;

use super::write_block;

/// A sealed block holds one UTC hour.
const HOUR_MS: Millis = 3_600_000;
/// An hour is sealed when it has been over for this long, so that what comes late still gets in.
const SEAL_AFTER_MS: Millis = HOUR_MS;

/// Merges the fresh blocks of the oldest hour that is over; false when there is none.
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

    let mut made = Vec::new();
    if inputs.iter().any(|block| block.max >= end) {
        // What lies beyond the hour goes to a fresh block again. Until the sealed block is there, which names what
        // it replaces, these samples are only there twice.
        let window = MergeWindow {
            class,
            start: end,
            end: Millis::MAX,
        };
        let ending = FooterFields {
            log_through,
            ..FooterFields::default()
        };
        let id = shared.next_block_id();
        made.extend(write_block(
            shared,
            id,
            BlockKind::Fresh,
            &sources,
            window,
            ending,
        )?);
    }
    let window = MergeWindow {
        class,
        start: Millis::MIN,
        end,
    };
    let ending = FooterFields {
        log_through,
        sealed_until: end,
        replaces: replaces.clone(),
    };
    let id = shared.next_block_id() + made.len() as u64;
    made.extend(write_block(
        shared,
        id,
        BlockKind::Sealed,
        &sources,
        window,
        ending,
    )?);

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

/// The end of the oldest hour of these blocks, if it is time to seal it.
fn sealable_hour_end(blocks: &[Arc<Block>], now: Millis) -> Option<Millis> {
    // An empty block has no times; it only ever says which log it replaced.
    let oldest = blocks
        .iter()
        .map(|block| block.min)
        .filter(|min| *min != Millis::MIN)
        .min()?;
    let end = (oldest.div_euclid(HOUR_MS) + 1).saturating_mul(HOUR_MS);
    (end <= now.saturating_sub(SEAL_AFTER_MS)).then_some(end)
}

/// A block that cannot be read is left out, and set aside in the end.
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

/// The blocks that begin up to `reach`, and those that overlap them. What lies beyond the hour is written again
/// into a block of a higher id, which would count more than a newer block with the same times: blocks that
/// overlap go together.
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

/// Takes a block's file away after its samples went elsewhere.
fn remove_merged_block(shared: &StoreContext, block: &Block) {
    shared.indexes.remove(block.id);
    if block.is_damaged() {
        shared.set_aside(&block.path, "parts of this block could not be read");
    } else {
        block.delete_on_drop();
    }
}
