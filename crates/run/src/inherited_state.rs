//! What this process was given by its parent and Rust's runtime changes before `main`: descriptors that are closed are
//! opened, and SIGPIPE is ignored. A program that is executed from here must find both as they were.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use libc::c_int;

static CLOSED_AT_START: AtomicU8 = AtomicU8::new(0);
static IGNORED_SIGPIPE: AtomicBool = AtomicBool::new(false);

/// Runs before Rust's runtime does anything.
#[used]
#[unsafe(link_section = ".init_array")]
static RECORD_AT_STARTUP: extern "C" fn() = record_inherited;

extern "C" fn record_inherited() {
    for descriptor in 0..3 {
        // SAFETY: asks for the flags of a descriptor, which changes nothing.
        if unsafe { libc::fcntl(descriptor, libc::F_GETFD) } == -1 {
            CLOSED_AT_START.fetch_or(1 << descriptor, Ordering::Relaxed);
        }
    }
    // SAFETY: reads the current action into a structure of ours.
    let handler = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGPIPE, std::ptr::null(), &mut action);
        action.sa_sigaction
    };
    IGNORED_SIGPIPE.store(handler == libc::SIG_IGN, Ordering::Relaxed);
}

/// Puts it back, right before the program is executed.
pub(crate) fn restore_inherited() {
    let closed = CLOSED_AT_START.load(Ordering::Relaxed);
    for descriptor in 0..3_u8 {
        if closed & 1 << descriptor != 0 {
            close_on_exec(c_int::from(descriptor));
        }
    }
    if !IGNORED_SIGPIPE.load(Ordering::Relaxed) {
        // SAFETY: the default action needs no handler.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    }
}

/// Not closed at once: when the program cannot be executed, our own message needs somewhere to go.
fn close_on_exec(descriptor: c_int) {
    // SAFETY: sets a flag of a descriptor; one that is not there is an error that does no harm.
    unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) };
}
