//! The processes of a task: which belong to it, what they used, when they ended, and why.
//!
//! [`TaskScope`] finds the task's processes: its own cgroup, if it has one, and the descendants
//! of its root process. [`TaskWatch`] samples them about once a second, reports OOM kills and the
//! end of the task, and describes the task after an OOM kill or a failure
//! ([`TaskWatch::autopsy`]). The caller provides the thread. Nothing here fails: what cannot be
//! read is absent.
//!
//! All usage counts from [`TaskWatch::start`]: earlier usage of the cgroup and of the processes is
//! subtracted. What is exact, and what is sampled:
//!
//! - `memory_bytes`: of an own cgroup, exact while it exists: the kernel's peak, if it was
//!   reached since the start or could be reset then (Linux 6.12); else the largest sampled usage.
//!   Of a process tree, the largest `VmHWM` of one process: exact until the last sample that saw
//!   the process.
//! - `rss_sum_bytes`, `processes`: sampled.
//! - CPU time: of an own cgroup, exact while it exists. Of a process tree, exact for live
//!   processes and for the children that they waited for; a process that no member of the tree
//!   waits for counts up to its last sample.
//! - `read_bytes`, `written_bytes`: as CPU time; in a process tree, only of processes that this
//!   user may inspect. `rchar`, `wchar`: always of the process tree, cgroups do not count them.
//! - `oom_kills`: of an own cgroup, exact while it exists; else unknown.
//!
//! A cgroup that is removed takes its counters along, as a process does: then the last sample
//! counts. A process that is reparented (its parent ended) before a sample saw it is found only in
//! an own cgroup.

mod autopsy;
mod autopsy_limits;
mod autopsy_processes;
mod cgroup_usage;
mod descriptors;
mod exit_info;
mod own_cgroup;
mod peaks;
mod process_tree;
mod scope;
mod task_process;
mod watch;

pub use autopsy::AutopsyCause;
pub use exit_info::TaskExit;
pub use peaks::{LargestProcess, PeakSource, TaskPeaks};
pub use scope::{ProcessKey, TaskScope};
pub use watch::{TaskCheckpoint, TaskEvents, TaskLife, TaskWatch};

#[cfg(test)]
mod tests;
