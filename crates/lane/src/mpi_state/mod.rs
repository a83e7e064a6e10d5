//! The MPI state of a process: what each of its threads is in, and how far each communicator is.
//!
//! The library that `pegel run -m` preloads writes it, in an area at the end of the process's first
//! lane; an agent reads it from outside, so that it is known of a process that is stopped, sleeps
//! uninterruptibly or was killed. The lane's header has the offset and the length of the area. All
//! words are 64 bits, little-endian:
//!
//! ```text
//! header      128 bytes: magic + version, library and phase, rank and size in MPI_COMM_WORLD, clock (ticks and
//!             monotonic nanoseconds at the same time, nanoseconds per tick × 2^32), launch, parent process,
//!             communicators without an entry
//! functions   128 × 32 bytes: names of MPI functions; the first entry is empty
//! threads     16 × 64 bytes: thread id · state · ticks of entry or exit · operand · number · ticks in collectives
//! comms       128 × 64 bytes: last collective · id · parent's id · created by · first rank and size ·
//!             own rank and flags · handle
//! ```
//!
//! *State* of a thread: the function's index, whether the thread is inside, and the meaning of
//! operand and number:
//!
//! | kind | operand | number |
//! |---|---|---|
//! | 0 | | |
//! | 1, point to point | handle of the communicator | peer (32 bits), tag (32 bits) |
//! | 2, collective | index of the communicator | number of the collective on it |
//! | 3, waiting for the request of a collective | index, function that created it, starts | number |
//!
//! *Collectives are numbered on each communicator, from 1*, in the order in which the process calls
//! them; MPI requires the same order on all members. A process never waits for a reader. Words are
//! written one by one: a reader takes two copies and uses what is the same in both. A child of
//! `fork` starts with an empty area, in its own lane.

mod area;

pub use area::{CommEntry, MpiStateArea, ThreadEntry};

use crate::layout::LINE_BYTES;

/// The version of this layout; a reader ignores areas of other versions.
pub const VERSION: u32 = 1;
/// The first word of an area: these four bytes, then the version.
pub(crate) const MAGIC: [u8; 4] = *b"MPIS";

pub const FUNCTIONS_MAX: usize = 128;
pub const NAME_BYTES_MAX: usize = 32;
pub const THREADS_MAX: usize = 16;
pub const COMMS_MAX: usize = 128;

pub(crate) const AREA_HEADER_BYTES: usize = 128;
pub(crate) const FUNCTIONS_AT: usize = AREA_HEADER_BYTES;
pub(crate) const THREADS_AT: usize = FUNCTIONS_AT + FUNCTIONS_MAX * NAME_BYTES_MAX;
pub(crate) const COMMS_AT: usize = THREADS_AT + THREADS_MAX * LINE_BYTES;
/// The length of an area.
pub const AREA_BYTES: usize = COMMS_AT + COMMS_MAX * LINE_BYTES;

/// Words of the header.
pub(crate) mod head {
    pub(crate) const MAGIC: usize = 0;
    /// The phase in the upper half, the library in the lower.
    pub(crate) const PHASE: usize = 1;
    /// The size in the upper half, the rank in the lower.
    pub(crate) const RANK: usize = 2;
    pub(crate) const CLOCK_TICKS: usize = 3;
    pub(crate) const CLOCK_NANOS: usize = 4;
    pub(crate) const CLOCK_RATE: usize = 5;
    pub(crate) const LAUNCH: usize = 6;
    pub(crate) const PARENT: usize = 7;
    pub(crate) const UNTRACKED: usize = 8;
}

/// Words of a thread's entry.
pub mod thread {
    pub const ID: usize = 0;
    pub const STATE: usize = 1;
    pub const TICKS: usize = 2;
    pub const OPERAND: usize = 3;
    pub const NUMBER: usize = 4;
    /// Ticks in collectives that have returned.
    pub const COLLECTIVE_TICKS: usize = 5;
}

/// Words of a communicator's entry.
pub mod comm {
    /// The number of the last collective, shifted by 16, and its function.
    pub const LAST: usize = 0;
    pub const ID: usize = 1;
    pub const PARENT: usize = 2;
    /// The number of the collective on the parent that created it, shifted by 16, and its function.
    pub const CREATED: usize = 3;
    /// The size in the upper half, the rank in `MPI_COMM_WORLD` of its first member in the lower.
    pub const MEMBERS: usize = 4;
    /// Flags in the upper half, the process's own rank in the lower.
    pub const FLAGS: usize = 5;
    pub const HANDLE: usize = 6;

    pub const FLAG_USED: u32 = 1;
    /// Its members have ids of their own: `MPI_COMM_SELF`.
    pub const FLAG_SELF: u32 = 2;
    /// Found at its first use: its id follows from its members, not from its creation.
    pub const FLAG_FOUND: u32 = 4;
}

/// Bits of a thread's state.
pub mod state {
    pub const FUNCTION_MASK: u64 = 0xffff;
    pub const INSIDE: u64 = 1 << 16;
    pub const KIND_SHIFT: u32 = 17;
    pub const KIND_MASK: u64 = 3;
    pub const POINT_TO_POINT: u64 = 1 << KIND_SHIFT;
    pub const COLLECTIVE: u64 = 2 << KIND_SHIFT;
    pub const WAITS: u64 = 3 << KIND_SHIFT;
}

/// The phase of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum MpiPhase {
    /// Before the end of `MPI_Init`.
    Starting = 0,
    Running = 1,
    /// `MPI_Finalize` has returned.
    Finalized = 2,
}

/// Returns whether a function is a blocking collective, all members of which wait for each other
/// or for a root: the time in it is time that a process waited for others.
pub fn is_blocking_collective(name: &str) -> bool {
    let Some(name) = name.strip_prefix("MPI_") else {
        return false;
    };
    let name = name.strip_suffix("_c").unwrap_or(name);
    let name = name.strip_prefix("Neighbor_").unwrap_or(name);
    matches!(
        name,
        "Barrier"
            | "Bcast"
            | "Reduce"
            | "Allreduce"
            | "Scan"
            | "Exscan"
            | "Reduce_scatter"
            | "Reduce_scatter_block"
            | "Gather"
            | "Gatherv"
            | "Scatter"
            | "Scatterv"
            | "Allgather"
            | "Allgatherv"
            | "allgather"
            | "allgatherv"
            | "Alltoall"
            | "Alltoallv"
            | "Alltoallw"
            | "alltoall"
            | "alltoallv"
            | "alltoallw"
    )
}

const _: () = assert!(AREA_BYTES.is_multiple_of(LINE_BYTES));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocking_collectives_are_told_from_other_calls() {
        for name in ["MPI_Allreduce", "MPI_Bcast_c", "MPI_Neighbor_alltoallw"] {
            assert!(is_blocking_collective(name), "{name}");
        }
        for name in ["MPI_Iallreduce", "MPI_Recv", "MPI_Comm_dup", "Barrier", ""] {
            assert!(!is_blocking_collective(name), "{name}");
        }
    }
}
