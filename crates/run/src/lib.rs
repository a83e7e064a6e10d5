//! Watches a program: counts its system calls, and loads the library that counts its MPI calls.
//!
//! The program takes the place of the wrapper, so that its number, parent, exit status, signals and terminal are its own;
//! a process beside it counts. See `apart` for how they part, `watch` for what the helper does, `ptrace`, `ebpf` and `seccomp`
//! for the ways of counting. What is counted goes into a lane, which the agent reads.

mod attach;
mod capabilities;
mod ebpf;
mod executable_file;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod helper_process;
mod inherited_state;
mod launch;
mod mpi_preload;
mod path_resolver;
mod program_watcher;
mod ptrace;
mod seccomp;
mod summary;
mod syscall_names;
mod syscall_tally;

use std::fmt;

pub use attach::{AttachOptions, attach};
pub use ebpf::{
    CallTiming, CountingAgents, CountingService, DESCRIPTORS_PER_PROGRAM, PROGRAMS_MAX,
    WatchSession,
};
pub use helper_process::spawn_detached;
pub use launch::{CountingOptions, Launch, LaunchError};
pub use ptrace::{AttachError, ProcessEnd};
pub use summary::ProgramSummary;
pub use syscall_tally::{CallCount, CountedCall};

/// A way to count system calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountingMethod {
    /// In the kernel; needs privileges.
    Ebpf,
    /// From outside, call by call.
    Ptrace,
    /// From outside, but only at calls that move bytes.
    Seccomp,
}

impl fmt::Display for CountingMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CountingMethod::Ebpf => "eBPF",
            CountingMethod::Ptrace => "ptrace",
            CountingMethod::Seccomp => "seccomp and ptrace",
        })
    }
}
