//! The rank of this process in an MPI job, and the launcher that started all local ranks.

use std::fs;
use std::time::{Duration, SystemTime};

/// The environment variables of one launcher.
struct LauncherVariables {
    rank: &'static str,
    /// The number of ranks of the job.
    size: &'static str,
    /// The number of ranks on this node; empty: the launcher does not tell.
    local_size: &'static str,
    /// Whether the rank is set outside of parallel jobs too, so that the size is required.
    needs_size: bool,
}

const fn variables(
    rank: &'static str,
    size: &'static str,
    local_size: &'static str,
) -> LauncherVariables {
    LauncherVariables {
        rank,
        size,
        local_size,
        needs_size: false,
    }
}

/// The launchers' before the scheduler's: under `mpirun`, Slurm's rank is that of the launcher.
const LAUNCHERS: [LauncherVariables; 8] = [
    variables(
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    variables("PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"),
    variables(
        "MV2_COMM_WORLD_RANK",
        "MV2_COMM_WORLD_SIZE",
        "MV2_COMM_WORLD_LOCAL_SIZE",
    ),
    variables(
        "JSM_NAMESPACE_RANK",
        "JSM_NAMESPACE_SIZE",
        "JSM_NAMESPACE_LOCAL_SIZE",
    ),
    variables("PALS_RANKID", "PALS_SIZE", "PALS_LOCAL_SIZE"),
    variables("FLUX_TASK_RANK", "FLUX_JOB_SIZE", ""),
    LauncherVariables {
        rank: "SLURM_PROCID",
        size: "SLURM_STEP_NUM_TASKS",
        local_size: "SLURM_STEP_TASKS_PER_NODE",
        needs_size: true,
    },
    variables("PMIX_RANK", "", ""),
];

/// The most ancestors between a rank and its launcher.
const ANCESTORS_MAX: usize = 64;

/// A rank of a parallel job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LocalRank {
    /// Its number, which is unique in the job.
    pub rank: String,
    /// The number of ranks on this node, if known.
    pub local_size: Option<usize>,
    /// The process that started all local ranks.
    pub launcher: LauncherProcess,
}

/// A process that is not reused as long as it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LauncherProcess {
    pub pid: u32,
    /// In clock ticks since boot.
    pub start: u64,
}

impl LocalRank {
    /// Returns the rank of this process; None if it is not one of several.
    pub(super) fn of_self() -> Option<LocalRank> {
        let variable = |name: &str| std::env::var(name).ok();
        let (rank, rank_variable, local_size) = rank_from(&variable)?;
        Some(LocalRank {
            rank,
            local_size,
            launcher: find_launcher(rank_variable)?,
        })
    }
}

/// Returns the rank, the variable that it came from and the number of local ranks.
fn rank_from(
    variable: &impl Fn(&str) -> Option<String>,
) -> Option<(String, &'static str, Option<usize>)> {
    for launcher in &LAUNCHERS {
        // Used in file names.
        let is_number =
            |rank: &String| !rank.is_empty() && rank.bytes().all(|b| b.is_ascii_digit());
        let Some(rank) = variable(launcher.rank).filter(is_number) else {
            continue;
        };
        let size = variable(launcher.size).and_then(|size| size.parse::<usize>().ok());
        if size.is_none() && launcher.needs_size {
            continue;
        }
        if size == Some(1) {
            return None;
        }
        let local_size = variable(launcher.local_size).and_then(|text| {
            let node = variable("SLURM_NODEID").and_then(|node| node.parse().ok());
            tasks_on_node(&text, node.unwrap_or(0))
        });
        return Some((rank, launcher.rank, local_size));
    }
    None
}

/// Parses a number of tasks, or Slurm's list for all nodes: `2(x3),1`.
fn tasks_on_node(text: &str, node: usize) -> Option<usize> {
    let mut nodes = 0;
    for part in text.split(',') {
        let (tasks, count) = match part.split_once("(x") {
            Some((tasks, count)) => (tasks, count.strip_suffix(')')?.parse::<usize>().ok()?),
            None => (part, 1),
        };
        nodes += count;
        if node < nodes || !text.contains([',', '(']) {
            return tasks.parse().ok();
        }
    }
    None
}

