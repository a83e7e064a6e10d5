//! Time for wrappers: the processor's counter (TSC), converted to nanoseconds with the system
//! clock.
//!
//! Reading the system clock costs more than the rest of a wrapper. The rate of the counter is
//! measured while the program runs, first over the time since its first MPI call, then over ever
//! longer intervals up to a second, without a thread and without waiting. If the kernel does not
//! trust the counter, the system clock is used instead.

use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Mutex, Once};

use crate::mpi_state;

/// Nanoseconds per tick, times 2^32; 0 before the first measurement.
static RATE: AtomicU64 = AtomicU64::new(0);
/// The count at which to measure the rate again. Stored after the rate (release) and loaded before
/// it (acquire), so that a thread that need not measure sees a rate.
static MEASURE_AT: AtomicU64 = AtomicU64::new(0);
/// The start of the current interval. Two words that must match, hence the lock; only the thread
/// that measures takes it.
static BEGIN: Mutex<ClockReading> = Mutex::new(ClockReading { ticks: 0, nanos: 0 });
/// Written once, before any wrapper reads it: see [`start`].
static USES_CLOCK: AtomicBool = AtomicBool::new(false);

/// The counter and the clock, read at the same time.
#[derive(Debug, Clone, Copy)]
struct ClockReading {
    ticks: u64,
    nanos: u64,
}

/// The approximate maximum length of an interval.
const INTERVAL_NANOS_MAX: u64 = 1_000_000_000;
/// A reading of both that took longer was interrupted and is retried.
const READ_NANOS_MAX: u64 = 2_000;

/// Initialises the clock. Must be called before the first timed call; concurrent callers wait until
/// it is complete.
pub(crate) fn start() {
    static START: Once = Once::new();
    START.call_once(|| {
        USES_CLOCK.store(!counter::is_steady(), Relaxed);
        if let Ok(mut begin) = BEGIN.lock() {
            *begin = read_clocks();
            mpi_state::set_clock(begin.ticks, begin.nanos, 0);
        }
    });
}

/// Returns whether [`now`] reads the system clock instead of the processor's counter.
#[inline(always)]
pub(crate) fn uses_clock() -> bool {
    USES_CLOCK.load(Relaxed)
}

#[inline(always)]
pub(crate) fn now() -> u64 {
    if uses_clock() {
        clock()
    } else {
        counter::read()
    }
}

/// Reads the processor's counter. Only valid if [`uses_clock`] is false.
#[inline(always)]
pub(crate) fn count() -> u64 {
    counter::read()
}

#[cold]
fn clock() -> u64 {
    pegel_lane::monotonic_ns()
}

/// Returns the time between two counts in nanoseconds.
#[inline]
pub(crate) fn nanos(begin: u64, end: u64) -> u64 {
    if end >= MEASURE_AT.load(Acquire) {
        measure(end);
    }
    // The counters of two processors may differ slightly.
    convert(end.saturating_sub(begin), RATE.load(Relaxed))
}

#[inline]
fn convert(ticks: u64, rate: u64) -> u64 {
    ((u128::from(ticks) * u128::from(rate)) >> 32) as u64
}

fn read_clocks() -> ClockReading {
    let mut best = ClockReading { ticks: 0, nanos: 0 };
    for _ in 0..8 {
        let before = pegel_lane::monotonic_ns();
        let ticks = now();
        let after = pegel_lane::monotonic_ns();
        best = ClockReading {
            ticks,
            nanos: before + (after - before) / 2,
        };
        if after - before < READ_NANOS_MAX {
            break;
        }
    }
    best
}

