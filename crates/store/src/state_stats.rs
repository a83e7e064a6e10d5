//! Statistics of the store's state, kept outside its lock: `Store::status` must not wait for the lock, which the writer
//! holds while it applies a batch. Dropping the guard of a change refreshes them; their own lock is held only for that
//! and for copying them.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError, RwLockWriteGuard};

use pegel_metric::Millis;

use crate::block::Block;
use crate::class::Class;
use crate::shared::State;
use crate::status::{ClassUse, Degraded};

#[derive(Debug, Clone, Default)]
pub(crate) struct StateStats {
    pub series: u64,
    pub log_bytes: u64,
    /// The times of the samples in memory.
    pub span: Option<(Millis, Millis)>,
    pub blocks: Arc<Vec<Arc<Block>>>,
    last_block_id: u64,
    pub log_trouble: Option<Degraded>,
    pub block_trouble: Option<Degraded>,
}

impl StateStats {
    /// Returns the use and the share of each class. Shares are of `keep_bytes` minus the log.
    pub fn classes(&self, keep_bytes: u64) -> Vec<ClassUse> {
        let budget = keep_bytes.saturating_sub(self.log_bytes);
        let class_use = |class: &Class| {
            let blocks = self.blocks.iter();
            let its = blocks.filter(|block| block.class.account() == *class);
            let times = its.clone().map(|block| block.min);
            ClassUse {
                class: class.as_str(),
                block_bytes: its.map(|block| block.bytes).sum(),
                share_bytes: class.share(budget),
                oldest: times.filter(|min| *min != Millis::MIN).min(),
            }
        };
        Class::ACCOUNTS.iter().map(class_use).collect()
    }

    fn refresh(&mut self, state: &State) {
        self.series = state.head.series_count() as u64;
        self.log_bytes = state.log_bytes();
        let frozen = state.frozen.iter().filter_map(|frozen| frozen.head.span);
        self.span = frozen
            .chain(state.head.span)
            .reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        // Every new block has a new id: a list of the same length and last id is the same list.
        let blocks = (state.blocks.len(), state.last_block_id);
        if blocks != (self.blocks.len(), self.last_block_id) {
            self.blocks = Arc::new(state.blocks.clone());
            self.last_block_id = state.last_block_id;
        }
        self.log_trouble.clone_from(&state.log_trouble);
        self.block_trouble.clone_from(&state.block_trouble);
    }
}

/// Exclusive access to the state; refreshes the statistics when it is dropped.
#[derive(Debug)]
pub(crate) struct StateGuard<'a> {
    pub state: RwLockWriteGuard<'a, State>,
    pub stats: &'a Mutex<StateStats>,
}

impl Deref for StateGuard<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for StateGuard<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

impl Drop for StateGuard<'_> {
    fn drop(&mut self) {
        let mut stats = self.stats.lock().unwrap_or_else(PoisonError::into_inner);
        stats.refresh(&self.state);
    }
}
