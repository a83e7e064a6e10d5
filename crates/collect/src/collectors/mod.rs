//! One file per collector. Each has a pure parser over bytes and an `ENTRY` for the registry.

pub mod agent;
mod agent_own;
mod agent_process;
pub mod cpu;
pub mod disk;
mod disk_info;
pub mod filesystem;
mod filesystem_survey;
pub mod load;
pub mod memory;
pub mod network;
pub mod pressure;
pub mod stat;
#[cfg(test)]
pub(crate) mod testing;
pub mod vmstat;
