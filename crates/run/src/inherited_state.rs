//! Preserves process state that Rust's runtime changes before `main`: it opens closed standard
//! descriptors and ignores SIGPIPE. The state is recorded at startup and restored before the
//! program is executed.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use libc::c_int;

static CLOSED_AT_START: AtomicU8 = AtomicU8::new(0);
static IGNORED_SIGPIPE: AtomicBool = AtomicBool::new(false);

/// Runs before Rust's runtime is initialised.
#[used]
#[unsafe(link_section = ".init_array")]
static RECORD_AT_STARTUP: extern "C" fn() = record_inherited;

extern "C" fn record_inherited() {
    for descriptor in 0..3 {
        // SAFETY: F_GETFD only reads flags; an invalid descriptor is an error.
        if unsafe { libc::fcntl(descriptor, libc::F_GETFD) } == -1 {
            CLOSED_AT_START.fetch_or(1 << descriptor, Ordering::Relaxed);
        }
    }
    // SAFETY: only reads the current action, into a local structure.
    let handler = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGPIPE, std::ptr::null(), &mut action);
        action.sa_sigaction
    };
    IGNORED_SIGPIPE.store(handler == libc::SIG_IGN, Ordering::Relaxed);
}

/// Restores the recorded state, right before the program is executed.
pub(crate) fn restore_inherited() {
    let closed = CLOSED_AT_START.load(Ordering::Relaxed);
    for descriptor in 0..3_u8 {
        if closed & 1 << descriptor != 0 {
            close_on_exec(c_int::from(descriptor));
        }
    }
    if !IGNORED_SIGPIPE.load(Ordering::Relaxed) {
        // SAFETY: installs no handler.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    }
}

/// Closes a descriptor on exec. Not earlier: if exec fails, the error message still needs standard
/// error.
fn close_on_exec(descriptor: c_int) {
    // SAFETY: F_SETFD only sets a flag; an invalid descriptor is an error.
    unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) };
}
