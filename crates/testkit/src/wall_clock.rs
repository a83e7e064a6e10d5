//! The machine's clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Returns the seconds since 1970.
pub fn now_seconds() -> u64 {
    since_1970().as_secs()
}

/// Returns the milliseconds since 1970.
pub fn now_millis() -> i64 {
    since_1970().as_millis() as i64
}

fn since_1970() -> Duration {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("the clock is set to a time after 1970")
}
