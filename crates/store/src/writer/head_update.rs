//! Applies the writer's changes to the head. The state's lock is held for a bounded amount of work
//! at a time, however large the batch, so that readers never wait long; late points are merged
//! without the lock.

use crate::context::{StoreContext, StoreState};
use crate::head::Head;
use crate::store_stats::StateGuard;

/// The approximate cost of a tick's sample and of a point, in nanoseconds.
pub(super) const SAMPLE_COST: usize = 10;
pub(super) const POINT_COST: usize = 1000;
/// The most work done per acquisition of the lock, in nanoseconds.
const COST_MAX: usize = 2_000_000;

pub(super) struct HeadUpdate<'a> {
    shared: &'a StoreContext,
    state: Option<StateGuard<'a>>,
    cost_left: usize,
}

impl<'a> HeadUpdate<'a> {
    pub(super) fn new(shared: &'a StoreContext) -> HeadUpdate<'a> {
        HeadUpdate {
            shared,
            state: None,
            cost_left: 0,
        }
    }

    /// Returns the head for a change of this cost. Readers see all changes made until the next call
    /// at once.
    pub(super) fn head(&mut self, cost: usize) -> &mut Head {
        if self.cost_left < cost && self.state.is_some() {
            self.publish();
            self.shared.yield_to_readers();
        }
        self.state();
        self.cost_left = self.cost_left.saturating_sub(cost);
        &mut self.state().head
    }

    /// Returns the locked state.
    pub(super) fn state(&mut self) -> &mut StoreState {
        if self.state.is_none() {
            self.cost_left = COST_MAX;
        }
        self.state.get_or_insert_with(|| {
            let mut state = self.shared.write();
            // A new number each time, so that a reader that read in between sees the later changes.
            state.head.changes += 1;
            state
        })
    }

    /// Releases the lock, then merges late points. Only this thread changes points, so a merge can
    /// be computed without the lock.
    fn publish(&mut self) {
        let Some(mut state) = self.state.take() else {
            return;
        };
        let due_merges = state.head.ungrouped.take_due_merges();
        drop(state);
        for slot in due_merges {
            let (series, merge) = self.shared.read().head.ungrouped.prepare_merge(slot);
            let merged = merge.run(&series);
            self.shared.ledger.add_duplicates(merged.duplicates);
            let replaced = self.shared.write().head.ungrouped.apply_merge(slot, merged);
            // Freed without holding the lock.
            drop(replaced);
        }
    }
}

impl Drop for HeadUpdate<'_> {
    fn drop(&mut self) {
        self.publish();
    }
}
