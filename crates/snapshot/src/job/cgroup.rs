//! Detects jobs by the cgroups that schedulers create for them.

use pegel_metric::slurm::{is_number, is_sluid};

use super::{Job, sanitize};
use pegel_machine::cgroup_lines;

/// Returns the job of the first line that names a scheduler's cgroup.
pub(super) fn job_from_cgroups(text: &str) -> Option<Job> {
    let mut paths = cgroup_lines(text).map(|(_, path)| path).take(64);
    paths.find_map(job_from_path)
}

fn job_from_path(path: &str) -> Option<Job> {
    Some(find_job(&path_parts(path))?.0)
}

/// Returns the path up to the cgroup that the scheduler created for the job, or, in Kubernetes and
/// ECS, for the container; `None` if the path names no scheduler.
pub fn job_cgroup(path: &str) -> Option<&str> {
    let (_, depth) = find_job(&path_parts(path))?;
    let mut parts = 0;
    let mut end = 0;
    for part in path.split_inclusive('/') {
        if parts == depth {
            break;
        }
        end += part.len();
        parts += usize::from(part != "/");
    }
    Some(path[..end].trim_end_matches('/'))
}

fn path_parts(path: &str) -> Vec<&str> {
    path.split('/').filter(|part| !part.is_empty()).collect()
}

/// A job, and the number of parts of the path up to its cgroup.
type FoundJob = (Job, usize);

fn find_job(parts: &[&str]) -> Option<FoundJob> {
    slurm(parts)
        .or_else(|| pbs(parts))
        .or_else(|| lsf(parts))
        .or_else(|| flux(parts))
        .or_else(|| kubernetes(parts))
        .or_else(|| ecs(parts))
        .or_else(|| htcondor(parts))
}

fn new_job(scheduler: &'static str, id: &str) -> Option<Job> {
    Some(Job {
        scheduler,
        id: sanitize(id.to_owned())?,
        from: "cgroup",
        ..Job::default()
    })
}

/// Returns the parts after the first one for which `matches` holds, and the number of those before
/// them.
fn parts_after<'a>(
    parts: &'a [&'a str],
    matches: impl Fn(&str) -> bool,
) -> Option<(usize, &'a [&'a str])> {
    let index = parts.iter().position(|part| matches(part))?;
    Some((index + 1, &parts[index + 1..]))
}

/// `…/nid1_slurmstepd.scope/job_7/step_0/user/task_3`, or `/slurm_nid1/uid_1000/job_7/step_0`. From
/// Slurm 26.05 on the path has the job's SLUID in place of `job_7`; it is used as the id until the
/// number is found in the environment of a process.
fn slurm(parts: &[&str]) -> Option<FoundJob> {
    let is_slurm = |part: &str| part.ends_with("slurmstepd.scope") || part.starts_with("slurm");
    let (above, below) = parts_after(parts, is_slurm)?;
    let of = |prefix: &str| below.iter().find_map(|part| part.strip_prefix(prefix));
    let sluid = below.first().filter(|name| is_sluid(name)).copied();
    let number = of("job_").filter(|id| is_number(id));
    let mut job = new_job("slurm", number.or(sluid)?)?;
    let is_job = |part: &&str| Some(*part) == sluid || part.starts_with("job_");
    let depth = above + below.iter().position(is_job)? + 1;
    job.sluid = sluid.map(str::to_owned);
    job.step = of("step_").and_then(|step| sanitize(step.to_owned()));
    job.task = of("task_").and_then(|task| sanitize(task.to_owned()));
    Some((job, depth))
}

/// `/pbs_jobs.service/jobid/12.server`, `…/jobs/12.server`.
fn pbs(parts: &[&str]) -> Option<FoundJob> {
    let (above, below) = parts_after(parts, |part| part == "pbs_jobs.service")?;
    match below {
        ["jobid" | "jobs", id, ..] => Some((new_job("pbs", id)?, above + 2)),
        _ => None,
    }
}

/// `/lsf/cluster/job.7.4711.1700000000`.
fn lsf(parts: &[&str]) -> Option<FoundJob> {
    let (above, below) = parts_after(parts, |part| part == "lsf")?;
    let index = below.iter().position(|part| part.starts_with("job."))?;
    let id = below[index].split('.').nth(1).filter(|id| is_number(id))?;
    let mut job = new_job("lsf", id)?;
    job.cluster = below
        .first()
        .and_then(|cluster| sanitize((*cluster).to_owned()));
    Some((job, above + index + 1))
}

/// `…/user@500.service/app.slice/imp-shell-0-fA4VyMGLF.service`: the unit of a job's shell, where
/// Flux runs jobs with systemd. The id is in the form f58, with an `f` for the sign `ƒ`.
fn flux(parts: &[&str]) -> Option<FoundJob> {
    let (above, below) = parts_after(parts, |part| part.starts_with("user@"))?;
    let index = below.iter().position(|part| flux_job_id(part).is_some())?;
    Some((
        new_job("flux", flux_job_id(below[index])?)?,
        above + index + 1,
    ))
}

/// Returns the id in the name of the unit of a Flux job: `imp-shell-RANK-ID.service`, or
/// `shell-RANK-ID.service` where all jobs belong to one user.
pub fn flux_job_id(unit: &str) -> Option<&str> {
    let name = unit.strip_suffix(".service")?;
    let name = name.strip_prefix("imp-").unwrap_or(name);
    let (rank, id) = name.strip_prefix("shell-")?.split_once('-')?;
    let is_id =
        id.starts_with('f') && id.len() > 1 && id.bytes().all(|c| c.is_ascii_alphanumeric());
    (is_number(rank) && is_id).then_some(id)
}

/// `/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid>.slice/cri-containerd-<id>.scope`,
/// where the uid has `_` for `-`; or `/kubepods/burstable/pod<uid>/<id>`.
fn kubernetes(parts: &[&str]) -> Option<FoundJob> {
    let (above, below) = parts_after(parts, |part| part.starts_with("kubepods"))?;
    let of_pod = |part: &str| match part.strip_suffix(".slice") {
        Some(slice) => Some(slice.rsplit_once("-pod")?.1.replace('_', "-")),
        None => Some(part.strip_prefix("pod")?.to_owned()),
    };
    let mut pods = below.iter().enumerate();
    let (index, uid) = pods.find_map(|(index, part)| Some((index, of_pod(part)?)))?;
    // The pod and, below it, the container.
    let depth = (above + index + 2).min(parts.len());
    Some((new_job("kubernetes", &uid)?, depth))
}

/// `/ecs/<task>/<container>`.
fn ecs(parts: &[&str]) -> Option<FoundJob> {
    let (above, below) = parts_after(parts, |part| part == "ecs")?;
    match below {
        [task, _, ..] => Some((new_job("ecs", task)?, above + 2)),
        _ => None,
    }
}

/// `/htcondor/condor_var_lib_condor_execute_slot1_1@host`: only the slot is known.
fn htcondor(parts: &[&str]) -> Option<FoundJob> {
    let (above, below) = parts_after(parts, |part| part == "htcondor")?;
    let index = below.iter().position(|part| part.starts_with("condor"))?;
    let name = below[index];
    let slot = name.find("slot").map_or(name, |start| &name[start..]);
    Some((new_job("htcondor", slot)?, above + index + 1))
}
