//! One job, or one step of a job, on this node.

use pegel_metric::Millis;
use serde::{Deserialize, Serialize};

use crate::cpu_ranges::CpuRanges;
use crate::job_end::JobEnd;

/// Longer names are refused: they come from programs and from the names of directories.
pub(crate) const NAME_BYTES_MAX: usize = 256;

/// How a job was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobOrigin {
    /// A scheduler created a cgroup for it.
    Cgroup,
    /// A program with lanes, or `pegel run`, named it. The name is a claim of the user.
    Process,
}

/// A job or job step. Unknown values are `None`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobInterval {
    /// The scheduler's id of the job: Slurm's number, or its SLUID while the number is unknown.
    pub job: Box<str>,
    /// `None` for the job itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sluid: Option<Box<str>>,
    /// `slurm`, `pbs`, `lsf`, …; `pegel` for jobs that programs name.
    pub scheduler: Box<str>,
    pub origin: JobOrigin,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// The path below the root of the hierarchy; empty if the job has no cgroup of its own.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub cgroup: Box<str>,
    /// Tells a cgroup from a later one at the same path; 0 if unknown.
    #[serde(default)]
    pub inode: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CpuRanges>,
    /// The values of the label `gpu` of the GPUs that the job holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<Box<[Box<str>]>>,
    /// In bytes; `None` if there is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<u64>,
    pub begin: Millis,
    /// `None` while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<Millis>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<JobEnd>,
    /// In bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_peak: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_seconds: Option<f64>,
    /// Time in which its GPUs were busy, summed over them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_seconds: Option<f64>,
    /// When the job was last seen running.
    pub seen: Millis,
}

impl JobInterval {
    /// Creates the interval of a job that runs since `begin`.
    pub(crate) fn new(job: &str, scheduler: &str, origin: JobOrigin, begin: Millis) -> JobInterval {
        JobInterval {
            job: job.into(),
            step: None,
            sluid: None,
            scheduler: scheduler.into(),
            origin,
            uid: None,
            cgroup: "".into(),
            inode: 0,
            cpus: None,
            gpus: None,
            memory_limit: None,
            begin,
            end: None,
            ended: None,
            memory_peak: None,
            cpu_seconds: None,
            gpu_seconds: None,
            seen: begin,
        }
    }

    pub fn is_running(&self) -> bool {
        self.end.is_none()
    }

    /// Returns whether it ran at some time in a range, whose ends are included.
    pub fn overlaps(&self, start: Millis, end: Millis) -> bool {
        self.begin <= end && self.end.is_none_or(|own_end| own_end >= start)
    }

    /// Returns whether this is the id of the job: its number or SLUID, or `JOB.STEP` for a step.
    pub fn has_id(&self, id: &str) -> bool {
        match &self.step {
            None => self.is_of_job(id),
            Some(step) => { id.rsplit_once('.') }
                .is_some_and(|(job, of)| *of == **step && self.is_of_job(job)),
        }
    }

    /// Returns whether this is a job with this id, or a step of it.
    pub(crate) fn is_of_job(&self, id: &str) -> bool {
        // Flux writes ids with a sign that few can type.
        let is_flux = *self.scheduler == *"flux" && *self.job == *id.replace('ƒ', "f");
        *self.job == *id || self.sluid.as_deref() == Some(id) || is_flux
    }

    /// Returns the time of the interval until its end or `now`, in seconds.
    pub fn seconds(&self, now: Millis) -> f64 {
        let end = self.end.unwrap_or(now);
        (end - self.begin).max(0) as f64 / 1000.0
    }
}

/// Returns a name of a job if it is usable: bounded, and without control characters.
pub(crate) fn usable_name(name: &str) -> Option<&str> {
    let is_usable =
        !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.chars().any(char::is_control);
    is_usable.then_some(name)
}
