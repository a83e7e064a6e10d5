//! What a parent knows after a restart: the file of the back-fill, and the newest reduced values in
//! its store.

use std::sync::Arc;

use pegel_metric::{Input, Millis, Selector, Series};
use pegel_store::{RangeQuery, SeriesChoice};

use super::Parent;
use super::backfill_file::{BACKFILL_FILE, BackfillState};
use super::dirty_ticks::ranges;
use crate::context::TreeContext;

/// Reduced values of this time before a restart are computed again, and of so many ticks: what was
/// missing then may not be in the file of the back-fill.
const RESTART_MARGIN: Millis = 30 * 1000;
const RESTART_TICKS: i64 = 16;
/// Without that file, nodes that come in this time after a start were away since before it.
const RESTART_TIME: Millis = 10 * 60 * 1000;

/// Returns the newest time of reduced values in the store, not before `since`.
fn newest_reduced(context: &TreeContext, since: Millis, now: Millis) -> Option<Millis> {
    /// All reduced series have the same times.
    const SERIES_READ: usize = 20;
    let choice = |series: &mut Vec<Arc<Series>>| {
        series.retain(|series| series.family().input == Input::Tree);
        series.truncate(SERIES_READ);
    };
    let query = RangeQuery {
        choice: Some(SeriesChoice(Arc::new(choice))),
        ..RangeQuery::new(Selector::all(), since, now, None)
    };
    let mut newest = None;
    let read = context.store.query_columns(&query, &mut |_, column| {
        newest = newest.max(column.times.last().copied());
    });
    if let Err(error) = read {
        tracing::warn!(%error, "cannot read the newest reduced values");
    }
    newest
}

impl Parent {
    /// Returns what the file of the back-fill must have.
    fn backfill_state(&self) -> BackfillState {
        let now = self.context.now();
        // In this order: what a node that comes back marks is in the one or the other.
        let nodes = self.registry.lock().known_nodes(now);
        let dirty = self.dirty.lock().ranges(self.interval);
        let changed = self.uplink.get().map(|uplink| uplink.changed(now));
        let changed = ranges(changed.unwrap_or_default().into_iter(), self.interval);
        BackfillState {
            dirty,
            nodes,
            changed,
        }
    }

    /// Writes the file of the back-fill if something changed. Blocks.
    pub(crate) fn save_backfill(&self) {
        let mut saved = self.saved.lock();
        let state = self.backfill_state();
        if state == *saved {
            return;
        }
        match state.save(&self.context.dir) {
            Ok(()) => *saved = state,
            Err(error) => {
                let path = self.context.dir.join(BACKFILL_FILE);
                tracing::warn!(%error, path = %path.display(), "cannot write a file");
            }
        }
    }

    /// Restores what was known before a restart, and marks what is missing since. Reads the store.
    pub(crate) fn restore(&self) {
        let now = self.context.now();
        let oldest = now - self.backfill_time();
        let reduced_until = self.find_restart_gap();
        let state = match BackfillState::load(&self.context.dir) {
            Ok(state) => state,
            Err(error) => {
                let path = self.context.dir.join(BACKFILL_FILE);
                let path = path.display();
                tracing::warn!(%error, %path, "computing all reduced values of tree.backfill again");
                self.mark_dirty(oldest, now);
                let mut registry = self.registry.lock();
                registry.set_unknown_missing(now + RESTART_TIME, oldest);
                return;
            }
        };
        for (from, to) in &state.dirty {
            self.mark_dirty(*from, *to);
        }
        if let Some(uplink) = self.uplink.get() {
            for (from, to) in &state.changed {
                let from = from.max(&oldest).div_euclid(self.interval) * self.interval;
                let step = usize::try_from(self.interval).unwrap_or(1);
                uplink.add_changed((from..=*to).step_by(step).collect());
            }
        }
        let mut registry = self.registry.lock();
        if let Some(reduced_until) = reduced_until {
            if state.nodes.is_empty() {
                registry.set_unknown_missing(now + RESTART_TIME, reduced_until);
            }
            registry.restore(state.nodes, reduced_until);
        }
    }

    /// Marks the time since the newest reduced values, and returns it. Reads the store.
    pub(crate) fn find_restart_gap(&self) -> Option<Millis> {
        let now = self.context.now();
        let since = now - self.backfill_time();
        let newest = newest_reduced(&self.context, since, now)?;
        let reduced_until = newest - RESTART_MARGIN.max(RESTART_TICKS * self.interval);
        self.mark_dirty(reduced_until, now);
        Some(reduced_until)
    }
}
