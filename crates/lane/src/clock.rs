//! Timestamps for updates, read through the vDSO without a system call.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Returns milliseconds since 1970, exact.
pub fn now_ms() -> i64 {
    millis(clock_gettime(ClockId::Realtime))
}

/// Returns the same as of the last tick of the kernel's clock, some milliseconds ago, at half the
/// cost.
#[inline]
pub(crate) fn recent_ms() -> i64 {
    millis(clock_gettime(ClockId::RealtimeCoarse))
}

/// Returns nanoseconds on a clock that never steps.
#[inline]
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    (now.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(now.tv_nsec as u64)
}

fn millis(time: Timespec) -> i64 {
    time.tv_sec
        .wrapping_mul(1000)
        .wrapping_add(time.tv_nsec / 1_000_000)
}
