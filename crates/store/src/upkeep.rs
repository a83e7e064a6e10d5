//! The upkeep: a thread that turns frozen heads into blocks, seals hours, and drops what is too old.

use std::sync::Arc;
use std::time::Duration;

use pegel_metric::Millis;

use crate::block::{Block, BlockKind, BlockReader, BlockWriter, Ending, ReadError};
use crate::log::{segment_number, segment_path};
use crate::merge::{Source, Window, merge};
use crate::run::Effort;
use crate::shared::{Frozen, Shared};

/// A sealed block holds one UTC hour.
const HOUR_MS: Millis = 3_600_000;
/// An hour is sealed when it has been over for this long, so that what comes late still gets in.
const SEAL_AFTER_MS: Millis = HOUR_MS;
/// How often to look without being asked.
const PAUSE: Duration = Duration::from_secs(10);
/// The same after a failure.
const RETRY: Duration = Duration::from_secs(1);

pub(crate) fn run(shared: &Shared) {
    let mut pause = PAUSE;
    loop {
        let asked = {
            let mut work = shared.work();
            if work.upkeep_asked == work.upkeep_done && !work.stop {
                work = shared
                    .wake_upkeep
                    .wait_timeout(work, pause)
                    .expect("no thread panics while it holds it")
                    .0;
            }
            if work.stop {
                return;
            }
            work.upkeep_asked
        };
        let trouble = pass(shared).err();
        pause = if trouble.is_some() { RETRY } else { PAUSE };
        shared.block_trouble(trouble);
        let mut work = shared.work();
        work.upkeep_done = work.upkeep_done.max(asked);
        drop(work);
        shared.upkeep_passed.notify_all();
    }
}

/// One round. What fails is tried again in the next one; nothing is lost by it.
fn pass(shared: &Shared) -> Result<(), String> {
    // Space is made first: that may be what the rest waits for.
    drop_old(shared);
    loop {
        let Some(frozen) = shared.read().frozen.first().cloned() else {
            break;
        };
        store_frozen(shared, &frozen).map_err(|error| format!("cannot write a block: {error}"))?;
    }
    while seal_hour(shared).map_err(|error| format!("cannot seal an hour: {error}"))? {}
    drop_old(shared);
    Ok(())
}

/// Samples before this go to late blocks, because their hours are sealed.
fn sealed_until(shared: &Shared) -> Millis {
    shared
        .read()
        .blocks
        .iter()
        .map(|block| block.sealed_until)
        .max()
        .unwrap_or(Millis::MIN)
}

fn store_frozen(shared: &Shared, frozen: &Frozen) -> Result<(), ReadError> {
    let sources = [Source::Memory(frozen.head.runs())];
    let boundary = sealed_until(shared);
    let late = Window {
        start: Millis::MIN,
        end: boundary,
    };
    let fresh = Window {
        start: boundary,
        end: Millis::MAX,
    };
    let mut made = Vec::new();
    let is_late = frozen.head.span.is_some_and(|(min, _)| min < boundary);
    if is_late {
        made.extend(write_block(
            shared,
            shared.next_block_id(),
            BlockKind::Late,
            &sources,
            late,
            Ending::default(),
        )?);
    }
    // The last block of a head makes its log superfluous; until then the log would restore all of it.
    let ending = Ending {
        log_through: frozen.log_through,
        ..Ending::default()
    };
    let id = shared.next_block_id() + made.len() as u64;
    made.extend(write_block(
        shared,
        id,
        BlockKind::Fresh,
        &sources,
        fresh,
        ending,
    )?);
    let mut state = shared.write();
    state.add_blocks(made.into_iter().map(Arc::new));
    let stored = state.frozen.remove(0);
    drop(state);
    drop(stored);
    drop_segments(shared, frozen.log_through);
    Ok(())
}

