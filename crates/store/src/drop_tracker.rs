//! Tracks drops of the node's own samples: while they last, the store reports itself as degraded,
//! whatever the state of its disk.

use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use pegel_metric::{DropReason, Input, Millis};

use crate::options::StoreOptions;
use crate::status::Degradation;

/// An episode of drops ends after this time without a further drop; the ledger still counts it.
const EPISODE_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(crate) struct DropTracker {
    current: Mutex<Option<DropEpisode>>,
}

#[derive(Debug, Clone, Copy)]
struct DropEpisode {
    cause: &'static str,
    since: Millis,
    /// Monotonic time of the latest drop.
    latest: Duration,
}

impl DropTracker {
    /// Records dropped samples. Drops of program samples, which may simply be too many, and drops
    /// for a wrong time, caused by the clock, are not failures of the store.
    pub(crate) fn record(&self, input: Input, reason: DropReason, options: &StoreOptions) {
        let Some(why) = degradation_cause(reason).filter(|_| input == Input::Collect) else {
            return;
        };
        let now = options.clock.monotonic();
        let mut current = self.lock();
        match current.as_mut().filter(|loss| loss.is_ongoing(now)) {
            Some(loss) => (loss.latest, loss.cause) = (now, why),
            None => {
                tracing::error!(why, "dropping samples of the node");
                *current = Some(DropEpisode {
                    cause: why,
                    since: options.clock.utc(),
                    latest: now,
                });
            }
        }
    }

    pub(crate) fn degradation(&self, options: &StoreOptions) -> Option<Degradation> {
        let loss = (*self.lock())?;
        loss.is_ongoing(options.clock.monotonic())
            .then(|| Degradation {
                reason: format!("dropping samples of the node: {}", loss.cause),
                since: loss.since,
            })
    }

    fn lock(&self) -> MutexGuard<'_, Option<DropEpisode>> {
        self.current.lock()
    }
}

fn degradation_cause(reason: DropReason) -> Option<&'static str> {
    match reason {
        DropReason::Memory => Some("memory is full (limits.memory)"),
        DropReason::SeriesLimit => Some("too many series (limits.series)"),
        DropReason::QueueFull => Some("the disk is too slow (queue_full)"),
        _ => None,
    }
}

impl DropEpisode {
    fn is_ongoing(&self, now: Duration) -> bool {
        now.saturating_sub(self.latest) < EPISODE_TIMEOUT
    }
}
