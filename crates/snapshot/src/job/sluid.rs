//! The number of a Slurm job whose cgroup has only its SLUID, from the environment of processes in the same cgroup.

use pegel_config::read_plain;
use pegel_metric::slurm::{is_number, number_in};

use super::Job;
use crate::cgroup::line;
use crate::machine::Machine;

/// Processes whose environment is read. All of a job have the same number.
const PROCESSES_MAX: usize = 16;
const BYTES_MAX: u64 = 1 << 20;

/// Replaces the SLUID by the number, where a process of the job can be read. `cgroups` is `/proc/self/cgroup`.
pub(crate) fn find_number(job: &mut Job, machine: &Machine, cgroups: &str) {
    let Some(sluid) = job.sluid.clone().filter(|sluid| *sluid == job.id) else {
        return;
    };
    let unified = cgroups.lines().filter_map(line);
    let paths = unified.filter(|(controllers, _)| controllers.is_empty());
    for (_, path) in paths.take(1) {
        let processes = machine.text(format!("sys/fs/cgroup{path}/cgroup.procs"));
        let processes = processes.unwrap_or_default();
        let processes = processes.lines().filter(|process| is_number(process));
        let number = processes.take(PROCESSES_MAX).find_map(|process| {
            // Not through the machine: that a process of another user cannot be read is no fault of the node.
            let path = machine.place(format!("proc/{process}/environ"));
            let environment = read_plain(&path, BYTES_MAX).ok()?;
            number_in(&environment, &sluid).map(str::to_owned)
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
    use crate::job::identity;

    const CGROUP: &str = "0::/system.slice/slurmstepd.scope/s06JQ5T8XK2M9R/step_0/user/task_0\n";

    fn machine(environment: &str) -> (TempDir, Machine) {
        let dir = TempDir::new();
        let (_, path) = line(CGROUP.trim_end()).expect("a path");
        let group = dir.join(format!("sys/fs/cgroup{path}"));
        fs::create_dir_all(&group).expect("made");
        fs::write(group.join("cgroup.procs"), "4\n18\n").expect("written");
        fs::create_dir_all(dir.join("proc/18")).expect("made");
        fs::write(dir.join("proc/18/environ"), environment).expect("written");
        let machine = Machine::at(dir.path());
        (dir, machine)
    }

    fn job(environment: &str) -> Job {
        let (_dir, machine) = machine(environment);
        let mut job = identity(&|_| None, CGROUP).expect("a job");
        find_number(&mut job, &machine, CGROUP);
        assert_eq!(machine.unreadable(), []);
        job
    }

    #[test]
    fn a_process_of_the_same_job_tells_its_number() {
        let found = job("SLURM_JOB_ID=4711\0SLURM_JOB_SLUID=s06JQ5T8XK2M9R\0");
        assert_eq!(found.id, "4711");
        assert_eq!(found.sluid.as_deref(), Some("s06JQ5T8XK2M9R"));
    }

    #[test]
    fn what_another_job_left_in_an_environment_does_not_count() {
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
