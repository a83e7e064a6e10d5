//! The job that a control group belongs to.
//!
//! Slurm names the folder of a job `job_N`; from 26.05 on, in the second version, by the job's SLUID: an `s` and 13 characters
//! of Crockford's base 32. Then the number is only in the environment of the job's processes, which the kernel shows to
//! their own user and to root.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use pegel_config::read_plain;
use pegel_metric::slurm::{is_number, is_sluid, job_id_in};

use crate::folder::Folder;

/// Processes of a job whose environment is read in one pass. All of them have the same number.
const PROCESSES_MAX: usize = 8;
/// Passes in which a number is looked for: a minute and a half. An agent that may not read them stops then.
const TRIES_MAX: u8 = 18;
/// More than any environment has.
const ENVIRONMENT_BYTES_MAX: u64 = 1 << 20;

/// Whether Slurm calls the folder of a job so.
pub(super) fn is_slurm_job(name: &str) -> bool {
    name.strip_prefix("job_").is_some_and(is_number) || is_sluid(name)
}

/// The numbers of jobs that are known by their SLUID, as they were found.
#[derive(Debug)]
pub(super) struct Jobs {
    proc: PathBuf,
    lookups: HashMap<String, Lookup>,
}

#[derive(Debug)]
enum Lookup {
    Found(String),
    /// Not found, so often.
    Tried(u8),
}

impl Jobs {
    pub(super) fn new(proc: PathBuf) -> Jobs {
        Jobs {
            proc,
            lookups: HashMap::new(),
        }
    }

    /// The number of the job of a group, where it is one of Slurm and can be known.
    pub(super) fn id(&mut self, group: &str, folder: &Folder) -> Option<String> {
        let name = group.rsplit('/').next()?;
        if let Some(number) = name.strip_prefix("job_").filter(|id| is_number(id)) {
            return Some(number.to_owned());
        }
        if !is_sluid(name) {
            return None;
        }
        let lookup = self.lookups.entry(group.to_owned());
        let lookup = lookup.or_insert(Lookup::Tried(0));
        if let Lookup::Tried(tries) = lookup {
            if *tries >= TRIES_MAX {
                return None;
            }
            *lookup = match find_number(&self.proc, name, folder) {
                Some(number) => Lookup::Found(number),
                None => Lookup::Tried(*tries + 1),
            };
        }
        match lookup {
            Lookup::Found(number) => Some(number.clone()),
            Lookup::Tried(_) => None,
        }
    }

    /// Forgets jobs that are over.
    pub(super) fn keep_only(&mut self, groups: &[String]) {
        let groups: HashSet<&str> = groups.iter().map(String::as_str).collect();
        self.lookups.retain(|group, _| groups.contains(&**group));
    }
}

/// Looks at processes below `step_N/user/task_M`.
fn find_number(proc: &std::path::Path, sluid: &str, job: &Folder) -> Option<String> {
    let begin_with = |folder: &Folder, prefix: &'static str| {
        let names = folder.names().into_iter();
        names.filter(move |name| name.starts_with(prefix))
    };
    let mut left = PROCESSES_MAX;
    for step in begin_with(job, "step_") {
        let Some(user) = job.folder(&format!("{step}/user")) else {
            continue;
        };
        for task in begin_with(&user, "task_") {
            let processes = user.text(&format!("{task}/cgroup.procs"));
            for process in processes.unwrap_or_default().lines() {
                if !is_number(process) {
                    continue;
                }
                left = left.checked_sub(1)?;
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
    fn folders_of_jobs_are_known_by_their_names() {
        for name in ["job_17", "s06JQ5T8XK2M9R"] {
            assert!(is_slurm_job(name), "{name}");
        }
        for name in ["job_x", "job_", "system", "s06JQ5T8XK2M9"] {
            assert!(!is_slurm_job(name), "{name}");
        }
    }
}
