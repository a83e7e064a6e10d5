//! Changes of the head by the writer: the lock is held for a bounded piece of work at a time, however much is committed
//! together, and late points are merged while nobody is kept out.

use crate::figures::StateGuard;
use crate::head::Head;
use crate::shared::{Shared, State};

/// What a sample of a tick and a point cost, in nanoseconds, roughly.
pub(super) const SAMPLE_COST: usize = 10;
pub(super) const POINT_COST: usize = 1000;
/// How much is done while the lock is held once.
const COST_MAX: usize = 2_000_000;

pub(super) struct Changes<'a> {
    shared: &'a Shared,
    state: Option<StateGuard<'a>>,
    cost_left: usize,
}

impl<'a> Changes<'a> {
    pub fn new(shared: &'a Shared) -> Changes<'a> {
        Changes {
            shared,
            state: None,
            cost_left: 0,
        }
    }

    /// The head, for a change of this cost. What is changed until the next call is seen by readers together.
    pub fn head(&mut self, cost: usize) -> &mut Head {
        if self.cost_left < cost && self.state.is_some() {
            self.publish();
            self.shared.let_readers_in();
        }
        self.state();
        self.cost_left = self.cost_left.saturating_sub(cost);
        &mut self.state().head
    }

    /// The state, locked.
    pub fn state(&mut self) -> &mut State {
        if self.state.is_none() {
            self.cost_left = COST_MAX;
        }
        self.state.get_or_insert_with(|| {
            let mut state = self.shared.write();
            // Each time, so that a reader that looked in between finds what came after.
            state.head.changes += 1;
            state
        })
    }

    /// Lets go of the lock, then merges late points. Only this thread changes the head, so that a merge can be worked
    /// out without the lock.
    fn publish(&mut self) {
        let Some(mut state) = self.state.take() else {
            return;
        };
        let crowded = state.head.loose.take_crowded();
        drop(state);
        for slot in crowded {
            let (series, merge) = self.shared.read().head.loose.merge(slot);
            let merged = merge.run(&series);
            self.shared.ledger.duplicate(merged.duplicates);
            let replaced = self.shared.write().head.loose.merged(slot, merged);
            // Freed here, without the lock.
            drop(replaced);
        }
    }
}

impl Drop for Changes<'_> {
    fn drop(&mut self) {
        self.publish();
    }
}
