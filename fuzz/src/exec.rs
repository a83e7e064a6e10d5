//! Executes a target once, with limits on panics and CPU time.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::Target;

/// The limit for one input of at most 64 KiB. CPU time, so that a loaded machine does not matter;
/// generous, because debug builds are slow.
const CPU_MAX: Duration = Duration::from_secs(2);

/// A violation by a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Broken {
    /// A panic of the code under test, or a failed assertion of the target.
    Panic(String),
    Slow(Duration),
}

/// Runs a target on one input.
pub fn execute(target: &Target, input: &[u8]) -> Result<(), Broken> {
    let before = cpu_time();
    let result = catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    let taken = cpu_time().saturating_sub(before);
    match result {
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().copied();
            let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
            // Some messages contain the whole input.
            Err(Broken::Panic(
                text.unwrap_or("no message").chars().take(1_000).collect(),
            ))
        }
        Ok(()) if taken > CPU_MAX => Err(Broken::Slow(taken)),
        Ok(()) => Ok(()),
    }
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        time.tv_sec.unsigned_abs(),
        time.tv_nsec.unsigned_abs() as u32,
    )
}
