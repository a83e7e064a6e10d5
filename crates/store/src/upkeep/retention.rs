//! Retention: whole blocks are dropped by age and by size.

use std::sync::Arc;
use std::time::Duration;

use pegel_metric::Millis;

use crate::block::Block;
use crate::shared::Shared;

/// A clock that gains more than this on the monotonic one has leapt.
const LEAP_MS: Millis = 3_600_000;
/// How long it must hold its new time before it is believed.
const DOUBT: Duration = Duration::from_secs(3600);

/// Whether the clock is believed when it says that blocks are too old. A clock that leaps ahead by a century may
/// come back, a block that was dropped does not.
#[derive(Debug)]
pub(super) struct Trust {
    utc: Millis,
    monotonic: Duration,
    doubted_until: Duration,
}

impl Trust {
    /// The newest sample tells what time it was before. Where the machine was only switched off, blocks
    /// live an hour longer.
    pub fn new(shared: &Shared) -> Trust {
        let state = shared.read();
        let blocks = state.blocks.iter().map(|block| block.max);
        let newest = blocks.chain(state.head.span.map(|(_, max)| max)).max();
        Trust {
            utc: newest.unwrap_or_else(|| shared.now()),
            monotonic: shared.options.clock.monotonic(),
            doubted_until: Duration::ZERO,
        }
    }

    /// Looks at the clocks; says whether age counts just now.
    pub fn look(&mut self, shared: &Shared) -> bool {
        let (utc, monotonic) = (shared.now(), shared.options.clock.monotonic());
        let passed = monotonic.saturating_sub(self.monotonic).as_millis();
        let passed = Millis::try_from(passed).unwrap_or(Millis::MAX);
        let gained = utc.saturating_sub(self.utc).saturating_sub(passed);
        if gained > LEAP_MS {
            tracing::warn!(
                gained_seconds = gained / 1000,
                "the clock leapt ahead: no block is dropped by its age for an hour"
            );
            self.doubted_until = monotonic + DOUBT;
        } else if gained < -LEAP_MS {
            self.doubted_until = Duration::ZERO;
        }
        (self.utc, self.monotonic) = (utc, monotonic);
        monotonic >= self.doubted_until
    }
}

/// Drops whole blocks: those beyond their age, if the clock is believed, then the oldest until log and blocks fit.
pub(super) fn drop_old(shared: &Shared, trust: &mut Trust) {
    let oldest_kept = match trust.look(shared) {
        true => shared.oldest_kept(),
        false => Millis::MIN,
    };
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
