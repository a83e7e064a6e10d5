//! A timer that interrupts the wait for traced threads, so that readings are taken at regular
//! intervals also while all threads are blocked.
//!
//! SIGALRM is delivered without SA_RESTART: it ends a blocked wait4(2) with EINTR. One that arrives
//! between two waits is noticed by [`take_due`] at the next event, or by the next signal.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use libc::c_int;

static IS_DUE: AtomicBool = AtomicBool::new(false);

/// The interval between readings of traced programs.
pub(crate) const READING_INTERVAL: Duration = Duration::from_millis(200);

/// Starts the timer of this process.
pub(crate) fn start() {
    install();
    set_interval(READING_INTERVAL);
}

/// Installs the handler; [`set_interval`] starts the timer.
pub(crate) fn install() {
    // SAFETY: the handler is async-signal-safe: it only stores to an atomic.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_alarm as *const () as usize;
        libc::sigaction(libc::SIGALRM, &action, std::ptr::null_mut());
    }
}

/// Changes the interval. Async-signal-safe.
pub(crate) fn set_interval(interval: Duration) {
    let every = libc::timeval {
        tv_sec: interval.as_secs() as libc::time_t,
        tv_usec: libc::suseconds_t::from(interval.subsec_micros()),
    };
    let timer = libc::itimerval {
        it_interval: every,
        it_value: every,
    };
    // SAFETY: `timer` lives through the call; the old value is not requested.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut()) };
}

/// Returns whether an interval has passed since the last call that returned true.
pub(crate) fn take_due() -> bool {
    // The load comes first: this is called for every event, and a swap is a locked instruction.
    IS_DUE.load(Ordering::Relaxed) && IS_DUE.swap(false, Ordering::Relaxed)
}

extern "C" fn on_alarm(_: c_int) {
    IS_DUE.store(true, Ordering::Relaxed);
}
