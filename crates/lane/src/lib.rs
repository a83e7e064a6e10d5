//! Lanes: how a program's counters reach the agent without a system call.
//!
//! A lane is a file of fixed size in shared memory. A process creates one with its first series,
//! and further ones when that is full. It writes with plain atomic instructions; the agent finds
//! the file and reads copies of it. Neither side waits for the other, and everything counted is in
//! the file, even after `kill -9`.
//!
//! ```text
//! header            512 bytes: magic, version, 128 random bits, pid + start time + pid namespace, uid,
//!                   time of creation, file length, ring, published length, series refused for want of
//!                   room, MPI state, head of the ring (in a cache line of its own), command, rank, job
//! series            one after the other, up to the published length, each in whole cache lines:
//!   description     length, kind, aggregation, stripes, flags (pid, rank), level, offset of the slot,
//!                   lengths of the texts, own offset, hash; name, help, labels {lengths, key, value}…
//!   slot            zeros at first; words of 64 bits, little-endian
//!     counter       value · · · · · · ignored             (a line for each stripe; a float's bits likewise)
//!     gauge         value, time when it was set in ms (0: never)
//!     calls         hits, bytes, nanoseconds              (a line for each stripe)
//!     histogram     sum, min, max · · · · ignored; then 128 buckets whose sum is the count
//!     points        nothing: they are in the ring
//! ring              only in lanes for points: 2048 slots of sequence, time, value, offset of the series
//! MPI state         only in lanes of MPI programs, at the end of the file: see `mpi_state`
//! ```
//!
//! Guarantees of the writer: series are appended and never change or disappear; the published
//! length is stored after what it covers. After `fork`, the child's first update creates its own
//! lanes, with the same series at the same addresses and zeroed slots. `exec` ends a lane; closing
//! descriptors does not, because there are none: the mapping holds the lock. Updates are safe in
//! signal handlers; creating a series is not.
//!
//! Visible side effects: a mapping per lane, and one more page; a child of `fork` that counts
//! nothing holds its parent's mapping, so that the parent's lane appears locked until both are gone
//! (which is why [`reader::LaneFile::is_ended`] checks the process as well); a user who truncates
//! the file of an own running program kills that program.

mod atomic;
mod bucket;
mod cells;
mod clock;
mod fork_guard;
mod handles;
mod identity;
mod lane_list;
mod lane_mapping;
mod layout;
#[cfg(feature = "loom")]
#[doc(hidden)]
pub mod model;
pub mod mpi_state;
mod own_copies;
pub mod private_directory;
mod process_lanes;
pub mod reader;
mod ring;
mod series_spec;
mod stale_lanes;
mod writer_config;
mod writer_directory;
mod writer_lane;

pub use bucket::{BUCKETS, bucket_bound};
pub use clock::{monotonic_ns, now_ms};
pub use handles::{
    Calls, Counter, FloatCounter, Gauge, Handle, Histogram, Points, RawHandle, StripedCounter,
    Timer,
};
pub use identity::{job_id, rank};
pub use lane_list::{LANE_LIST_VARIABLE, lane_list_entries};
pub use layout::{
    Aggregation, FIRST_LANE_BYTES, LABELS_MAX, LANE_BYTES_MAX, LaneKind, TEXT_BYTES_MAX,
};
pub use process_lanes::{ProcessLanes, process_lanes};
pub use series_spec::{CreateError, LaneSeriesSpec};
pub use stale_lanes::STALE_LANES_MAX;
pub use writer_directory::{
    SYSTEM_DIRECTORY, guests_directory, is_disabled, lane_directory, user_directories,
};
