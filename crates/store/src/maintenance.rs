//! Maintenance: a thread that writes frozen heads to blocks, seals hours that are over, and drops
//! expired blocks. It runs periodically and on request of the writer. A head's log segments are
//! removed only after its blocks are durable; a failed step is retried in the next pass and loses
//! nothing.

mod retention;
mod seal;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use pegel_metric::Millis;

use crate::block::{Block, BlockKind, BlockReadError, FooterFields, SplitBlockWriter};
use crate::block_merge::{MergeSource, MergeWindow, merge_into_block};
use crate::context::{FrozenHead, StoreContext};
use crate::input_class::InputClass;
use crate::log::{kept_segments, segment_number, segment_path};
use crate::sample_run::EncodingEffort;

use retention::{ClockTrust, drop_expired_blocks};
use seal::seal_hour;

/// The interval between passes that were not requested.
const PASS_INTERVAL: Duration = Duration::from_secs(10);
/// The interval after a failed pass.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) fn run(shared: &StoreContext) {
    let mut pause = PASS_INTERVAL;
    let mut trust = ClockTrust::new(shared);
    loop {
        let requested = {
            let mut work = shared.background_work();
            if work.maintenance_requested == work.maintenance_done && !work.stop {
                shared.wake_maintenance.wait_for(&mut work, pause);
            }
            if work.stop {
                return;
            }
            work.maintenance_requested
        };
        let failure = run_pass(shared, &mut trust).err();
        pause = if failure.is_some() {
            RETRY_INTERVAL
        } else {
            PASS_INTERVAL
        };
        shared.set_block_failure(failure);
        let mut work = shared.background_work();
        work.maintenance_done = work.maintenance_done.max(requested);
        drop(work);
        shared.maintenance_passed.notify_all();
    }
}

/// Runs one pass. Failed steps are retried in the next pass; nothing is lost.
fn run_pass(shared: &StoreContext, trust: &mut ClockTrust) -> Result<(), String> {
    // A directory that replaced ours may be in use by another agent.
    shared
        .locked_dir
        .check()
        .map_err(|error| error.to_string())?;
    // Free space first: the other steps may need it.
    kept_segments::remove_released(shared);
    drop_expired_blocks(shared, trust);
    loop {
        let Some(frozen) = shared.read().frozen.first().cloned() else {
            break;
        };
        write_frozen_head(shared, &frozen)
            .map_err(|error| format!("cannot write a block: {error}"))?;
    }
    for class in InputClass::ALL {
        while seal_hour(shared, class).map_err(|error| format!("cannot seal an hour: {error}"))? {}
    }
    drop_expired_blocks(shared, trust);
    Ok(())
}

/// Returns the time before which samples of a class go to late blocks, because their hours are
/// sealed.
fn sealed_until(shared: &StoreContext, class: InputClass) -> Millis {
    shared
        .read()
        .blocks
        .iter()
        .filter(|block| block.class == class || block.class == InputClass::Mixed)
        .map(|block| block.sealed_until)
        .max()
        .unwrap_or(Millis::MIN)
}

/// Writes a frozen head to one block for each class of inputs, and one more for late samples.
fn write_frozen_head(shared: &StoreContext, frozen: &FrozenHead) -> Result<(), BlockReadError> {
    let runs = frozen.head.runs();
    let series = runs.iter().flat_map(|run| run.owner.series());
    let mut classes: BTreeSet<InputClass> = series.map(|series| InputClass::of(series)).collect();
    let last = classes.pop_last().unwrap_or(InputClass::Node);
    let sources = [MergeSource::Memory(runs)];
    let mut made = Vec::new();
    for class in classes {
        write_class(shared, frozen, class, &sources, 0, &mut made)?;
    }
    // The last block of a head replaces its log; until then a replay of the log restores all of it.
    write_class(
        shared,
        frozen,
        last,
        &sources,
        frozen.log_through,
        &mut made,
    )?;
    let mut state = shared.write();
    state.add_blocks(made.into_iter().map(Arc::new));
    let stored = state.frozen.remove(0);
    drop(state);
    drop(stored);
    remove_stored_segments(shared, frozen.log_through);
    Ok(())
}

/// Writes the samples of one class, late ones first.
fn write_class(
    shared: &StoreContext,
    frozen: &FrozenHead,
    class: InputClass,
    sources: &[MergeSource],
    log_through: u64,
    made: &mut Vec<Block>,
) -> Result<(), BlockReadError> {
    let boundary = sealed_until(shared, class);
    let window = |start, end| MergeWindow { class, start, end };
    if frozen.head.span.is_some_and(|(min, _)| min < boundary) {
        let late = window(Millis::MIN, boundary);
        let ending = FooterFields::default();
        write_block(shared, BlockKind::Late, sources, late, ending, made)?;
    }
    let fresh = window(boundary, Millis::MAX);
    let ending = FooterFields {
        log_through,
        ..FooterFields::default()
    };
    write_block(shared, BlockKind::Fresh, sources, fresh, ending, made)
}

/// Writes the samples of a window into a block, or several if its index would become too large, and
/// adds them to `made`, unless there are none and the footer would carry no information.
fn write_block(
    shared: &StoreContext,
    kind: BlockKind,
    sources: &[MergeSource],
    window: MergeWindow,
    ending: FooterFields,
    made: &mut Vec<Block>,
) -> Result<(), BlockReadError> {
    let effort = if kind == BlockKind::Sealed {
        EncodingEffort::Small
    } else {
        EncodingEffort::Quick
    };
    let (files, dir) = (&shared.options.files, shared.block_dir());
    let id = shared.next_block_id() + made.len() as u64;
    let limits = shared.options.block_limits;
    let mut writer = SplitBlockWriter::create(files, &dir, id, (kind, window.class), limits)?;
    if let Err(error) = merge_into_block(sources, window, effort, &mut writer) {
        writer.discard();
        return Err(error);
    }
    if writer.is_empty() && ending.log_through == 0 && ending.replaces.is_empty() {
        writer.discard();
    } else {
        made.extend(writer.finish(ending)?);
    }
    Ok(())
}

/// Removes the segments whose samples are all in blocks, or keeps them for readers of the log;
/// damaged ones are set aside.
fn remove_stored_segments(shared: &StoreContext, through: u64) {
    let dir = shared.log_dir();
    let names = shared.options.files.list(&dir).unwrap_or_default();
    for number in names
        .iter()
        .filter_map(|name| segment_number(name))
        .filter(|number| *number <= through)
    {
        let path = segment_path(&dir, number);
        let is_damaged = shared.damaged_segments.lock().contains(&number);
        if is_damaged {
            shared.set_aside(&path, "parts of this log segment are unreadable");
        } else {
            kept_segments::keep_or_remove(shared, number);
        }
    }
}
