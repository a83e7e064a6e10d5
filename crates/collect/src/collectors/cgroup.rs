//! Resource usage of the node's jobs by control group: CPU time, memory with its peak, I/O, tasks
//! and pressure, from `/sys/fs/cgroup` (version 1 and 2).
//!
//! Reads the group of the job in which the agent runs (or the agent's own group if it runs in no
//! job), and the groups of the Slurm and PBS jobs on this node. Runs on a thread of its own and
//! lists the groups again in every pass. At most `GROUPS_MAX` groups are read.

use std::path::PathBuf;

use pegel_machine::cgroup_lines;
use pegel_plain_file::read_plain;

use super::cgroup_families::{FAMILIES, JOB};
use super::cgroup_jobs::{SlurmJobIds, is_slurm_job, job_group};
use super::{cgroup_v1, cgroup_v2};
use crate::dynamic_series::SeriesWriter;
use crate::proc_parse::ProcParseError;
use crate::sysfs_dir::SysfsDir;
use crate::sysfs_walk::{SysfsWalk, open_walk};
use crate::{CollectorEntry, Context, OpenResult, Tier};

pub static ENTRY: CollectorEntry =
    CollectorEntry::threaded("cgroup", Tier::FiveSeconds, FAMILIES, open);

/// More than the jobs that a node runs at a time; further groups are ignored.
const GROUPS_MAX: usize = 64;
/// `/proc/self/cgroup` has one line for each hierarchy.
const SELF_CGROUP_BYTES_MAX: u64 = 1 << 20;

#[derive(Debug)]
struct CgroupWalk {
    self_cgroup: PathBuf,
    user_hz: f64,
    jobs: SlurmJobIds,
}

fn open(context: &Context) -> OpenResult {
    let walk = CgroupWalk {
        self_cgroup: context.host.proc.join("self/cgroup"),
        user_hz: context.host.user_hz as f64,
        jobs: SlurmJobIds::new(context.host.proc.clone()),
    };
    open_walk(context, "sys/fs/cgroup", walk)
}

impl SysfsWalk for CgroupWalk {
    fn walk(&mut self, mount: &SysfsDir, put: &mut SeriesWriter<'_>) -> Result<(), ProcParseError> {
        // Read in every pass: the agent may be moved to another group, and a job's group may be
        // created after the agent's start.
        let self_cgroup = read_plain(&self.self_cgroup, SELF_CGROUP_BYTES_MAX).unwrap_or_default();
        let own = AgentCgroups::parse(&String::from_utf8_lossy(&self_cgroup));
        // Hybrid systems mount version 2 beside version 1, usually without controllers.
        let unified = mount.subdir("unified");
        let second = unified.as_ref().unwrap_or(mount);
        if is_v2(second) {
            self.walk_v2(second, own.v2.as_deref(), put)?;
        }
        let Some(controllers) = cgroup_v1::CgroupV1Controllers::find(mount) else {
            return Ok(());
        };
        for group in find_groups(controllers.memory_root(), own.v1.as_deref(), &V1_JOB_PATHS) {
            put.set_current_path(&mount.path().join(group.trim_start_matches('/')));
            cgroup_v1::walk(&group, &controllers, self.user_hz, put)?;
        }
        Ok(())
    }
}

impl CgroupWalk {
    fn walk_v2(
        &mut self,
        root: &SysfsDir,
        own: Option<&str>,
        put: &mut SeriesWriter<'_>,
    ) -> Result<(), ProcParseError> {
        let groups = find_groups(root, own, &V2_JOB_PATHS);
        self.jobs.retain_groups(&groups);
        for group in groups {
            let folder = open_group(root, &group);
            // The root group is the whole node, except in a container, where it is an ordinary
            // group.
            let is_group =
                |folder: &SysfsDir| group != "/" || folder.unsigned("memory.current").is_some();
            if let Some(folder) = folder.filter(is_group) {
                put.set_current_path(folder.path());
                cgroup_v2::walk(&group, &folder, put)?;
                if let Some(id) = self.jobs.job_id(&group, &folder) {
                    put.set(&JOB, &[("cgroup", &group), ("jobid", &id)], 1.0)?;
                }
            }
        }
        Ok(())
    }
}

/// Only version 2 has the file `cgroup.controllers`.
fn is_v2(root: &SysfsDir) -> bool {
    root.bytes("cgroup.controllers").is_ok()
}

/// Opens a group below the root of its hierarchy.
pub(super) fn open_group(root: &SysfsDir, group: &str) -> Option<SysfsDir> {
    match group.trim_start_matches('/') {
        "" => root.subdir("."),
        relative => root.subdir(relative),
    }
}

/// The agent's own groups, by version.
#[derive(Debug, Default, PartialEq, Eq)]
struct AgentCgroups {
    v1: Option<String>,
    v2: Option<String>,
}