/// Writes the samples of a window into a block; `None` when there are none and the block would say nothing.
fn write_block(
    shared: &Shared,
    id: u64,
    kind: BlockKind,
    sources: &[Source],
    window: Window,
    ending: Ending,
) -> Result<Option<Block>, ReadError> {
    let effort = if kind == BlockKind::Sealed {
        Effort::Small
    } else {
        Effort::Quick
    };
    let mut writer = BlockWriter::create(&shared.options.files, &shared.block_dir(), id, kind)?;
    if let Err(error) = merge(sources, window, effort, &mut writer) {
        writer.abandon();
        return Err(error);
    }
    if writer.is_empty() && ending.log_through == 0 && ending.replaces.is_empty() {
        writer.abandon();
        return Ok(None);
    }
    Ok(Some(writer.finish(ending)?))
}

/// Removes the segments whose samples are all in blocks; those with damage are set aside.
fn drop_segments(shared: &Shared, through: u64) {
    let dir = shared.log_dir();
    let names = shared.options.files.list(&dir).unwrap_or_default();
    for number in names
        .iter()
        .filter_map(|name| segment_number(name))
        .filter(|number| *number <= through)
    {
        let path = segment_path(&dir, number);
        let is_damaged = shared
            .damaged_segments
            .lock()
            .is_ok_and(|damaged| damaged.contains(&number));
        if is_damaged {
            shared.set_aside(&path, "parts of this log segment could not be read");
        } else if let Err(error) = shared.options.files.remove(&path) {
            tracing::warn!(path = %path.display(), %error, "cannot remove a log segment");
        }
    }
}

/// Merges the fresh blocks of the oldest hour that is over; false when there is none.
fn seal_hour(shared: &Shared) -> Result<bool, ReadError> {
    let blocks: Vec<Arc<Block>> = shared
        .read()
        .blocks
        .iter()
        .filter(|block| block.kind == BlockKind::Fresh)
        .cloned()
        .collect();
    // An empty block has no times; it only ever says which log it replaced.
    let Some(oldest) = blocks
        .iter()
        .map(|block| block.min)
        .filter(|min| *min != Millis::MIN)
        .min()
    else {
        return Ok(false);
    };
    let end = (oldest.div_euclid(HOUR_MS) + 1).saturating_mul(HOUR_MS);
    if end > shared.now().saturating_sub(SEAL_AFTER_MS) {
        return Ok(false);
    }
    let inputs = overlapping(blocks, end - 1);
    let mut sources = Vec::new();
    let mut used = Vec::new();
    for block in &inputs {
        match BlockReader::open(block, &shared.indexes) {
            Ok(reader) => sources.push(Source::Block(reader)),
            Err(ReadError::Io(error)) => return Err(ReadError::Io(error)),
            Err(_) => block.mark_damaged(),
        }
        used.push(block.id);
    }
    let log_through = inputs
        .iter()
        .map(|block| block.log_through)
        .max()
        .unwrap_or(0);
    let mut made = Vec::new();
    if inputs.iter().any(|block| block.max >= end) {
        let rest = Window {
            start: end,
            end: Millis::MAX,
        };
        let ending = Ending {
            log_through,
            ..Ending::default()
        };
        made.extend(write_block(
            shared,
            shared.next_block_id(),
            BlockKind::Fresh,
            &sources,
            rest,
            ending,
        )?);
    }
    let window = Window {
        start: Millis::MIN,
        end,
    };
    let ending = Ending {
        log_through,
        sealed_until: end,
        replaces: used.clone(),
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
    state.blocks.retain(|block| !used.contains(&block.id));
    state.add_blocks(made.into_iter().map(Arc::new));
    drop(state);
    for block in inputs {
        retire(shared, &block);
    }
    Ok(true)
}

/// The blocks that begin up to `reach`, and those that overlap them. What lies beyond the hour is written again
/// into a block of a higher id, which would count more than a newer block with the same times: blocks that
/// overlap go together.
fn overlapping(mut blocks: Vec<Arc<Block>>, mut reach: Millis) -> Vec<Arc<Block>> {
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
fn retire(shared: &Shared, block: &Block) {
    shared.indexes.forget(block.id);
    if block.is_damaged() {
        shared.set_aside(&block.path, "parts of this block could not be read");
    } else {
        block.doom();
    }
}

/// Drops whole blocks: those beyond their age, then the oldest until log and blocks fit.
fn drop_old(shared: &Shared) {
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