/// Finds the first ancestor that has no rank itself: scripts and `numactl` between the launcher and
/// this process inherit the variable.
fn find_launcher(rank_variable: &str) -> Option<LauncherProcess> {
    let mut pid = std::os::unix::process::parent_id();
    for _ in 0..ANCESTORS_MAX {
        let (parent, start) = parent_and_start(pid)?;
        // Unreadable: it belongs to another user, as Slurm's does.
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let is_rank = environment.split(|byte| *byte == 0).any(|entry| {
            entry
                .strip_prefix(rank_variable.as_bytes())
                .is_some_and(|rest| rest.starts_with(b"="))
        });
        if !is_rank || parent == 0 {
            return Some(LauncherProcess { pid, start });
        }
        pid = parent;
    }
    None
}

fn parent_and_start(pid: u32) -> Option<(u32, u64)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, behind) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = behind.split_ascii_whitespace().collect();
    Some((fields.get(1)?.parse().ok()?, fields.get(19)?.parse().ok()?))
}

impl LauncherProcess {
    pub(super) fn is_running(self) -> bool {
        parent_and_start(self.pid).is_some_and(|(_, start)| start == self.start)
    }

    /// Returns when the process started.
    pub(super) fn start_time(self) -> Option<SystemTime> {
        let uptime = fs::read_to_string("/proc/uptime").ok()?;
        let uptime: f64 = uptime.split_ascii_whitespace().next()?.parse().ok()?;
        let ticks = rustix::param::clock_ticks_per_second().max(1);
        let age = uptime - self.start as f64 / ticks as f64;
        SystemTime::now().checked_sub(Duration::try_from_secs_f64(age.max(0.0)).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank_of(variables: &[(&str, &str)]) -> Option<(String, Option<usize>)> {
        let found = rank_from(&|name: &str| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        });
        found.map(|(rank, _, local_size)| (rank, local_size))
    }

    #[test]
    fn ranks_are_those_of_the_launcher() {
        let open_mpi = [
            ("OMPI_COMM_WORLD_RANK", "3"),
            ("OMPI_COMM_WORLD_SIZE", "8"),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "4"),
            ("SLURM_PROCID", "0"),
            ("SLURM_STEP_NUM_TASKS", "2"),
        ];
        assert_eq!(rank_of(&open_mpi), Some(("3".to_owned(), Some(4))));
        let mpich = [
            ("PMI_RANK", "1"),
            ("PMI_SIZE", "2"),
            ("MPI_LOCALNRANKS", "2"),
        ];
        assert_eq!(rank_of(&mpich), Some(("1".to_owned(), Some(2))));
        assert_eq!(rank_of(&[("PMIX_RANK", "5")]), Some(("5".to_owned(), None)));
    }

    #[test]
    fn a_single_process_is_not_a_rank() {
        assert_eq!(rank_of(&[]), None);
        // The script of a batch job.
        assert_eq!(rank_of(&[("SLURM_PROCID", "0")]), None);
        assert_eq!(rank_of(&[("PMI_RANK", "0"), ("PMI_SIZE", "1")]), None);
        assert_eq!(rank_of(&[("PMI_RANK", "../x"), ("PMI_SIZE", "2")]), None);
    }

    #[test]
    fn the_tasks_of_a_node_are_read_from_slurms_list() {
        assert_eq!(tasks_on_node("4", 7), Some(4));
        assert_eq!(tasks_on_node("2(x3),1", 2), Some(2));
        assert_eq!(tasks_on_node("2(x3),1", 3), Some(1));
        assert_eq!(tasks_on_node("2(x3),1", 4), None);
        assert_eq!(tasks_on_node("2(x", 0), None);
        assert_eq!(tasks_on_node("many", 0), None);
    }

    #[test]
    fn the_parent_is_the_launcher_if_it_has_no_rank() {
        let launcher = find_launcher("PEGEL_TEST_NO_SUCH_RANK").expect("a parent");
        assert_eq!(launcher.pid, std::os::unix::process::parent_id());
        assert!(launcher.is_running());
        assert!(launcher.start_time().expect("readable") <= SystemTime::now());
        let other = LauncherProcess {
            start: 1,
            ..launcher
        };
        assert!(!other.is_running() || launcher.start == 1);
    }
}
