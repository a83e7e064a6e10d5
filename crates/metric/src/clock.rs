//! The clocks of the agent: a trait that tests replace, and the implementation over the system
//! clocks.

use std::fmt::Debug;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::Millis;

/// The source of time. Tests pass a clock that they advance themselves.
pub trait Clock: Debug + Send + Sync {
    /// The wall clock. It may step in either direction.
    fn utc(&self) -> Millis;

    /// The wall clock in nanoseconds since 1970, at the resolution of the clock. At 1000 samples a
    /// second whole milliseconds are too coarse for deadlines.
    fn utc_nanos(&self) -> i64 {
        self.utc().saturating_mul(1_000_000)
    }

    /// Time since an arbitrary fixed moment. It never steps.
    fn monotonic(&self) -> Duration;
}

/// Returns how far from its nominal time a sample may be read and still carry that time: a
/// hundredth of the interval, at least a millisecond. Regular times are cheap to store, and a rate
/// is off by a hundredth at most. Samples that are read later carry the time of reading.
pub fn nominal_tolerance(interval: Duration) -> Duration {
    (interval / 100).max(Duration::from_millis(1))
}

/// The system clocks.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn utc(&self) -> Millis {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
            // A clock before 1970 is wrong, but it is reported as it is.
            Err(before) => -i64::try_from(before.duration().as_millis()).unwrap_or(i64::MAX),
        }
    }

    fn utc_nanos(&self) -> i64 {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_nanos()).unwrap_or(i64::MAX),
            Err(before) => -i64::try_from(before.duration().as_nanos()).unwrap_or(i64::MAX),
        }
    }

    fn monotonic(&self) -> Duration {
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed()
    }
}
