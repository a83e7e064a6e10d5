//! A clock that always shows the same time, for stores that targets query.

use std::time::Duration;

use pegel_metric::{Clock, Millis};

/// The time that [`FixedClock`] shows: a full hour.
pub(crate) const NOW: Millis = 1_700_006_400_000;

#[derive(Debug)]
pub(crate) struct FixedClock;

impl Clock for FixedClock {
    fn utc(&self) -> Millis {
        NOW
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(NOW as u64)
    }
}
