//! The exchange between the sampler thread and the thread of a collector: requests in one
//! direction, completed passes in the other. Both sides hold its lock for moments only.

use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use pegel_metric::{Clock, Input, Tick};

use super::CurrentOperation;
use crate::CollectorState;
use crate::stats::CollectorStats;

/// Shared between the sampler thread and the worker. The lock is never held while a collector
/// reads.
#[derive(Debug, Default)]
pub(super) struct PassExchange {
    pub(super) state: Mutex<ExchangeState>,
    pub(super) changed: Condvar,
    pub(super) operation: CurrentOperation,
}

#[derive(Debug, Default)]
pub(super) struct ExchangeState {
    /// A pass is to start.
    pub(super) is_requested: bool,
    /// The monotonic time at which the running pass started.
    pub(super) started: Option<Duration>,
    pub(super) completed: Option<CompletedPass>,
    /// The sampler has dropped the collector; the worker must end.
    pub(super) is_closed: bool,
    /// The worker has ended, because the source is absent.
    pub(super) is_ended: bool,
}

/// The result of a completed pass.
#[derive(Debug)]
pub(super) struct CompletedPass {
    pub(super) number: u64,
    /// The monotonic time of completion.
    pub(super) at: Duration,
    /// The monotonic time of the middle of the pass.
    pub(super) read_at: Duration,
    /// The CPU time: waiting costs nothing.
    pub(super) cost: Duration,
    /// Has no row if the source is absent.
    pub(super) tick: Tick,
    pub(super) state: CollectorState,
    pub(super) detail: Option<String>,
}

impl PassExchange {
    pub(super) fn lock(&self) -> MutexGuard<'_, ExchangeState> {
        // Every field is valid independently of the others, also after a panic.
        self.state.lock()
    }

    /// Waits, on the worker, until a pass is due. Returns false when the collector was closed.
    pub(super) fn wait_for_request(&self, clock: &dyn Clock) -> bool {
        let mut locked = self.lock();
        loop {
            if locked.is_closed {
                return false;
            }
            if std::mem::take(&mut locked.is_requested) {
                locked.started = Some(clock.monotonic());
                return true;
            }
            self.changed.wait(&mut locked);
        }
    }

    /// Requests a pass again that a panic interrupted.
    pub(super) fn retry_interrupted(&self) {
        let mut locked = self.lock();
        if locked.started.take().is_some() {
            locked.is_requested = true;
        }
    }

    /// Stores a completed pass and takes the tick of the previous one, whose buffers are reused.
    pub(super) fn deliver(
        &self,
        tick: &mut Tick,
        stats: &CollectorStats,
        at: Duration,
        cost: Duration,
    ) {
        let (state, detail) = stats.state_and_detail();
        let mut locked = self.lock();
        locked.is_ended = state == CollectorState::Absent;
        let started = locked.started.take().unwrap_or(at);
        let last = locked.completed.take();
        let number = last.as_ref().map_or(1, |last| last.number + 1);
        let spare = last.map_or_else(|| Tick::new(Input::Collect), |last| last.tick);
        locked.completed = Some(CompletedPass {
            number,
            at,
            read_at: (started + at) / 2,
            cost,
            tick: std::mem::replace(tick, spare),
            state,
            detail,
        });
        self.changed.notify_all();
    }
}
