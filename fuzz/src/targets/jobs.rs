//! The file of jobs, and the paths of cgroups that name them.

use pegel_jobs::fuzzing;

use super::Target;
use crate::memory::bounded;

pub(super) const JOB_FILE: Target = Target {
    name: "job_file",
    run: job_file,
    dictionary: &[
        b"\"number\":1",
        b"\"job\":\"17\"",
        b"\"step\":\"batch\"",
        b"\"origin\":\"cgroup\"",
        b"\"scheduler\":\"slurm\"",
        b"\"cpus\":\"0-3,8\"",
        b"\"gpus\":[\"0\"]",
        b"\"ended\":\"exit 1\"",
        b"\"begin\":1700000000000",
        b"\"seen\":1",
        b"\n",
    ],
    seeds: || {
        let seeds = fuzzing::seeds().into_iter();
        seeds.map(|(_, bytes)| bytes).collect()
    },
};

pub(super) const JOB_PATH: Target = Target {
    name: "job_path",
    run: job_path,
    dictionary: &[
        b"/system.slice/slurmstepd.scope/job_7/step_0",
        b"/slurm_n1/uid_1000/job_7",
        b"s06JQ5T8XK2M9R",
        b"/pbs_jobs.service/jobs/12[3].server",
        b"/lsf/alps/job.7.4711.17",
        b"/user.slice/user-5.slice/user@5.service/app.slice/imp-shell-0-fA4V.service",
        b"0-3,8",
    ],
    seeds: || {
        [
            "/system.slice/n1_slurmstepd.scope/s06JQ5T8XK2M9R/step_batch",
            "/slurm/uid_1000/job_7/step_0",
            "0-3,8,16-31",
        ]
        .map(|text| text.as_bytes().to_vec())
        .to_vec()
    },
};

fn job_file(bytes: &[u8]) {
    bounded(64 << 20, || fuzzing::job_file(bytes));
}

fn job_path(bytes: &[u8]) {
    bounded(16 << 20, || fuzzing::cgroup_path(bytes));
}
