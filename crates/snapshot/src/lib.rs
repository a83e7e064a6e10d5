//! A snapshot describes the machine: processors, memory, kernel, mounts, disks, networks, GPUs,
//! cgroup limits, cloud, job, and the configuration of the agent.
//!
//! [`SnapshotOptions::take`] reads a machine once. [`SnapshotWorker`] does so periodically in an
//! agent and stores snapshots that differ from the previous one. Each part of the machine has its
//! own file with a struct that defines its part of the JSON; docs/protocols.md documents the keys.
//!
//! Guarantees:
//! - Reading a snapshot never fails. Absent files are skipped, and files without read permission
//!   are listed in [`Snapshot::unreadable`].
//! - No secret is included. Environment, metadata, mount options and the kernel's command line pass
//!   allow-lists, never deny-lists.

mod azure_batch;
mod cgroup;
mod cloud;
mod command_line;
mod cpu;
mod dimms;
mod disks;
mod environment;
mod firmware;
#[doc(hidden)] // For fuzz/ only.
pub mod fuzzing;
mod gpus;
mod interconnects;
pub mod job;
mod kernel;
mod markdown;
mod memory;
mod mounts;
mod network;
mod once_inputs;
mod redacted_config;
mod settings;
mod smbios;
mod snapshot;
mod snapshot_store;
mod snapshot_worker;
mod timestamp;

pub use cgroup::cgroup_memory_limit;
pub use cloud::{CloudEvent, CloudFacts, CloudInfo, CloudProvider};
pub use environment::ProcessEnvironment;
pub use once_inputs::{OnceInputValues, OnceInputs};
pub use redacted_config::RedactedConfig;
pub use settings::SnapshotSettings;
pub use snapshot::{SNAPSHOT_FORMAT, Snapshot, SnapshotOptions, UnreadablePath};
pub use snapshot_store::{SNAPSHOTS_MAX, SnapshotStoreError};
pub use snapshot_worker::{SnapshotStatus, SnapshotWorker};
pub use timestamp::Timestamp;
