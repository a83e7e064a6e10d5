//! The identity of a lane's writer: process, user, command, job and rank.

use std::io::Write;

use rustix::fs::{CWD, Mode, OFlags};

/// Variables with the job's id, most specific first. `PEGEL_JOB` takes precedence over any
/// scheduler.
const JOB_VARIABLES: [&str; 10] = [
    "PEGEL_JOB",
    "SLURM_JOB_ID",
    "FLUX_JOB_ID",
    "PBS_JOBID",
    "LSB_JOBID",
    "COBALT_JOBID",
    "OAR_JOB_ID",
    "AWS_BATCH_JOB_ID",
    "AZ_BATCH_JOB_ID",
    "BATCH_JOB_UID",
];

/// The launcher's before the scheduler's: under `mpirun`, Slurm's rank is that of the launcher.
const RANK_VARIABLES: [&str; 9] = [
    "OMPI_COMM_WORLD_RANK",
    "PMIX_RANK",
    "PMI_RANK",
    "MV2_COMM_WORLD_RANK",
    "JSM_NAMESPACE_RANK",
    "PALS_RANKID",
    "FLUX_TASK_RANK",
    "SLURM_PROCID",
    "PBS_TASKNUM",
];

/// Returns the job of this process, as its scheduler names it.
pub fn job_id() -> Option<String> {
    job_from(|name| std::env::var(name).ok())
}

/// Returns the rank of this process in its job.
pub fn rank() -> Option<String> {
    first_usable(&RANK_VARIABLES, &|name| std::env::var(name).ok())
}

fn job_from(variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    first_usable(&JOB_VARIABLES, &variable).or_else(|| {
        // Grid Engine's variable has a name that others use as well, so a second one must be set.
        variable("SGE_TASK_ID")?;
        first_usable(&["JOB_ID"], &variable)
    })
}

fn first_usable(names: &[&str], variable: &impl Fn(&str) -> Option<String>) -> Option<String> {
    let is_usable = |value: &String| !value.is_empty() && !value.chars().any(char::is_control);
    names
        .iter()
        .find_map(|name| variable(name).filter(is_usable))
}

/// Identifies a process on this machine until the next boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProcessId {
    pub pid: u32,
    /// Clock ticks from boot to the start of the process; 0 if /proc is not readable.
    pub start_ticks: u64,
    /// The namespace of the pid; 0 if /proc is not readable.
    pub pid_namespace: u64,
}

impl ProcessId {
    /// Must not allocate: a child of `fork` may call it before anything else.
    pub(crate) fn of_self() -> ProcessId {
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        let mut text = [0; 1024];
        let stat = read_prefix(c"/proc/self/stat", &mut text);
        ProcessId {
            pid: pid.unsigned_abs(),
            start_ticks: stat.and_then(start_ticks).unwrap_or(0),
            pid_namespace: pid_namespace(),
        }
    }
}

pub(crate) fn pid_namespace() -> u64 {
    rustix::fs::stat(c"/proc/self/ns/pid").map_or(0, |stat| stat.st_ino)
}

/// Returns when a process started; `None` if there is no process with that pid.
pub(crate) fn start_ticks_of(pid: u32) -> Option<u64> {
    let mut path = [0; 32];
    // The rest of the array is the zero byte that ends a path.
    write!(&mut path[..31], "/proc/{pid}/stat").ok()?;
    let path = std::ffi::CStr::from_bytes_until_nul(&path).ok()?;
    let mut text = [0; 1024];
    start_ticks(read_prefix(path, &mut text)?)
}

/// Parses the twenty-second field. The second one, the name, may contain anything, also parentheses
/// and spaces.
fn start_ticks(stat: &[u8]) -> Option<u64> {
    let after_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let field = stat
        .get(after_name..)?
        .split(|byte| *byte == b' ')
        .filter(|field| !field.is_empty())
        .nth(19)?;
    std::str::from_utf8(field).ok()?.parse().ok()
}

/// Returns the command's name as the kernel keeps it, at most 15 bytes.
pub(crate) fn command_name(text: &mut [u8]) -> &[u8] {
    read_prefix(c"/proc/self/comm", text)
        .unwrap_or_default()
        .trim_ascii_end()
}

fn read_prefix<'a>(path: &std::ffi::CStr, text: &'a mut [u8]) -> Option<&'a [u8]> {
    let file =
        rustix::fs::openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let length = rustix::io::read(&file, &mut *text).ok()?;
    text.get(..length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_time_is_found_whatever_the_name() {
        let rest = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20 21";
        for name in ["sh", "a b", "a) S 1 (", ")))"] {
            let stat = format!("17 ({name}) {rest}");
            assert_eq!(start_ticks(stat.as_bytes()), Some(4242), "{name}");
        }
        assert_eq!(start_ticks(b""), None);
        assert_eq!(start_ticks(b"17 (sh) S 1"), None);
    }

    #[test]
    fn this_process_is_itself() {
        let own = ProcessId::of_self();
        assert_eq!(own.pid, std::process::id());
        assert!(own.start_ticks > 0 && own.pid_namespace > 0);
        assert_eq!(start_ticks_of(own.pid), Some(own.start_ticks));
        assert_eq!(start_ticks_of(u32::MAX), None);
        assert!(!command_name(&mut [0; 64]).is_empty());
    }

    #[test]
    fn a_job_is_named_by_the_first_variable_that_says_so() {
        let job = |variables: &[(&str, &str)]| {
            job_from(|name| {
                let found = variables.iter().find(|(key, _)| *key == name);
                found.map(|(_, value)| (*value).to_owned())
            })
        };
        assert_eq!(job(&[]), None);
        assert_eq!(job(&[("SLURM_JOB_ID", "12")]).as_deref(), Some("12"));
        let both = [("PBS_JOBID", "1.server"), ("PEGEL_JOB", "mine")];
        assert_eq!(job(&both).as_deref(), Some("mine"));
        assert_eq!(
            job(&[("PEGEL_JOB", ""), ("LSB_JOBID", "7")]).as_deref(),
            Some("7")
        );
        assert_eq!(job(&[("SLURM_JOB_ID", "1\n2")]), None);
        assert_eq!(job(&[("JOB_ID", "3")]), None);
        let grid = [("JOB_ID", "3"), ("SGE_TASK_ID", "undefined")];
        assert_eq!(job(&grid).as_deref(), Some("3"));
    }
}
