//! Retention: drops whole blocks by age and by size. Each class of inputs has a share of the bytes.
//! A class may use the unused shares of others until those need them; blocks beyond the shares are
//! taken from programs first, from the node last.

use std::sync::Arc;
use std::time::Duration;

use pegel_metric::Millis;

use crate::block::Block;
use crate::context::StoreContext;
use crate::finished_blocks::count_samples;
use crate::input_class::InputClass;

/// A clock that gains more than this on the monotonic clock has jumped.
const CLOCK_JUMP_MS: Millis = 3_600_000;
/// The time for which a clock that jumped must hold its new time before it is trusted.
const DISTRUST_PERIOD: Duration = Duration::from_secs(3600);

/// Decides whether the clock is trusted to expire blocks. A clock that jumps ahead by a century may
/// be corrected later; a dropped block cannot be restored.
#[derive(Debug)]
pub(super) struct ClockTrust {
    utc: Millis,
    monotonic: Duration,
    distrusted_until: Duration,
}

impl ClockTrust {
    /// Starts from the time of the newest sample. After a machine was merely switched off, blocks
    /// therefore live an hour longer.
    pub(super) fn new(shared: &StoreContext) -> ClockTrust {
        let state = shared.read();
        let blocks = state.blocks.iter().map(|block| block.max);
        let newest = blocks.chain(state.head.span.map(|(_, max)| max)).max();
        ClockTrust {
            utc: newest.unwrap_or_else(|| shared.now()),
            monotonic: shared.options.clock.monotonic(),
            distrusted_until: Duration::ZERO,
        }
    }

    /// Reads the clocks and returns whether blocks may be dropped by age now.
    pub(super) fn check_clock(&mut self, shared: &StoreContext) -> bool {
        let (utc, monotonic) = (shared.now(), shared.options.clock.monotonic());
        let passed = monotonic.saturating_sub(self.monotonic).as_millis();
        let passed = Millis::try_from(passed).unwrap_or(Millis::MAX);
        let gained = utc.saturating_sub(self.utc).saturating_sub(passed);
        if gained > CLOCK_JUMP_MS {
            tracing::warn!(
                gained_seconds = gained / 1000,
                "the clock jumped ahead; not dropping blocks by age for an hour"
            );
            self.distrusted_until = monotonic + DISTRUST_PERIOD;
        } else if gained < -CLOCK_JUMP_MS {
            self.distrusted_until = Duration::ZERO;
        }
        (self.utc, self.monotonic) = (utc, monotonic);
        monotonic >= self.distrusted_until
    }
}

/// Drops whole blocks: first expired ones, if the clock is trusted, then the oldest of the classes
/// that exceed their shares, until log and blocks fit.
pub(super) fn drop_expired_blocks(shared: &StoreContext, trust: &mut ClockTrust) {
    let oldest_kept = if trust.check_clock(shared) {
        shared.retention_start()
    } else {
        Millis::MIN
    };
    // Only this thread changes the list, so the choice needs no lock.
    let (mut kept, log_bytes) = {
        let state = shared.read();
        (state.blocks.clone(), state.log_bytes())
    };
    let mut dropped: Vec<_> = kept
        .extract_if(.., |block| {
            block.max < oldest_kept && !awaits_archive(shared, block)
        })
        .collect();
    let budget = shared.options.keep.bytes_max().saturating_sub(log_bytes);
    while let Some(at) = class_to_shrink(&kept, budget).and_then(|class| oldest_block(&kept, class))
    {
        dropped.push(kept.remove(at));
    }
    if dropped.is_empty() {
        return;
    }
    let gone = dropped.iter().map(|block| &**block);
    shared.completeness.record_dropped(shared, gone);
    shared.write().blocks = kept;
    for block in dropped {
        count_unarchived(shared, &block);
        tracing::debug!(path = %block.path.display(), "dropped a block by age or size");
        shared.indexes.remove(block.id);
        block.delete_on_drop();
    }
}

fn awaits_archive(shared: &StoreContext, block: &Block) -> bool {
    let archive = shared.options.archive.as_ref();
    archive.is_some_and(|archive| archive.awaits(block))
}

/// Counts the samples of a block that is dropped before it is archived: the disk is limited.
fn count_unarchived(shared: &StoreContext, block: &Arc<Block>) {
    let Some(archive) = shared.options.archive.as_ref() else {
        return;
    };
    if archive.awaits(block) {
        let samples = count_samples(shared, block);
        archive.count_lost(samples);
        tracing::error!(
            samples,
            path = %block.path.display(),
            "dropped a block that is not archived: keep.bytes is exhausted"
        );
    }
}

/// Returns the class that must drop a block if all blocks together exceed `budget`: the program
/// class that exceeds its share most, else the node.
fn class_to_shrink(blocks: &[Arc<Block>], budget: u64) -> Option<InputClass> {
    let used = |class: InputClass| -> u64 {
        let its = blocks
            .iter()
            .filter(|block| block.class.accounted_to() == class);
        its.map(|block| block.bytes).sum()
    };
    let total: u64 = blocks.iter().map(|block| block.bytes).sum();
    if total <= budget {
        return None;
    }
    let excess = |class: InputClass| used(class).saturating_sub(class.share(budget));
    let classes = InputClass::PROGRAM_CLASSES.into_iter();
    let (bytes, class) = classes.map(|class| (excess(class), class)).max()?;
    Some(if bytes > 0 { class } else { InputClass::Node })
}

/// Returns the block of a class to drop first: the oldest of those that take precedence over no
/// other. Dropping a block with precedence would reveal the samples that it replaced. (Expired
/// samples are never shown.)
fn oldest_block(blocks: &[Arc<Block>], class: InputClass) -> Option<usize> {
    let its: Vec<usize> = (0..blocks.len())
        .filter(|at| blocks[*at].class.accounted_to() == class)
        .collect();
    let overrules = |at: usize| {
        let block = &blocks[at];
        let weaker = its.iter().take_while(|weaker| **weaker < at);
        weaker
            .map(|weaker| &blocks[*weaker])
            .any(|weaker| weaker.overlaps(block.min, block.max))
    };
    let free = its.iter().copied().filter(|at| !overrules(*at));
    free.min_by_key(|at| blocks[*at].max)
}
