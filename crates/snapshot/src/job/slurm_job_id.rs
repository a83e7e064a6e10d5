//! Finds the number of a Slurm job whose cgroup names only its SLUID, in the environment of the
//! cgroup's processes.

use pegel_metric::slurm::{is_number, job_id_in};
use pegel_plain_file::read_plain;

use super::Job;
use pegel_machine::MachineFiles;
use pegel_machine::cgroup_lines;

/// Maximum number of processes whose environment is read. All processes of a job have the same
/// number.
const PROCESSES_MAX: usize = 16;
const BYTES_MAX: u64 = 1 << 20;

/// Replaces the SLUID in `job.id` by the number, if a process of the job is readable. `cgroups` is
/// the content of `/proc/self/cgroup`.
pub(crate) fn resolve_slurm_job_id(job: &mut Job, machine: &MachineFiles, cgroups: &str) {
    let Some(sluid) = job.sluid.clone().filter(|sluid| *sluid == job.id) else {
        return;
    };
    let mut unified = cgroup_lines(cgroups).filter(|(controllers, _)| controllers.is_empty());
    if let Some((_, path)) = unified.next() {
        let processes = machine.text(format!("sys/fs/cgroup{path}/cgroup.procs"));
        let processes = processes.unwrap_or_default();
        let processes = processes.lines().filter(|process| is_number(process));
        let number = processes.take(PROCESSES_MAX).find_map(|process| {
            // Not through `MachineFiles::bytes`, which would report processes of other users as
            // unreadable.
            let path = machine.resolve(format!("proc/{process}/environ"));
            let environment = read_plain(&path, BYTES_MAX).ok()?;
            job_id_in(&environment, &sluid).map(str::to_owned)
        });
        if let Some(number) = number {
            job.id = number;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use pegel_testkit::TempDir;

    use super::*;
    use crate::job::detect_job;

    const CGROUP: &str = "0::/system.slice/slurmstepd.scope/s06JQ5T8XK2M9R/step_0/user/task_0\n";

    fn machine(environment: &str) -> (TempDir, MachineFiles) {
        let dir = TempDir::new();
        let (_, path) = cgroup_lines(CGROUP).next().expect("a path");
        let group = dir.join(format!("sys/fs/cgroup{path}"));
        fs::create_dir_all(&group).expect("made");
        fs::write(group.join("cgroup.procs"), "4\n18\n").expect("written");
        fs::create_dir_all(dir.join("proc/18")).expect("made");
        fs::write(dir.join("proc/18/environ"), environment).expect("written");
        let machine = MachineFiles::at(dir.path());
        (dir, machine)
    }

    fn job(environment: &str) -> Job {
        let (_dir, machine) = machine(environment);
        let mut job = detect_job(&|_| None, CGROUP).expect("a job");
        resolve_slurm_job_id(&mut job, &machine, CGROUP);
        assert!(machine.unreadable().is_empty());
        job
    }

    #[test]
    fn the_number_is_found_in_a_process_of_the_same_job() {
        let found = job("SLURM_JOB_ID=4711\0SLURM_JOB_SLUID=s06JQ5T8XK2M9R\0");
        assert_eq!(found.id, "4711");
        assert_eq!(found.sluid.as_deref(), Some("s06JQ5T8XK2M9R"));
    }

    #[test]
    fn the_number_of_another_job_is_ignored() {
        for environment in [
            "",
            "SLURM_JOB_ID=4711\0",
            "SLURM_JOB_ID=4711\0SLURM_JOB_SLUID=s0000000000000\0",
            "SLURM_JOB_ID=x\0SLURM_JOB_SLUID=s06JQ5T8XK2M9R\0",
        ] {
            assert_eq!(job(environment).id, "s06JQ5T8XK2M9R", "{environment:?}");
        }
    }
}
