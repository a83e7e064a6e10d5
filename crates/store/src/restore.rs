//! Completes the current values of ungrouped series after a replay of the log, which holds only the
//! points since the last block. Called once, when a store is opened.
//!
//! The newest point of a series with late points in the log may be in a block, as may points ahead
//! of the clock. Only the runs that hold such points are read, selected by the indexes. A series
//! with points only in blocks does not become current again.

use std::sync::Arc;

use pegel_metric::{Millis, Series};

use crate::block::{Block, BlockReadError, BlockReader};
use crate::context::StoreContext;
use crate::head::{Head, UNGROUPED_LIVE_MS};

/// Restores from blocks the missing current values of a replayed head.
pub(crate) fn restore_current(shared: &StoreContext, blocks: &[Arc<Block>], head: &mut Head) {
    let now = shared.now();
    let oldest = now.saturating_sub(UNGROUPED_LIVE_MS);
    // Newest first: of two points at one time the one in the newer block wins.
    let recent = blocks.iter().rev().filter(|block| block.max >= oldest);
    // A damaged block is reported when its samples are read.
    let readers: Vec<BlockReader> = recent
        .filter_map(|block| BlockReader::open(block, &shared.indexes).ok())
        .inspect(BlockReader::close)
        .collect();
    for reader in &readers {
        let is_ahead = |_: &Head, _: &Arc<Series>, max| max > now;
        visit_runs(reader, head, is_ahead, |head, series, points| {
            let due = points.partition_point(|(time, _)| *time <= now);
            for &point in &points[due..] {
                head.ungrouped.restore_ahead(series, point);
            }
        });
    }
    for reader in &readers {
        let is_newer = |head: &Head, series: &Arc<Series>, max| {
            let seen = head.ungrouped.seen(series);
            max >= oldest && seen.is_some_and(|seen| seen < max)
        };
        visit_runs(reader, head, is_newer, |head, series, points| {
            let due = points.partition_point(|(time, _)| *time <= now);
            if let Some(&point) = points[..due].last() {
                head.ungrouped.restore_current(series, point, now);
            }
        });
    }
}

/// Visits the points of each ungrouped series in a block whose runs are wanted, by the time of
/// their last point. Unreadable runs are skipped.
fn visit_runs(
    reader: &BlockReader,
    head: &mut Head,
    is_wanted: impl Fn(&Head, &Arc<Series>, Millis) -> bool,
    mut visit: impl FnMut(&mut Head, &Arc<Series>, &[(Millis, f64)]),
) {
    let index = &reader.index;
    for (number, entry) in index.runs.iter().enumerate() {
        let columns = &index.columns[entry.columns.start as usize..entry.columns.end as usize];
        let (None, [column]) = (entry.group, columns) else {
            continue;
        };
        let series = &index.series[column.series as usize];
        if is_wanted(head, series, entry.max)
            && let Ok(points) = read_points(reader, number as u32)
        {
            visit(head, series, &points);
        }
    }
    reader.close();
}

fn read_points(reader: &BlockReader, number: u32) -> Result<Vec<(Millis, f64)>, BlockReadError> {
    let run = reader.run(number)?;
    let column = run
        .as_ref()
        .and_then(|run| Some((run, run.columns.first()?)));
    Ok(column.map_or(Ok(Vec::new()), |(run, column)| run.decode_points(column))?)
}
