//! The collectors, one file each.
//!
//! A collector file holds the families it publishes, an `ENTRY` for the registry, a pure parser
//! over bytes and the code that puts parsed values into the slots of its group. The sampler opens
//! each enabled collector once and then calls it for every tick it is due. A collector that runs on
//! the sampler's thread must never block and must not allocate per sample; one whose source may
//! block runs on a thread of its own. Missing hardware is reported as absent, malformed input as an
//! error with path and line; no input may cause a panic. The first paragraph of each file becomes
//! its description in `docs/metrics.md`.

pub mod agent;
mod agent_process;
mod agent_self_metrics;
pub mod arp;
pub mod bonding;
pub mod buddyinfo;
pub mod cgroup;
mod cgroup_families;
mod cgroup_jobs;
mod cgroup_v1;
mod cgroup_v2;
pub mod clocksource;
pub mod conntrack;
pub mod cpu;
pub mod cpufreq;
pub mod cray;
pub mod disk;
mod disk_udev_info;
pub mod dmi;
pub mod edac;
pub mod entropy;
pub mod filefd;
pub mod filesystem;
pub mod gpu;
pub mod hwmon;
pub mod infiniband;
mod infiniband_families;
pub mod load;
pub mod lustre;
pub mod md;
mod mdstat;
pub mod memory;
mod mount_prober;
pub mod mountstats;
mod mountstats_parse;
pub mod netclass;
pub mod netstat;
pub mod network;
pub mod nfs;
pub mod nfsd;
pub mod numa;
pub mod nvidia;
pub mod nvme;
mod nvme_smart;
pub mod os;
pub mod power_supply;
pub mod pressure;
pub mod process_states;
pub mod processes;
pub mod rapl;
mod rpc;
pub mod schedstat;
pub mod selinux;
pub mod slingshot;
pub mod sockstat;
pub mod softnet;
pub mod stat;
pub mod swap;
#[cfg(test)]
pub(crate) mod testing;
pub mod thermal_zone;
pub mod timex;
pub mod top_processes;
pub mod udp_queues;
pub mod uname;
pub mod vmstat;

use crate::CollectorEntry;

/// All collectors. `agent` comes last, so that its values include the current pass.
pub static REGISTRY: &[&CollectorEntry] = &[
    &cpu::ENTRY,
    &stat::ENTRY,
    &memory::ENTRY,
    &buddyinfo::ENTRY,
    &load::ENTRY,
    &pressure::ENTRY,
    &disk::ENTRY,
    &network::ENTRY,
    &vmstat::ENTRY,
    &filesystem::ENTRY,
    &nvidia::ENTRY,
    &hwmon::ENTRY,
    &thermal_zone::ENTRY,
    &cpufreq::ENTRY,
    &numa::ENTRY,
    &rapl::ENTRY,
    &cray::ENTRY,
    &infiniband::ENTRY,
    &slingshot::ENTRY,
    &edac::ENTRY,
    &nvme::ENTRY,
    &gpu::ENTRY,
    &cgroup::ENTRY,
    &top_processes::ENTRY,
    &netstat::ENTRY,
    &sockstat::ENTRY,
    &softnet::ENTRY,
    &udp_queues::ENTRY,
    &arp::ENTRY,
    &netclass::ENTRY,
    &bonding::ENTRY,
    &conntrack::ENTRY,
    &processes::ENTRY,
    &process_states::ENTRY,
    &schedstat::ENTRY,
    &swap::ENTRY,
    &filefd::ENTRY,
    &entropy::ENTRY,
    &md::ENTRY,
    &nfs::ENTRY,
    &nfsd::ENTRY,
    &mountstats::ENTRY,
    &lustre::ENTRY,
    &timex::ENTRY,
    &clocksource::ENTRY,
    &uname::ENTRY,
    &os::ENTRY,
    &selinux::ENTRY,
    &dmi::ENTRY,
    &power_supply::ENTRY,
    &agent::ENTRY,
];
