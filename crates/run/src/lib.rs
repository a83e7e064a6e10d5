//! Watches a program: counts its system calls, and loads the library that counts its MPI calls.
//!
//! The program takes the place of the wrapper, so that its number, parent, exit status, signals and terminal are its own;
//! a process beside it counts. See `apart` for how they part, `watch` for what the helper does, `ptrace`, `ebpf` and `seccomp`
//! for the ways of counting. What is counted goes into a lane, which the agent reads.

mod apart;
mod attach;
mod ebpf;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod heritage;
mod launch;
mod names;
mod path_resolver;
mod preload;
mod program;
mod ptrace;
mod rights;
mod seccomp;
mod summary;
mod tally;
mod watch;

use std::fmt;

pub use apart::start_apart;
pub use attach::{Attach, attach};
pub use ebpf::{Agents, DESCRIPTORS_PER_PROGRAM, PROGRAMS_MAX, Station, Time, Visitor};
pub use launch::{Counting, Launch, LaunchError};
pub use ptrace::{AttachError, Ending};
pub use summary::Summary;
pub use tally::{Count, Counted};

/// A way to count system calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// In the kernel; needs privileges.
    Ebpf,
    /// From outside, call by call.
    Ptrace,
    /// From outside, but only at calls that move bytes.
    Seccomp,
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Method::Ebpf => "eBPF",
            Method::Ptrace => "ptrace",
            Method::Seccomp => "seccomp and ptrace",
        })
    }
}
