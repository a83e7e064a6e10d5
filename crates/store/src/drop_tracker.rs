//! Whether samples of the node itself are being lost: then the store is not well, whatever its disk does.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pegel_metric::{DropReason, Input, Millis};

use crate::options::StoreOptions;
use crate::status::Degradation;

/// What was lost longer ago is over: the books still count it.
const EPISODE_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(crate) struct DropTracker {
    current: Mutex<Option<DropEpisode>>,
}

#[derive(Debug, Clone, Copy)]
struct DropEpisode {
    cause: &'static str,
    since: Millis,
    /// By the monotonic clock.
    latest: Duration,
}

impl DropTracker {
    /// Notes that samples were dropped. Those of programs may be dropped because there are too many of them, and those
    /// with a wrong time because the clock was: neither is a fault of the store.
    pub fn record(&self, input: Input, reason: DropReason, options: &StoreOptions) {
        let Some(why) = degradation_cause(reason).filter(|_| input == Input::Collect) else {
            return;
        };
        let now = options.clock.monotonic();
        let mut current = self.lock();
        match current.as_mut().filter(|loss| loss.is_ongoing(now)) {
            Some(loss) => (loss.latest, loss.cause) = (now, why),
            None => {
                tracing::error!(why, "samples of the node are dropped");
                *current = Some(DropEpisode {
                    cause: why,
                    since: options.clock.utc(),
                    latest: now,
                });
            }
        }
    }

    pub fn degradation(&self, options: &StoreOptions) -> Option<Degradation> {
        let loss = (*self.lock())?;
        loss.is_ongoing(options.clock.monotonic())
            .then(|| Degradation {
                reason: format!("samples of the node are dropped: {}", loss.cause),
                since: loss.since,
            })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<DropEpisode>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn degradation_cause(reason: DropReason) -> Option<&'static str> {
    match reason {
        DropReason::Memory => Some("memory is full (limits.memory)"),
        DropReason::SeriesLimit => Some("there are too many series (limits.series)"),
        DropReason::QueueFull => Some("the disk does not keep up (queue_full)"),
        _ => None,
    }
}

impl DropEpisode {
    fn is_ongoing(&self, now: Duration) -> bool {
        now.saturating_sub(self.latest) < EPISODE_TIMEOUT
    }
}
