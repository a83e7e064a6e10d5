//! Ends a child process with this one, also if this one is killed.

use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::Signal;

/// Lets the kernel send SIGTERM to the child when the thread that starts it ends. For processes
/// that have nothing to clean up, started by the main thread.
pub(crate) fn end_with_parent(command: &mut Command) {
    // SAFETY: prctl accesses no memory of this process and is async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            let signal = Some(Signal::TERM);
            Ok(rustix::process::set_parent_process_death_signal(signal)?)
        });
    }
}
