//! Whether samples of the node itself are being lost: then the store is not well, whatever its disk does.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pegel_metric::{Input, Millis, Reason};

use crate::options::Options;
use crate::status::Degraded;

/// What was lost longer ago is over: the books still count it.
const LASTING: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(crate) struct Losses {
    current: Mutex<Option<Loss>>,
}

#[derive(Debug, Clone, Copy)]
struct Loss {
    why: &'static str,
    since: Millis,
    /// By the monotonic clock.
    latest: Duration,
}

impl Losses {
    /// Notes that samples were dropped. Those of programs may be dropped because there are too many of them, and those
    /// with a wrong time because the clock was: neither is a fault of the store.
    pub fn note(&self, input: Input, reason: Reason, options: &Options) {
        let Some(why) = why(reason).filter(|_| input == Input::Collect) else {
            return;
        };
        let now = options.clock.monotonic();
        let mut current = self.lock();
        match current.as_mut().filter(|loss| loss.lasts(now)) {
            Some(loss) => (loss.latest, loss.why) = (now, why),
            None => {
                tracing::error!(why, "samples of the node are dropped");
                *current = Some(Loss {
                    why,
                    since: options.clock.utc(),
                    latest: now,
                });
            }
        }
    }

    pub fn degraded(&self, options: &Options) -> Option<Degraded> {
        let loss = (*self.lock())?;
        loss.lasts(options.clock.monotonic()).then(|| Degraded {
            reason: format!("samples of the node are dropped: {}", loss.why),
            since: loss.since,
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Loss>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn why(reason: Reason) -> Option<&'static str> {
    match reason {
        Reason::Memory => Some("memory is full (limits.memory)"),
        Reason::SeriesLimit => Some("there are too many series (limits.series)"),
        Reason::QueueFull => Some("the disk does not keep up (queue_full)"),
        _ => None,
    }
}

impl Loss {
    fn lasts(&self, now: Duration) -> bool {
        now.saturating_sub(self.latest) < LASTING
    }
}
