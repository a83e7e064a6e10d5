//! What the processes of a job's cgroup tell: its user, when it began, the number of a Slurm job
//! that is named by its SLUID, and its GPUs.
//!
//! The kernel lets only their owner and root read the environment of processes. An environment is
//! inherited, so it counts only if it names the same job; nothing but the number and the GPUs is
//! kept of it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use pegel_machine::ProcessStat;
use pegel_metric::Millis;
use pegel_metric::slurm::{is_number, job_id_in};
use pegel_plain_file::read_plain;

use crate::interval::JobInterval;

/// The directories and processes of a job that are looked at: all processes tell the same.
const DIRECTORIES_MAX: usize = 32;
const PROCESSES_MAX: usize = 8;
const DEPTH_MAX: usize = 4;
const ENVIRONMENT_BYTES_MAX: u64 = 1 << 20;
const LIST_BYTES_MAX: u64 = 64 << 10;
/// The most GPUs of a job.
const GPUS_MAX: usize = 64;

/// Variables with the job's id and with the indices of its GPUs, by scheduler.
const GPU_VARIABLES: [(&str, &str, &[&str]); 4] = [
    (
        "slurm",
        "SLURM_JOB_ID",
        &["SLURM_JOB_GPUS", "SLURM_STEP_GPUS"],
    ),
    ("pbs", "PBS_JOBID", &["CUDA_VISIBLE_DEVICES"]),
    ("lsf", "LSB_JOBID", &["CUDA_VISIBLE_DEVICES"]),
    ("flux", "FLUX_JOB_ID", &["CUDA_VISIBLE_DEVICES"]),
];

/// Where processes are found, and the time scale of their starts.
#[derive(Debug, Clone)]
pub(crate) struct ProcFiles {
    pub proc: PathBuf,
    pub user_hz: u64,
    /// When the machine booted; `None` if unknown.
    pub boot: Option<Millis>,
}

impl ProcFiles {
    /// Reads the state of a process.
    pub(crate) fn stat<T>(&self, pid: u32, read: impl FnOnce(&ProcessStat<'_>) -> T) -> Option<T> {
        let text = read_plain(&self.proc.join(format!("{pid}/stat")), 4096).ok()?;
        ProcessStat::parse(&text).map(|stat| read(&stat))
    }

    /// Returns the owner of a process.
    fn uid(&self, pid: u32) -> Option<u32> {
        Some(fs::metadata(self.proc.join(pid.to_string())).ok()?.uid())
    }

    fn started(&self, pid: u32) -> Option<Millis> {
        let ticks = self.stat(pid, |stat| stat.start_ticks)?;
        let millis = ticks.checked_mul(1000)?.checked_div(self.user_hz)?;
        Some(self.boot?.saturating_add(Millis::try_from(millis).ok()?))
    }
}

/// Returns some processes in a cgroup and below it. Slurm's own processes are left out: they are
/// in `step_N/slurm` and belong to root.
fn processes(directories: impl Iterator<Item = PathBuf>) -> Vec<u32> {
    let mut found = Vec::new();
    let mut waiting: Vec<(PathBuf, usize)> = directories.map(|directory| (directory, 0)).collect();
    let mut visited = 0;
    while let Some((directory, depth)) = waiting.pop() {
        visited += 1;
        let list = read_plain(&directory.join("cgroup.procs"), LIST_BYTES_MAX).unwrap_or_default();
        let list = String::from_utf8_lossy(&list);
        found.extend(list.lines().filter_map(|pid| pid.parse::<u32>().ok()));
        if found.len() >= PROCESSES_MAX || visited >= DIRECTORIES_MAX {
            break;
        }
        if depth < DEPTH_MAX {
            waiting.extend({ subdirectories(&directory) }.map(|inner| (inner, depth + 1)));
        }
    }
    found.truncate(PROCESSES_MAX);
    found
}

fn subdirectories(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let entries = entries.take(DIRECTORIES_MAX);
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let names = directories.filter(|entry| entry.file_name() != "slurm");
    names.map(|entry| entry.path())
}

/// Completes what is unknown about a job from its processes.
pub(crate) fn complete_from_processes(
    job: &mut JobInterval,
    directories: impl Iterator<Item = PathBuf>,
    files: &ProcFiles,
    is_new: bool,
) {
    let wants_number = job.sluid.as_deref() == Some(&*job.job);
    if job.uid.is_some() && job.gpus.is_some() && !wants_number && !is_new {
        return;
    }
    for pid in processes(directories) {
        job.uid = job.uid.or_else(|| files.uid(pid));
        if is_new && let Some(started) = files.started(pid) {
            job.begin = job.begin.min(started);
        }
        let path = files.proc.join(format!("{pid}/environ"));
        if let Ok(environment) = read_plain(&path, ENVIRONMENT_BYTES_MAX) {
            complete_from_environment(job, &environment);
        }
    }
}

fn complete_from_environment(job: &mut JobInterval, environment: &[u8]) {
    if let Some(sluid) = &job.sluid
        && *sluid == job.job
        && let Some(number) = job_id_in(environment, sluid)
    {
        job.job = number.into();
    }
    let variable = |name: &str| {
        let mut variables = environment.split(|byte| *byte == 0);
        let value = variables.find_map(|one| one.strip_prefix(name.as_bytes())?.strip_prefix(b"="));
        std::str::from_utf8(value?).ok()
    };
    for (scheduler, id, gpus) in GPU_VARIABLES {
        let is_own = variable(id).is_some_and(|id| job.has_id(id));
        if *job.scheduler == *scheduler && is_own && job.gpus.is_none() {
            let list = gpus.iter().find_map(|name| variable(name));
            job.gpus = list.and_then(gpu_indices);
        }
    }
}

/// Parses a list of indices such as `0,1` or `0-3`; `None` if it names GPUs in another way.
fn gpu_indices(list: &str) -> Option<Box<[Box<str>]>> {
    let mut gpus: Vec<Box<str>> = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if !is_number(first) || !is_number(last) {
            return None;
        }
        let range: (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if range.1 >= GPUS_MAX {
            return None;
        }
        gpus.extend((range.0..=range.1).map(|index| index.to_string().into()));
    }
    Some(gpus.into())
}

#[cfg(test)]
mod tests {
    use pegel_testkit::TempDir;

