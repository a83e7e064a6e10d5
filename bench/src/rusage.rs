use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The CPU time that all threads of this process have used so far, in user and kernel mode.
pub fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}