#[cold]
fn measure(end: u64) {
    // Block only for the first measurement, without which there is no rate.
    let begin = match RATE.load(Relaxed) {
        0 => BEGIN.lock().ok(),
        _ => BEGIN.try_lock().ok(),
    };
    let Some(mut begin) = begin else {
        return;
    };
    let now = read_clocks();
    let past_ticks = now.ticks.saturating_sub(begin.ticks).max(1);
    let past_nanos = now.nanos.saturating_sub(begin.nanos);
    let rate = (u128::from(past_nanos) << 32) / u128::from(past_ticks);
    let rate = u64::try_from(rate).unwrap_or(0).max(1);
    RATE.store(rate, Relaxed);
    mpi_state::set_clock(now.ticks, now.nanos, rate);
    MEASURE_AT.store(end.saturating_add(past_ticks), Release);
    if past_nanos > INTERVAL_NANOS_MAX {
        *begin = now;
    }
}

#[cfg(target_arch = "x86_64")]
mod counter {
    use std::arch::x86_64::{__cpuid, _rdtsc};

    #[inline]
    pub(super) fn read() -> u64 {
        // SAFETY: every x86-64 processor has the instruction.
        unsafe { _rdtsc() }
    }

    /// Returns whether the counter has a constant rate and is synchronised between processors.
    pub(super) fn is_steady() -> bool {
        let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
        match std::fs::read_to_string(path).as_deref().map(str::trim) {
            Ok("tsc") => true,
            // These clocks are based on the counter. Whether it is constant, here and where the
            // file cannot be read, is up to CPUID.
            Ok("kvm-clock" | "hyperv_clocksource_tsc_page") | Err(_) => is_constant(),
            Ok(_) => false,
        }
    }

    #[allow(unused_unsafe)] // `__cpuid` is safe in newer compilers.
    fn is_constant() -> bool {
        // SAFETY: every x86-64 processor has CPUID; the second leaf is read only if the first
        // reports it.
        unsafe {
            __cpuid(0x8000_0000).eax >= 0x8000_0007 && __cpuid(0x8000_0007).edx & (1 << 8) != 0
        }
    }
}

#[cfg(target_arch = "aarch64")]
mod counter {
    #[inline]
    pub fn read() -> u64 {
        let ticks: u64;
        // SAFETY: Linux permits reading the register in user space.
        unsafe { std::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack)) };
        ticks
    }

    /// Always true: the architecture guarantees a constant rate.
    pub fn is_steady() -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_become_nanoseconds() {
        let half = 1 << 31;
        assert_eq!(convert(2_600_000_000, half), 1_300_000_000);
        assert_eq!(convert(u64::MAX / 2, 1 << 32), u64::MAX / 2);
    }

    /// No thread may see a partially written rate, counter or start. (On x86 the memory model hides
    /// most errors.)
    #[test]
    fn threads_that_begin_together_agree_with_the_clock() {
        let barrier = std::sync::Barrier::new(16);
        let time = || {
            barrier.wait();
            start();
            let (begin_clock, begin) = (pegel_lane::monotonic_ns(), now());
            std::thread::sleep(std::time::Duration::from_millis(5));
            let (end, end_clock) = (now(), pegel_lane::monotonic_ns());
            (nanos(begin, end), end_clock - begin_clock)
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..16).map(|_| scope.spawn(time)).collect();
            for thread in threads {
                let (counted, clock) = thread.join().expect("no panic");
                assert!(counted <= clock + clock / 20, "{counted} of {clock}");
                assert!(counted >= 4_750_000, "{counted} of {clock}");
            }
        });
    }

    #[test]
    fn time_agrees_with_the_clock() {
        start();
        for pause_ms in [1, 20, 200] {
            let (begin_clock, begin) = (pegel_lane::monotonic_ns(), now());
            std::thread::sleep(std::time::Duration::from_millis(pause_ms));
            let (end, end_clock) = (now(), pegel_lane::monotonic_ns());
            let (clock, counted) = (end_clock - begin_clock, nanos(begin, end));
            assert!(counted <= clock + clock / 100, "{counted} of {clock}");
            assert!(counted > pause_ms * 990_000, "{counted} of {clock}");
        }
        assert_eq!(nanos(7, 3), 0);
    }
}
