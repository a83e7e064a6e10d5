//! The directories that schedulers create for jobs, by their paths below the root of a hierarchy.

use pegel_metric::slurm::{is_number, is_sluid};
use pegel_snapshot::job::{Job, detect_job, flux_job_id};

use crate::interval::usable_name;

/// The version of a cgroup hierarchy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HierarchyVersion {
    V1,
    V2,
}

/// One level of a path.
#[derive(Debug, Clone, Copy)]
enum PathPart {
    Name(&'static str),
    Prefix(&'static str),
    Suffix(&'static str),
    SlurmJob,
    LsfJob,
    FluxJob,
    Any,
}

/// The path of a scheduler's jobs, and whether the directories below a job are its steps.
struct SchedulerPath {
    version: HierarchyVersion,
    job: &'static [PathPart],
    has_steps: bool,
}

const SCHEDULERS: [SchedulerPath; 8] = [
    SchedulerPath {
        version: HierarchyVersion::V2,
        job: &[
            PathPart::Name("system.slice"),
            PathPart::Suffix("slurmstepd.scope"),
            PathPart::SlurmJob,
        ],
        has_steps: true,
    },
    SchedulerPath {
        version: HierarchyVersion::V1,
        job: &[
            PathPart::Prefix("slurm"),
            PathPart::Prefix("uid_"),
            PathPart::SlurmJob,
        ],
        has_steps: true,
    },
    SchedulerPath {
        version: HierarchyVersion::V2,
        job: &[
            PathPart::Name("pbs_jobs.service"),
            PathPart::Name("jobs"),
            PathPart::Any,
        ],
        has_steps: false,
    },
    SchedulerPath {
        version: HierarchyVersion::V1,
        job: &[
            PathPart::Name("pbs_jobs.service"),
            PathPart::Name("jobid"),
            PathPart::Any,
        ],
        has_steps: false,
    },
    SchedulerPath {
        version: HierarchyVersion::V2,
        job: &[PathPart::Name("lsf"), PathPart::Any, PathPart::LsfJob],
        has_steps: false,
    },
    SchedulerPath {
        version: HierarchyVersion::V1,
        job: &[PathPart::Name("lsf"), PathPart::Any, PathPart::LsfJob],
        has_steps: false,
    },
    // Units of Flux's user, whose manager puts them into a slice by default.
    SchedulerPath {
        version: HierarchyVersion::V2,
        job: &[
            PathPart::Name("user.slice"),
            PathPart::Prefix("user-"),
            PathPart::Prefix("user@"),
            PathPart::Name("app.slice"),
            PathPart::FluxJob,
        ],
        has_steps: false,
    },
    SchedulerPath {
        version: HierarchyVersion::V2,
        job: &[
            PathPart::Name("user.slice"),
            PathPart::Prefix("user-"),
            PathPart::Prefix("user@"),
            PathPart::FluxJob,
        ],
        has_steps: false,
    },
];

/// The prefix of the directory of a Slurm step.
const STEP_PREFIX: &str = "step_";

impl PathPart {
    fn matches(self, name: &str) -> bool {
        match self {
            PathPart::Name(whole) => name == whole,
            PathPart::Prefix(prefix) => name.starts_with(prefix),
            PathPart::Suffix(suffix) => name.ends_with(suffix),
            PathPart::SlurmJob => {
                name.strip_prefix("job_").is_some_and(is_number) || is_sluid(name)
            }
            PathPart::LsfJob => name.starts_with("job."),
            PathPart::FluxJob => flux_job_id(name).is_some(),
            PathPart::Any => true,
        }
    }
}

/// What a directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DirectoryKind {
    /// Jobs can be somewhere below it.
    Ancestor,
    /// A job; its steps are below it if the scheduler has steps.
    Job {
        has_steps: bool,
    },
    Step,
    Other,
}

/// Returns what the directory at a path below the root is: `/system.slice/…`, or empty for the
/// root.
pub(crate) fn directory_kind(version: HierarchyVersion, path: &str) -> DirectoryKind {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let schedulers = SCHEDULERS.iter().filter(|one| one.version == version);
    for scheduler in schedulers {
        let pairs = parts.iter().zip(scheduler.job);
        if !pairs.into_iter().all(|(name, part)| part.matches(name)) {
            continue;
        }
        let has_steps = scheduler.has_steps;
        match parts.len().checked_sub(scheduler.job.len()) {
            None => return DirectoryKind::Ancestor,
            Some(0) => return DirectoryKind::Job { has_steps },
            Some(1) if has_steps && parts[parts.len() - 1].starts_with(STEP_PREFIX) => {
                return DirectoryKind::Step;
            }
            Some(_) => {}
        }
    }
    DirectoryKind::Other
}

/// Returns the job of the directory of a job or step, as its path names it.
pub(crate) fn job_of_path(path: &str) -> Option<Job> {
    let job = detect_job(&|_| None, &format!("0::{path}"))?;
    usable_name(&job.id)?;
    Some(job)
}

/// Returns the user in a path of cgroups v1: `/slurm/uid_1000/job_7`.
pub(crate) fn uid_of_path(path: &str) -> Option<u32> {
    let mut users = path.split('/').filter_map(|part| part.strip_prefix("uid_"));
    users.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_all_schedulers_are_known() {
        let job = |has_steps| DirectoryKind::Job { has_steps };
        let ancestor = DirectoryKind::Ancestor;
        for (version, path, expected) in [
            (HierarchyVersion::V2, "", ancestor),
            (HierarchyVersion::V2, "/system.slice", ancestor),
            (HierarchyVersion::V2, "/user.slice", ancestor),
            (
                HierarchyVersion::V2,
                "/user.slice/user-5.slice/user@5.service",
                ancestor,
            ),
            (
                HierarchyVersion::V2,
                "/user.slice/user-5.slice/user@5.service/app.slice",
                ancestor,
            ),
            (
                HierarchyVersion::V2,
                "/user.slice/user-5.slice/session-1.scope",
                DirectoryKind::Other,
            ),
            (
                HierarchyVersion::V2,
                "/user.slice/user-5.slice/user@5.service/app.slice/shell-0-f1.service",
                job(false),
            ),
            (
                HierarchyVersion::V2,
                "/system.slice/sshd.service",
                DirectoryKind::Other,
            ),
            (
                HierarchyVersion::V2,
                "/system.slice/n1_slurmstepd.scope",
                ancestor,
            ),
            (
                HierarchyVersion::V2,
                "/system.slice/slurmstepd.scope/job_7",
                job(true),
            ),
            (
                HierarchyVersion::V2,
                "/system.slice/slurmstepd.scope/s06JQ5T8XK2M9R",
                job(true),
            ),
            (
                HierarchyVersion::V2,
                "/system.slice/slurmstepd.scope/system",
                DirectoryKind::Other,
            ),
            (
                HierarchyVersion::V2,
                "/system.slice/slurmstepd.scope/job_7/step_0",
                DirectoryKind::Step,
            ),
            (
                HierarchyVersion::V2,
                "/system.slice/slurmstepd.scope/job_7/step_0/user",
                DirectoryKind::Other,
            ),
            (HierarchyVersion::V1, "/slurm_n1/uid_1000/job_7", job(true)),
            (
                HierarchyVersion::V1,
                "/slurm_n1/uid_1000/job_7/step_batch",
                DirectoryKind::Step,
            ),
            (
                HierarchyVersion::V2,
                "/slurm_n1/uid_1000/job_7",
                DirectoryKind::Other,
            ),
            (
                HierarchyVersion::V2,
                "/pbs_jobs.service/jobs/12[3].server",
                job(false),
            ),
            (
                HierarchyVersion::V2,
                "/pbs_jobs.service/jobs/12.server/x",
                DirectoryKind::Other,
            ),
            (
                HierarchyVersion::V1,
                "/pbs_jobs.service/jobid/12.server",
                job(false),
            ),
            (HierarchyVersion::V1, "/lsf/alps/job.7.4711.17", job(false)),
        ] {
            assert_eq!(directory_kind(version, path), expected, "{path}");
        }
    }

    #[test]
    fn a_path_names_job_step_and_user() {
        let job = job_of_path("/system.slice/slurmstepd.scope/s06JQ5T8XK2M9R/step_batch");
        let job = job.expect("a job");
        assert_eq!(
            (&*job.id, job.step.as_deref()),
            ("s06JQ5T8XK2M9R", Some("batch"))
        );
        assert_eq!(job.sluid.as_deref(), Some("s06JQ5T8XK2M9R"));
        assert_eq!(job_of_path("/lsf/alps/job.x.1"), None);
        assert_eq!(uid_of_path("/slurm/uid_1000/job_7"), Some(1000));
        assert_eq!(uid_of_path("/slurm/uid_x/job_7"), None);
        assert_eq!(uid_of_path("/system.slice"), None);
    }
}
