//! Jobs in cgroups of this machine's kernel.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use pegel_testkit::{ChildProcess, eventually, need_hardware};
use serde_json::Value;

use super::{job_in_state, need_root};
use crate::PEGEL;

/// A cgroup of a simulated Slurm, removed at the end.
struct RealJobCgroup {
    /// The directories from the outermost to the job's.
    directories: Vec<PathBuf>,
}

impl RealJobCgroup {
    /// Creates a cgroup; `None`, with the skip recorded, if the kernel does not permit it.
    #[track_caller]
    fn new(mount: &str, parts: &[&str]) -> Option<RealJobCgroup> {
        need_root()?;
        let mut path = PathBuf::from(mount);
        let mut group = RealJobCgroup {
            directories: Vec::new(),
        };
        for part in parts {
            path.push(part);
            if path.exists() {
                continue;
            }
            let made = fs::create_dir(&path);
            need_hardware(
                made.is_ok(),
                &format!("cgroups that can be created in {mount}"),
            )?;
            group.directories.push(path.clone());
        }
        Some(group)
    }

    fn job(&self) -> &PathBuf {
        self.directories.last().expect("the job is new")
    }

    fn remove_job(&mut self) {
        let job = self.directories.pop().expect("it was created");
        eventually("the cgroup is empty", || fs::remove_dir(&job));
    }
}

impl Drop for RealJobCgroup {
    fn drop(&mut self) {
        for directory in self.directories.iter().rev() {
            // Another test may use the outer ones.
            let _ = fs::remove_dir(directory);
        }
    }
}

/// Runs a process in a cgroup and returns what the agent knows about the job at its end.
fn run_job(mut group: RealJobCgroup, id: &str) {
    let agent = PEGEL.agent().start();
    job_in_state(&agent, id, "running");
    let mut command = Command::new("sh");
    let script =
        "echo $$ >\"$0/cgroup.procs\"; i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; sleep 3";
    command.args(["-c", script]).arg(group.job());
    let busy = ChildProcess::start(&mut command);
    // A hierarchy without controllers, as beside v1, has CPU time only, and that of the memory
    // controller has memory only.
    let has_figures = |job: &Value| {
        job["cpu_seconds"]
            .as_f64()
            .is_some_and(|seconds| seconds > 0.0)
            || job["memory_peak"].as_u64().is_some_and(|bytes| bytes > 0)
    };
    eventually("the job has a user and figures", || {
        let job = job_in_state(&agent, id, "running");
        let is_complete = job["uid"] == 0 && has_figures(&job);
        is_complete.then_some(()).ok_or(job)
    });
    drop(busy);
    group.remove_job();
    let job = job_in_state(&agent, id, "ended");
    assert!(has_figures(&job), "{job}");
}

#[test]
fn a_job_in_a_real_cgroup_v1_is_seen_and_its_figures_are_kept() {
    let id = format!("91{}", std::process::id());
    let (slurm, job) = (
        format!("slurm_pegel{}", std::process::id()),
        format!("job_{id}"),
    );
    let parts = [slurm.as_str(), "uid_0", &job];
    if let Some(group) = RealJobCgroup::new("/sys/fs/cgroup/memory", &parts) {
        run_job(group, &id);
    }
}

#[test]
fn a_job_in_a_real_cgroup_v2_is_seen_and_its_figures_are_kept() {
    let unified = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
    let is_v2 = |mount: &&str| PathBuf::from(mount).join("cgroup.controllers").exists();
    let mount = unified.iter().find(|mount| is_v2(mount));
    if need_hardware(mount.is_some(), "cgroups v2").is_none() {
        return;
    }
    let id = format!("92{}", std::process::id());
    let scope = format!("pegel{}_slurmstepd.scope", std::process::id());
    let parts = ["system.slice", &scope, &format!("job_{id}")];
    if let Some(group) = RealJobCgroup::new(mount.expect("found"), &parts) {
        run_job(group, &id);
    }
}
