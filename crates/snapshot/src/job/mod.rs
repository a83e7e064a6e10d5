//! Detects the batch job of a process: from the scheduler's environment variables, else from the
//! path of its cgroup. Pure functions, used for the agent itself, for wrapped programs and for the
//! peers of a socket.

mod cgroup;
mod schedulers;
mod slurm_job_id;

use serde::Serialize;

pub use cgroup::{flux_job_id, job_cgroup};
use schedulers::SCHEDULERS;
pub(crate) use slurm_job_id::resolve_slurm_job_id;

/// Longer values are truncated: environment variables are set by users.
const TEXT_CHARS_MAX: usize = 256;

/// A job, with the fields that its scheduler provides.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Job {
    /// `slurm`, `pbs`, `lsf`, `flux`, `cobalt`, `grid-engine`, `htcondor`, `aws-batch`,
    /// `google-batch`, `azure-batch`, `tes`, `kubernetes`, `ecs`; `pegel` where $PEGEL_JOB names
    /// it.
    pub scheduler: &'static str,
    pub id: String,
    /// Slurm's alternative identifier of the job, from 26.05 on. Also used as `id` if the number is
    /// unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sluid: Option<String>,
    /// `environment` or `cgroup`.
    pub from: &'static str,
    pub name: Option<String>,
    pub step: Option<String>,
    pub task: Option<String>,
    pub array_id: Option<String>,
    pub array_index: Option<String>,
    /// Number of earlier starts, or of this attempt, depending on the scheduler.
    pub attempt: Option<String>,
    pub rank: Option<u32>,
    pub local_rank: Option<u32>,
    pub ranks: Option<u32>,
    pub nodes: Option<u32>,
    pub cluster: Option<String>,
    pub queue: Option<String>,
    pub account: Option<String>,
}

/// Variables with the MPI rank. Those of launchers come before those of schedulers, which may
/// describe the enclosing script.
#[rustfmt::skip]
const RANK: &[&str] = &[
    "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PALS_RANKID", "FLUX_TASK_RANK", "JSM_NAMESPACE_RANK",
    "MV2_COMM_WORLD_RANK", "SLURM_PROCID",
];
#[rustfmt::skip]
const LOCAL_RANK: &[&str] = &[
    "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PALS_LOCAL_RANKID", "FLUX_TASK_LOCAL_ID",
    "JSM_NAMESPACE_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID",
];
const RANKS: &[&str] = &[
    "OMPI_COMM_WORLD_SIZE",
    "PMI_SIZE",
    "FLUX_JOB_SIZE",
    "JSM_NAMESPACE_SIZE",
    "SLURM_NTASKS",
    "BATCH_TASK_COUNT",
];
const NODES: &[&str] = &[
    "SLURM_JOB_NUM_NODES",
    "FLUX_JOB_NNODES",
    "PBS_NUM_NODES",
    "COBALT_JOBSIZE",
    "AWS_BATCH_JOB_NUM_NODES",
];

/// A lookup in an environment: returns the value of a variable, if it is set.
pub type VariableLookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Returns the job of a process with this environment and this content of `/proc/PID/cgroup`.
pub fn detect_job(environment: VariableLookup<'_>, cgroup: &str) -> Option<Job> {
    let value = |name: &str| sanitize(environment(name)?);
    let found = SCHEDULERS
        .iter()
        .find_map(|scheduler| scheduler.detect(&value));
    let mut job = found.or_else(|| cgroup::job_from_cgroups(cgroup))?;
    let first = |names: &[&str]| {
        let mut values = names.iter().filter_map(|name| value(name));
        values.find_map(|value| value.parse().ok())
    };
    job.rank = first(RANK);
    job.local_rank = first(LOCAL_RANK);
    job.ranks = first(RANKS);
    job.nodes = first(NODES);
    if job.scheduler == "slurm" && job.sluid.is_none() {
        job.sluid = value("SLURM_JOB_SLUID");
    }
    if job.array_index.is_none() && job.scheduler == "pbs" {
        job.array_index = array_index_in(&job.id);
    }
    Some(job)
}

/// Returns the array index in a PBS job id such as `12[3].server`.
fn array_index_in(id: &str) -> Option<String> {
    let (_, rest) = id.split_once('[')?;
    let (index, _) = rest.split_once(']')?;
    (!index.is_empty()).then(|| index.to_owned())
}

/// Removes control characters, which could affect a terminal; `None` if nothing is left.
fn sanitize(text: String) -> Option<String> {
    let text = text
        .chars()
        .filter(|c| !c.is_control())
        .take(TEXT_CHARS_MAX);
    let text = text.collect::<String>().trim().to_owned();
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests;