impl AgentCgroups {
    /// Parses `/proc/self/cgroup`: `0::/path` is version 2. In version 1 the controllers may have
    /// different paths; the path of the memory controller is used.
    fn parse(text: &str) -> AgentCgroups {
        let mut own = AgentCgroups::default();
        for (controllers, path) in cgroup_lines(text) {
            if controllers.is_empty() {
                own.v2 = Some(job_group(path).unwrap_or(path).to_owned());
            } else if controllers.split(',').any(|name| name == "memory") {
                own.v1 = Some(job_group(path).unwrap_or(path).to_owned());
            }
        }
        own
    }
}

/// The path of the groups that a scheduler creates for its jobs, one part per directory level. A
/// group at the level of the last part is a job.
type JobPathPattern = &'static [JobPathPart];
#[derive(Debug, Clone, Copy)]
enum JobPathPart {
    Name(&'static str),
    Prefix(&'static str),
    Suffix(&'static str),
    SlurmJob,
    Any,
}
const V2_JOB_PATHS: [JobPathPattern; 2] = [
    &[
        JobPathPart::Name("system.slice"),
        JobPathPart::Suffix("slurmstepd.scope"),
        JobPathPart::SlurmJob,
    ],
    &[
        JobPathPart::Name("pbs_jobs.service"),
        JobPathPart::Name("jobs"),
        JobPathPart::Any,
    ],
];
const V1_JOB_PATHS: [JobPathPattern; 2] = [
    &[
        JobPathPart::Prefix("slurm"),
        JobPathPart::Prefix("uid_"),
        JobPathPart::Prefix("job_"),
    ],
    &[
        JobPathPart::Name("pbs_jobs.service"),
        JobPathPart::Name("jobid"),
        JobPathPart::Any,
    ],
];

/// Returns the agent's own group and the groups of jobs, without duplicates.
fn find_groups(root: &SysfsDir, own: Option<&str>, patterns: &[JobPathPattern]) -> Vec<String> {
    let mut groups: Vec<String> = own.map(str::to_owned).into_iter().collect();
    for pattern in patterns {
        find_jobs(root, "", pattern, &mut groups);
    }
    groups.sort_unstable();
    groups.dedup();
    groups
}

fn find_jobs(folder: &SysfsDir, path: &str, pattern: &[JobPathPart], groups: &mut Vec<String>) {
    let Some((part, rest)) = pattern.split_first() else {
        groups.push(path.to_owned());
        return;
    };
    for name in folder.names() {
        let is_match = match part {
            JobPathPart::Name(whole) => name == *whole,
            JobPathPart::Prefix(prefix) => name.starts_with(prefix),
            JobPathPart::Suffix(suffix) => name.ends_with(suffix),
            JobPathPart::SlurmJob => is_slurm_job(&name),
            JobPathPart::Any => true,
        };
        if groups.len() < GROUPS_MAX
            && is_match
            && let Some(inner) = folder.subdir(&name)
        {
            find_jobs(&inner, &format!("{path}/{name}"), rest, groups);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_ends_at_the_job() {
        for (path, job) in [
            (
                "/system.slice/n1_slurmstepd.scope/job_17/step_0/user/task_3",
                "/system.slice/n1_slurmstepd.scope/job_17",
            ),
            (
                "/system.slice/n1_slurmstepd.scope/s06JQ5T8XK2M9R/step_0/user/task_3",
                "/system.slice/n1_slurmstepd.scope/s06JQ5T8XK2M9R",
            ),
            (
                "/user.slice/s06JQ5T8XK2M9R/step_0",
                "/user.slice/s06JQ5T8XK2M9R/step_0",
            ),
            (
                "/slurm/uid_1000/job_17/step_batch",
                "/slurm/uid_1000/job_17",
            ),
            (
                "/pbs_jobs.service/jobid/12.server",
                "/pbs_jobs.service/jobid/12.server",
            ),
            (
                "/pbs_jobs.service/jobs/12.server/x",
                "/pbs_jobs.service/jobs/12.server",
            ),
            ("/user.slice/job_x/a", "/user.slice/job_x/a"),
            ("/jobs/a/b", "/jobs/a/b"),
            ("/", "/"),
        ] {
            assert_eq!(job_group(path).unwrap_or(path), job);
        }
    }

    #[test]
    fn each_version_has_its_own_path() {
        let own = AgentCgroups::parse("4:memory:/a/b\n2:cpu,cpuacct:/\n0::/c\nrubbish\n");
        assert_eq!(
            (own.v1.as_deref(), own.v2.as_deref()),
            (Some("/a/b"), Some("/c"))
        );
        assert_eq!(AgentCgroups::parse(""), AgentCgroups::default());
    }
}
