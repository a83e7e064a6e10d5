//! Counting in the kernel: small programs at the start and the end of system calls, loaded only while something is watched.
//!
//! They are assembled here and need neither a compiler nor the kernel's headers. The kernel describes its own types (BTF),
//! by which the tracepoints are found. Every process of the machine pays for the programs while they are loaded, some tens
//! of nanoseconds a call; they go with the last descriptor, however this process ends.
//!
//! | | |
//! |---|---|
//! | `assembler`, `programs`, `btf`, `kernel` | the programs, and how the kernel gets them |
//! | `set`, `place`, `task`, `watched` | all programs loaded at once; one watched process in them |
//! | `share` | one set for all wrappers of a user who may load them |
//! | `station`, `reading`, `by_agent` | an agent that may load them counts for wrappers that may not |
//! | `release` | ends watches away from the agent's async workers |
//! | `follow` | a watched process, from the one who counts it to its end |

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

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing {
    use super::btf::Btf;
    use super::watch_protocol::{CountsReading, WatchRequest};

    /// A wrapper's request, as it would be written; None if it is none.
    pub fn request_again(text: &str) -> Option<String> {
        Some(text.parse::<WatchRequest>().ok()?.to_string())
    }

    /// An agent's answer, as it would be written.
    pub fn reading_again(text: &str) -> Option<String> {
        Some(CountsReading::parse(text)?.to_string())
    }

    /// The number of a type and the place of a member in a description of types.
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

/// Whether the time inside calls is measured, which costs as much again as counting them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CallTiming {
    #[default]
    Measured,
    Ignored,
}

/// Why this machine does not allow it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EbpfError {
    #[error("no permission (it needs CAP_BPF and CAP_PERFMON)")]
    Permission,
    #[error("this kernel does not describe its types in {}", program_set::TYPES)]
    NoTypes,
    #[error("this kernel has no {0}")]
    Missing(&'static str),
    #[error("the kernel refuses {what}: {source}")]
    Refused {
        what: &'static str,
        source: io::Error,
    },
    #[error("no permission, and no agent that counts for others: {0}")]
    NoAgent(String),
}

fn kernel_refused(what: &'static str) -> impl Fn(io::Error) -> EbpfError {
    move |source| match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) if what == "maps" => EbpfError::Permission,
        _ => EbpfError::Refused { what, source },
    }
}
