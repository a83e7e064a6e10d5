//! Finds the Slurm job ID of a control group, for the collector `cgroup`.
//!
//! Slurm names the group of a job `job_N`. Since 26.05, with control groups version 2, the name is
//! the job's SLUID: an `s` and 13 characters of Crockford's base 32. Then only the environment of
//! the job's processes has the ID, and the kernel permits only their owner and root to read it.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use pegel_metric::slurm::{is_number, is_sluid, job_id_in};
use pegel_plain_file::read_plain;

use crate::sysfs_dir::SysfsDir;

/// Processes of a job whose environment is read in one pass. All of them carry the same ID.
const PROCESSES_MAX: usize = 8;
/// Lookup attempts per job, over a minute and a half; then an agent that is not permitted to read
/// environments gives up.
const TRIES_MAX: u8 = 18;
/// Upper bound on the size of an environment.
const ENVIRONMENT_BYTES_MAX: u64 = 1 << 20;

/// The job in the path of a control group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JobName<'a> {
    /// The ID of a Slurm or PBS job.
    Id(&'a str),
    /// The SLUID of a Slurm job.
    Sluid(&'a str),
}

/// Returns the path up to and including the job's group; `None` if it belongs to no job.
pub(super) fn job_group(path: &str) -> Option<&str> {
    let mut end = 0;
    let mut before = "";
    for part in path.split_inclusive('/') {
        end += part.len();
        let name = part.trim_end_matches('/');
        let is_job = name.strip_prefix("job_").is_some_and(is_number)
            || before.ends_with("slurmstepd.scope") && is_slurm_job(name)
            || matches!(before, "jobid" | "jobs") && path.starts_with("/pbs_jobs.service/");
        if is_job {
            return Some(path[..end].trim_end_matches('/'));
        }
        before = name;
    }
    None
}

/// Returns the job to which a group belongs, from its path.
pub(super) fn job_name(path: &str) -> Option<JobName<'_>> {
    let name = job_group(path)?.rsplit('/').next()?;
    if is_sluid(name) {
        return Some(JobName::Sluid(name));
    }
    Some(JobName::Id(name.strip_prefix("job_").unwrap_or(name)))
}

/// Returns whether Slurm gives such a name to the group of a job.
pub(super) fn is_slurm_job(name: &str) -> bool {
    name.strip_prefix("job_").is_some_and(is_number) || is_sluid(name)
}

/// The IDs of jobs whose groups are named by SLUID, cached by group.
#[derive(Debug)]
pub(super) struct SlurmJobIds {
    proc: PathBuf,
    lookups: HashMap<String, JobIdLookup>,
}

#[derive(Debug)]
enum JobIdLookup {
    Found(String),
    /// Not found after this number of attempts.
    NotFound(u8),
}

impl SlurmJobIds {
    pub(super) fn new(proc: PathBuf) -> SlurmJobIds {
        SlurmJobIds {
            proc,
            lookups: HashMap::new(),
        }
    }

    /// Returns the job ID of a group, if it belongs to a Slurm job and its ID can be determined.
    pub(super) fn job_id(&mut self, group: &str, folder: &SysfsDir) -> Option<String> {
        let name = group.rsplit('/').next()?;
        if let Some(number) = name.strip_prefix("job_").filter(|id| is_number(id)) {
            return Some(number.to_owned());
        }
        if !is_sluid(name) {
            return None;
        }
        let lookup = self.lookups.entry(group.to_owned());
        let lookup = lookup.or_insert(JobIdLookup::NotFound(0));
        if let JobIdLookup::NotFound(tries) = lookup {
            if *tries >= TRIES_MAX {
                return None;
            }
            *lookup = match find_job_id(&self.proc, name, folder) {
                Some(number) => JobIdLookup::Found(number),
                None => JobIdLookup::NotFound(*tries + 1),
            };
        }
        match lookup {
            JobIdLookup::Found(number) => Some(number.clone()),
            JobIdLookup::NotFound(_) => None,
        }
    }

    /// Removes the cached IDs of jobs that have ended.
    pub(super) fn retain_groups(&mut self, groups: &[String]) {
        let groups: HashSet<&str> = groups.iter().map(String::as_str).collect();
        self.lookups.retain(|group, _| groups.contains(&**group));
    }
}

/// Searches the environments of the processes in `step_N/user/task_M` for the job ID.
fn find_job_id(proc: &std::path::Path, sluid: &str, job: &SysfsDir) -> Option<String> {
    let with_prefix = |folder: &SysfsDir, prefix: &'static str| {
        let names = folder.names().into_iter();
        names.filter(move |name| name.starts_with(prefix))
    };
    let mut remaining = PROCESSES_MAX;
    for step in with_prefix(job, "step_") {
        let Some(user) = job.subdir(&format!("{step}/user")) else {
            continue;
        };
        for task in with_prefix(&user, "task_") {
            let processes = user.text(&format!("{task}/cgroup.procs"));
            for process in processes.unwrap_or_default().lines() {
                if !is_number(process) {
                    continue;
                }
                remaining = remaining.checked_sub(1)?;
                let path = proc.join(process).join("environ");
                let environment = read_plain(&path, ENVIRONMENT_BYTES_MAX).unwrap_or_default();
                if let Some(number) = job_id_in(&environment, sluid) {
                    return Some(number.to_owned());
                }
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_job_of_a_path_is_found() {
        for (path, expected) in [
            (
                "/system.slice/slurmstepd.scope/job_17/step_0/user/task_0",
                Some(JobName::Id("17")),
            ),
            ("/slurm/uid_1000/job_7/step_batch", Some(JobName::Id("7"))),
            (
                "/system.slice/slurmstepd.scope/s06JQ5T8XK2M9R/step_0",
                Some(JobName::Sluid("s06JQ5T8XK2M9R")),
            ),
            (
                "/pbs_jobs.service/jobs/81.server/x",
                Some(JobName::Id("81.server")),
            ),
            ("/system.slice/sshd.service", None),
            ("/", None),
            ("", None),
        ] {
            assert_eq!(job_name(path), expected, "{path}");
        }
    }

    #[test]
    fn folders_of_jobs_are_known_by_their_names() {
        for name in ["job_17", "s06JQ5T8XK2M9R"] {
            assert!(is_slurm_job(name), "{name}");
        }
        for name in ["job_x", "job_", "system", "s06JQ5T8XK2M9"] {
            assert!(!is_slurm_job(name), "{name}");
        }
    }
}
