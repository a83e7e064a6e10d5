//! Waits for a condition by polling.

use std::fmt::Debug;
use std::thread;
use std::time::{Duration, Instant};

/// Polls every few milliseconds until the result is `Ok`; panics with the last error after 20
/// seconds.
///
/// The bound is generous for loaded machines; a passing test never reaches it.
pub fn eventually<T, E: Debug>(what: &str, ask: impl FnMut() -> Result<T, E>) -> T {
    eventually_within(Duration::from_secs(20), what, ask)
}

pub fn eventually_within<T, E: Debug>(
    bound: Duration,
    what: &str,
    mut ask: impl FnMut() -> Result<T, E>,
) -> T {
    let deadline = Instant::now() + bound;
    loop {
        match ask() {
            Ok(answer) => return answer,
            Err(refusal) if Instant::now() >= deadline => {
                panic!("not within {bound:?}: {what}; last: {refusal:?}")
            }
            Err(_) => thread::sleep(Duration::from_millis(10)),
        }
    }
}
