//! Statistics of the store's state, kept outside its lock: `Store::status` must not wait for the
//! lock, which the writer holds while it applies a batch. Dropping the guard of a change refreshes
//! them; their own lock is held only for that and for copying them.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use parking_lot::{Mutex, RwLockWriteGuard};
use pegel_metric::Millis;

use crate::block::Block;
use crate::context::StoreState;
use crate::input_class::InputClass;
use crate::status::{ClassUsage, Degradation};

#[derive(Debug, Clone, Default)]
pub(crate) struct StoreStats {
    pub series: u64,
    pub log_bytes: u64,
    /// The times of the oldest and newest sample in memory.
    pub span: Option<(Millis, Millis)>,
    pub blocks: Arc<Vec<Arc<Block>>>,
    last_block_id: u64,
    pub log_failure: Option<Degradation>,
    pub block_failure: Option<Degradation>,
}

impl StoreStats {
    /// Returns the usage and the share of each class. Shares are fractions of `keep_bytes` minus
    /// the log.
    pub(crate) fn classes(&self, keep_bytes: u64) -> Vec<ClassUsage> {
        let budget = keep_bytes.saturating_sub(self.log_bytes);
        let class_use = |class: &InputClass| {
            let blocks = self.blocks.iter();
            let its = blocks.filter(|block| block.class.accounted_to() == *class);
            let times = its.clone().map(|block| block.min);
            ClassUsage {
                class: class.as_str(),
                block_bytes: its.map(|block| block.bytes).sum(),
                share_bytes: class.share(budget),
                oldest: times.filter(|min| *min != Millis::MIN).min(),
            }
        };
        InputClass::WITH_SHARES.iter().map(class_use).collect()
    }

    fn refresh(&mut self, state: &StoreState) {
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
        self.log_failure.clone_from(&state.log_failure);
        self.block_failure.clone_from(&state.block_failure);
    }
}

/// Exclusive access to the state; refreshes the statistics when it is dropped.
#[derive(Debug)]
pub(crate) struct StateGuard<'a> {
    pub state: RwLockWriteGuard<'a, StoreState>,
    pub stats: &'a Mutex<StoreStats>,
}

impl Deref for StateGuard<'_> {
    type Target = StoreState;

    fn deref(&self) -> &StoreState {
        &self.state
    }
}

impl DerefMut for StateGuard<'_> {
    fn deref_mut(&mut self) -> &mut StoreState {
        &mut self.state
    }
}

impl Drop for StateGuard<'_> {
    fn drop(&mut self) {
        let mut stats = self.stats.lock();
        stats.refresh(&self.state);
    }
}