    use super::*;
    use crate::interval::JobOrigin;

    #[test]
    fn lists_of_gpus_are_indices() {
        let text = |list| gpu_indices(list).map(|gpus| gpus.join(" "));
        assert_eq!(text("0,2-3").as_deref(), Some("0 2 3"));
        for bad in ["", "GPU-1a2b", "0-9999999", "1,", "-1"] {
            assert_eq!(text(bad), None, "{bad}");
        }
    }

    #[test]
    fn an_environment_counts_only_if_it_names_the_job() {
        let sluid = "s06JQ5T8XK2M9R";
        let read = |environment: &str| {
            let mut job = JobInterval::new(sluid, "slurm", JobOrigin::Cgroup, 0);
            job.sluid = Some(sluid.into());
            complete_from_environment(&mut job, environment.replace(' ', "\0").as_bytes());
            (job.job.to_string(), job.gpus.map(|gpus| gpus.join(" ")))
        };
        let own = format!("SLURM_JOB_ID=18 SLURM_JOB_SLUID={sluid} SLURM_JOB_GPUS=1,3");
        assert_eq!(read(&own), ("18".into(), Some("1 3".into())));
        let other = "SLURM_JOB_ID=18 SLURM_JOB_SLUID=s0000000000000 SLURM_JOB_GPUS=1,3";
        assert_eq!(read(other), (sluid.into(), None));
    }

    #[test]
    fn user_and_begin_come_from_the_processes_of_the_tasks() {
        let dir = TempDir::new();
        let group = dir.join("job_7");
        for (name, text) in [
            ("job_7/step_0/slurm/cgroup.procs", "1\n"),
            ("job_7/step_0/user/task_0/cgroup.procs", "18\n"),
            (
                "proc/18/stat",
                "18 (x) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 250 0 0 0\n",
            ),
        ] {
            let file = dir.join(name);
            fs::create_dir_all(file.parent().expect("a parent")).expect("made");
            fs::write(file, text).expect("written");
        }
        assert_eq!(processes([group.clone()].into_iter()), [18]);
        let files = ProcFiles {
            proc: dir.join("proc"),
            user_hz: 100,
            boot: Some(1_000),
        };
        let mut job = JobInterval::new("7", "slurm", JobOrigin::Cgroup, 9_000);
        complete_from_processes(&mut job, [group].into_iter(), &files, true);
        assert_eq!(job.begin, 3_500);
        assert_eq!(job.uid, Some(rustix::process::geteuid().as_raw()));
    }
}
