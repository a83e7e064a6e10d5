//! Jobs as intervals: which job ran on this node, from when to when, on which CPUs and GPUs, and
//! what it used.
//!
//! ```text
//! scheduler cgroups ──inotify──► CgroupJobs  ─┐
//! lanes, `pegel run -j` ────────► ProcessJobs ─┼─► JobTable ──► jobs.log
//!                                              │      ▲
//!                                          JobWorker  └── readers: /api/v1/jobs, job=ID, page
//! ```
//!
//! [`JobWorker`] is one thread. It waits for changes of the cgroup directories, reads what running
//! jobs use once a second, and never touches the sampler. [`Jobs`] is the handle for readers. A job
//! is never a label of a series: queries are restricted by the interval ([`JobScope`]), so that
//! the number of series does not depend on the number of jobs.
//!
//! Guarantees: the table is bounded by age and count; a job that readers saw is in the file, so
//! that a kill of the agent loses no interval; a damaged file costs the damaged records only.

mod cgroup_figures;
mod cgroup_hierarchies;
mod cgroup_jobs;
mod cgroup_paths;
mod cgroup_processes;
mod cgroup_watcher;
mod cpu_ranges;
#[doc(hidden)] // For fuzz/ only.
pub mod fuzzing;
mod interval;
mod job_end;
mod job_file;
mod jobs;
mod process_jobs;
mod scope;
mod settings;
mod table;
mod worker;

pub use cpu_ranges::CpuRanges;
pub use interval::{JobInterval, JobOrigin};
pub use job_end::JobEnd;
pub use job_file::JOB_FILES;
pub use jobs::{JobCounts, JobReport, JobReportError, Jobs};
pub use process_jobs::LaneJob;
pub use scope::JobScope;
pub use settings::JobsSettings;
pub use table::JobFilter;
pub use worker::{GpuSeconds, JobWorker, JobWorkerOptions};
