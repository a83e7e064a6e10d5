//! The environment variables of each scheduler, as a table.

use super::Job;

/// The variables of a scheduler. A field lists several names if versions differ; the first that is
/// set is used.
pub(super) struct Scheduler {
    name: &'static str,
    id: &'static [&'static str],
    /// One of these must be set as well, if the variable of the id has a generic name such as
    /// `JOB_ID`.
    requires_any: &'static [&'static str],
    job_name: &'static [&'static str],
    step: &'static [&'static str],
    task: &'static [&'static str],
    array_id: &'static [&'static str],
    array_index: &'static [&'static str],
    attempt: &'static [&'static str],
    cluster: &'static [&'static str],
    queue: &'static [&'static str],
    account: &'static [&'static str],
}

const EMPTY: Scheduler = Scheduler {
    name: "",
    id: &[],
    requires_any: &[],
    job_name: &[],
    step: &[],
    task: &[],
    array_id: &[],
    array_index: &[],
    attempt: &[],
    cluster: &[],
    queue: &[],
    account: &[],
};

/// All schedulers, in order of detection: those that run inside another come first.
pub(super) const SCHEDULERS: &[Scheduler] = &[
    Scheduler {
        name: "pegel",
        id: &["PEGEL_JOB"],
        ..EMPTY
    },
    Scheduler {
        name: "flux",
        id: &["FLUX_JOB_ID"],
        ..EMPTY
    },
    Scheduler {
        name: "slurm",
        id: &["SLURM_JOB_ID", "SLURM_JOBID"],
        job_name: &["SLURM_JOB_NAME"],
        step: &["SLURM_STEP_ID", "SLURM_STEPID"],
        array_id: &["SLURM_ARRAY_JOB_ID"],
        array_index: &["SLURM_ARRAY_TASK_ID"],
        attempt: &["SLURM_RESTART_COUNT"],
        cluster: &["SLURM_CLUSTER_NAME"],
        queue: &["SLURM_JOB_PARTITION"],
        account: &["SLURM_JOB_ACCOUNT"],
        ..EMPTY
    },
    Scheduler {
        name: "pbs",
        id: &["PBS_JOBID"],
        job_name: &["PBS_JOBNAME"],
        task: &["PBS_TASKNUM"],
        array_index: &["PBS_ARRAY_INDEX", "PBS_ARRAYID"],
        queue: &["PBS_QUEUE"],
        account: &["PBS_ACCOUNT"],
        ..EMPTY
    },
    Scheduler {
        name: "lsf",
        id: &["LSB_JOBID"],
        job_name: &["LSB_JOBNAME"],
        array_index: &["LSB_JOBINDEX"],
        queue: &["LSB_QUEUE"],
        account: &["LSB_PROJECT_NAME"],
        ..EMPTY
    },
    Scheduler {
        name: "cobalt",
        id: &["COBALT_JOBID"],
        ..EMPTY
    },
    Scheduler {
        name: "grid-engine",
        id: &["JOB_ID"],
        requires_any: &["SGE_TASK_ID", "SGE_ROOT", "SGE_CELL"],
        job_name: &["JOB_NAME"],
        array_index: &["SGE_TASK_ID"],
        attempt: &["RESTARTED"],
        queue: &["QUEUE"],
        ..EMPTY
    },
    Scheduler {
        name: "aws-batch",
        id: &["AWS_BATCH_JOB_ID"],
        array_index: &["AWS_BATCH_JOB_ARRAY_INDEX"],
        attempt: &["AWS_BATCH_JOB_ATTEMPT"],
        task: &["AWS_BATCH_JOB_NODE_INDEX"],
        cluster: &["AWS_BATCH_CE_NAME"],
        queue: &["AWS_BATCH_JQ_NAME"],
        ..EMPTY
    },
    Scheduler {
        name: "google-batch",
        id: &["BATCH_JOB_UID"],
        array_index: &["BATCH_TASK_INDEX"],
        attempt: &["BATCH_TASK_RETRY_ATTEMPT"],
        ..EMPTY
    },
    // Before azure-batch, on which it runs: its task name is more specific than the job of the
    // service.
    Scheduler {
        name: "tes",
        id: &["VM_TASK_NAME", "TES_TASK_NAME"],
        queue: &["AZ_BATCH_POOL_ID"],
        account: &["AZ_BATCH_ACCOUNT_NAME"],
        ..EMPTY
    },
    Scheduler {
        name: "azure-batch",
        id: &["AZ_BATCH_JOB_ID"],
        task: &["AZ_BATCH_TASK_ID"],
        queue: &["AZ_BATCH_POOL_ID"],
        account: &["AZ_BATCH_ACCOUNT_NAME"],
        ..EMPTY
    },
    Scheduler {
        name: "kubernetes",
        id: &["POD_UID", "POD_NAME"],
        requires_any: &["KUBERNETES_SERVICE_HOST"],
        job_name: &["POD_NAME"],
        array_index: &["JOB_COMPLETION_INDEX"],
        queue: &["POD_NAMESPACE"],
        ..EMPTY
    },
];

impl Scheduler {
    pub(super) fn detect(&self, value: &dyn Fn(&str) -> Option<String>) -> Option<Job> {
        let first = |names: &[&str]| {
            let mut values = names.iter().filter_map(|name| value(name));
            // Grid Engine and LSF set `undefined` if the job is not an array.
            values.find(|value| value != "undefined")
        };
        let id = first(self.id)?;
        if !self.requires_any.is_empty()
            && !self.requires_any.iter().any(|name| value(name).is_some())
        {
            return None;
        }
        let array_index =
            first(self.array_index).filter(|index| self.name != "lsf" || index != "0");
        Some(Job {
            scheduler: self.name,
            id,
            from: "environment",
            name: first(self.job_name),
            step: first(self.step),
            task: first(self.task),
            array_id: first(self.array_id),
            array_index,
            attempt: first(self.attempt),
            cluster: first(self.cluster),
            queue: first(self.queue),
            account: first(self.account),
            ..Job::default()
        })
    }
}
