//! Time for wrappers: the processor's own counter, made into nanoseconds with the system's clock.
//!
//! The system's clock alone costs more than all else that a wrapper does. The rate of the counter is
//! measured while the program runs, over the time since its first MPI call at first, then over ever longer
//! stretches up to a second, without a thread and without waiting. Where the kernel does not trust the
//! counter, its clock is used after all.

use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Mutex, Once};

/// Nanoseconds per tick, times 2^32; 0 before the first measurement.
static RATE: AtomicU64 = AtomicU64::new(0);
/// The count at which the rate is to be measured again. Stored behind the rate (release), and loaded before it (acquire): a
/// thread that sees no need to measure has a rate.
static MEASURE_AT: AtomicU64 = AtomicU64::new(0);
/// Where the present stretch began. Two words that belong together, so that only the one thread that measures has them.
static BEGIN: Mutex<ClockReading> = Mutex::new(ClockReading { ticks: 0, nanos: 0 });
/// Written once, before any wrapper reads it: see [`start`].
static USES_CLOCK: AtomicBool = AtomicBool::new(false);

/// The counter and the clock at one time.
#[derive(Debug, Clone, Copy)]
struct ClockReading {
    ticks: u64,
    nanos: u64,
}

/// Stretches become no longer than about this.
const INTERVAL_NANOS_MAX: u64 = 1_000_000_000;
/// A look at both that took longer was interrupted, and says nothing.
const READ_NANOS_MAX: u64 = 2_000;

/// Before the first call that is timed. A second thread waits for the first, so that none finds a half of it.
pub(crate) fn start() {
    static START: Once = Once::new();
    START.call_once(|| {
        USES_CLOCK.store(!counter::is_steady(), Relaxed);
        if let Ok(mut begin) = BEGIN.lock() {
            *begin = read_clocks();
        }
    });
}

/// Whether [`now`] is more than reading the processor's counter.
#[inline(always)]
pub(crate) fn uses_clock() -> bool {
    USES_CLOCK.load(Relaxed)
}

#[inline(always)]
pub(crate) fn now() -> u64 {
    match uses_clock() {
        true => clock(),
        false => counter::read(),
    }
}

/// The same where the clock is not used.
#[inline(always)]
pub(crate) fn count() -> u64 {
    counter::read()
}

#[cold]
fn clock() -> u64 {
    pegel_lane::monotonic_ns()
}

/// The time between two counts.
#[inline]
pub(crate) fn nanos(begin: u64, end: u64) -> u64 {
    if end >= MEASURE_AT.load(Acquire) {
        measure(end);
    }
    // Counters of two processors may be a little apart.
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
    // Only the first measurement is waited for: without it there is no rate at all.
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
    RATE.store(u64::try_from(rate).unwrap_or(0).max(1), Relaxed);
    MEASURE_AT.store(end.saturating_add(past_ticks), Release);
    if past_nanos > INTERVAL_NANOS_MAX {
        *begin = now;
    }
}

#[cfg(target_arch = "x86_64")]
mod counter {
    use std::arch::x86_64::{__cpuid, _rdtsc};

    #[inline]
    pub fn read() -> u64 {
        // SAFETY: every processor of this kind has the instruction.
        unsafe { _rdtsc() }
    }

    /// Whether it counts at one rate, the same on all processors of this machine.
    pub fn is_steady() -> bool {
        let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
        match std::fs::read_to_string(path).as_deref().map(str::trim) {
            Ok("tsc") => true,
            // These stand on it, on machines where it is said to be constant; where nothing can be read,
            // the processor itself is asked.
            Ok("kvm-clock" | "hyperv_clocksource_tsc_page") | Err(_) => is_constant(),
            Ok(_) => false,
        }
    }

    #[allow(unused_unsafe)] // Newer compilers know that asking is safe.
    fn is_constant() -> bool {
        // SAFETY: every processor of this kind can be asked; the second question only where the first says so.
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
        // SAFETY: Linux lets programs read it.
        unsafe { std::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack)) };
        ticks
    }

    /// The architecture promises one rate for all.
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

    /// None finds the rate, the counter or the beginning half written. (On x86 the processor hides most of it.)
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
