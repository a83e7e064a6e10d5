//! The snapshot: what this machine is, on one page. Processors, memory, kernel, mounts, disks, networks, GPUs,
//! limits, the cloud, the job, and what the agent runs with.
//!
//! [`Subject::take`] reads a machine; [`Keeper`] does so for an agent, again and again, and stores what changed.
//! One file per part of the machine; each has a struct that is its part of the JSON, whose keys are
//! documented in docs/protocols.md.
//!
//! Two promises. What is absent is quiet, and what may not be read is named in [`Snapshot::unreadable`]: nothing
//! fails. And no secret passes: environment, metadata, mount options and the kernel's command line go
//! through lists of what may be shown, never of what may not.

mod azure_batch;
mod cgroup;
mod cloud;
mod command_line;
mod config;
mod configuration;
mod cpu;
mod dimms;
mod disks;
mod environment;
mod firmware;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod gpus;
mod interconnects;
pub mod job;
mod keeper;
mod kernel;
mod machine;
mod memory;
mod moment;
mod mounts;
mod network;
mod page;
mod redact;
mod shelf;
mod smbios;
mod snapshot;

pub use cgroup::cgroup_memory_limit;
pub use cloud::{Cloud, Event, Facts, Provider};
pub use config::SnapshotConfig;
pub use configuration::Configuration;
pub use environment::Environment;
pub use keeper::{Keeper, Status};
pub use machine::{Machine, Unreadable};
pub use moment::Moment;
pub use shelf::{KEPT_MAX, ShelfError};
pub use snapshot::{FORMAT, Snapshot, Subject};
