//! Counting in the kernel: small BPF programs at the start and the end of system calls, loaded only
//! while a process is watched.
//!
//! The programs are assembled here and require neither a compiler nor kernel headers: the
//! tracepoints are found in the kernel's own type information (BTF). While loaded, they cost every
//! process of the machine some tens of nanoseconds per call. The kernel unloads them when their
//! last descriptor is closed, however this process ends.
//!
//! | modules | purpose |
//! |---|---|
//! | `assembler`, `programs`, `btf`, `bpf_syscall` | the BPF programs, and loading them into the kernel |
//! | `program_set`, `watch_slot`, `task`, `watched_process` | all programs loaded together; one watched process in them |
//! | `set_sharing` | shares one set between all wrappers of a user who may load it |
//! | `counting_service`, `watch_protocol`, `remote_counter` | an agent with permission counts for wrappers without |
//! | `drop_queue` | releases watched processes outside the agent's async workers |
//! | `process_follower` | follows a watched process to its end |

mod assembler;
mod bpf_syscall;
mod btf;
mod counting_service;
mod drop_queue;
mod process_follower;
mod program_set;
mod programs;
mod remote_counter;
mod set_sharing;
mod task;
mod watch_protocol;
mod watch_slot;
mod watched_process;

use std::io;

pub use counting_service::{CountingService, DESCRIPTORS_PER_PROGRAM, PROGRAMS_MAX, WatchSession};
pub(crate) use process_follower::{ProcessFollower, attach};
pub use remote_counter::CountingAgents;

pub(crate) mod fuzzing {
    use super::btf::Btf;
    use super::watch_protocol::{CountsReading, WatchRequest};

    /// Parses a wrapper's request and writes it again; None if it is malformed.
    pub fn request_again(text: &str) -> Option<String> {
        Some(text.parse::<WatchRequest>().ok()?.to_string())
    }

    /// Parses an agent's answer and writes it again; None if it is malformed.
    pub fn reading_again(text: &str) -> Option<String> {
        Some(CountsReading::parse(text)?.to_string())
    }

    /// Finds a type and the bit offset of a structure member in BTF data.
    pub fn tracepoint(bytes: &[u8]) -> Option<(Option<u32>, Option<u32>)> {
        let types = Btf::parse(bytes)?;
        let found = types.typedefs(&["btf_trace_sys_exit"]);
        let number = found.first().copied().flatten();
        Some((
            number,
            types.member_bit_offset("linux_binprm", "secureexec"),
        ))
    }
}

/// Whether the duration of calls is measured, which doubles the cost of counting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CallTiming {
    #[default]
    Measured,
    Ignored,
}

/// The reason why eBPF is not available.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EbpfError {
    #[error("no permission (requires CAP_BPF and CAP_PERFMON)")]
    Permission,
    #[error("this kernel has no type information (BTF) in {}", program_set::TYPES)]
    NoTypes,
    #[error("this kernel has no {0}")]
    Missing(&'static str),
    #[error("the kernel refuses {what}: {source}")]
    Refused {
        what: &'static str,
        source: io::Error,
    },
    #[error("no permission, and no agent to count instead: {0}")]
    NoAgent(String),
}

fn kernel_refused(what: &'static str) -> impl Fn(io::Error) -> EbpfError {
    move |source| match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) if what == "maps" => EbpfError::Permission,
        _ => EbpfError::Refused { what, source },
    }
}
