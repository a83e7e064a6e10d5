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
mod kernel;
mod machine_files;
mod markdown;
mod memory;
mod mounts;
mod network;
mod redact;
mod redacted_config;
mod smbios;
mod snapshot;
mod snapshot_store;
mod snapshot_worker;
mod timestamp;

pub use cgroup::cgroup_memory_limit;
pub use cloud::{CloudEvent, CloudFacts, CloudInfo, CloudProvider};
pub use config::SnapshotConfig;
pub use environment::ProcessEnvironment;
pub use machine_files::{MachineFiles, UnreadablePath};
pub use redacted_config::RedactedConfig;
pub use snapshot::{SNAPSHOT_FORMAT, Snapshot, SnapshotOptions};
pub use snapshot_store::{SNAPSHOTS_MAX, SnapshotStoreError};
pub use snapshot_worker::{SnapshotStatus, SnapshotWorker};
pub use timestamp::Timestamp;
