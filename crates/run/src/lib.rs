//! Implements `pegel run`: counts the system calls of a program, and preloads the library that
//! counts its MPI calls.
//!
//! The wrapper (`pegel run`) executes the program in its own process, so that process ID, parent,
//! exit status, signals and terminal are what they would be without Pegel; a separate helper
//! process counts. `helper_process` detaches the helper, `program_watcher` is its main function,
//! and `ptrace`, `ebpf` and `seccomp` are the methods of counting. Counts go into a lane, which the
//! agent reads. A failure to count must never keep the program from running.

mod attach;
mod capabilities;
mod ebpf;
mod executable_file;
#[doc(hidden)] // For fuzz/ only.
pub mod fuzzing;
mod helper_process;
mod inherited_state;
mod launch;
mod mpi_lanes;
mod mpi_preload;
mod observed_process;
mod path_resolver;
mod process;
mod program_watcher;
mod ptrace;
mod reading_timer;
mod resource_usage;
mod run_directory;
mod run_observer;
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
pub use mpi_lanes::{MpiCall, MpiSummary};
pub use ptrace::{AttachError, ProcessEnd};
pub use resource_usage::{IoBytes, ResourceUsage};
pub use run_directory::run_directory;
pub use summary::ProgramSummary;
pub use syscall_tally::{CallCount, CountedCall};

/// A method of counting system calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountingMethod {
    /// Programs in the kernel; requires privileges.
    Ebpf,
    /// ptrace(2), with two stops for every call.
    Ptrace,
    /// ptrace(2) with a seccomp filter, which stops only at calls that transfer bytes.
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
