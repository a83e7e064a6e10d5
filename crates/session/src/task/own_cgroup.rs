//! The cgroups of a task, and whether they are its own; [`TaskScope`](super::TaskScope) states the
//! rule.

use pegel_machine::{
    MachineFiles, cgroup_ancestors, cgroup_lines, cgroup_v1_mount, cgroup_v2_mount,
};
use pegel_metric::slurm::is_number;
use pegel_snapshot::job::job_cgroup;
use serde::{Deserialize, Serialize};

use super::scope::Lineage;

/// The most directories of a cgroup that are searched for processes.
const DIRECTORIES_MAX: usize = 512;
/// The most processes of a cgroup that are listed.
const PROCESSES_MAX: usize = 16_384;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum CgroupVersion {
    V1,
    V2,
}

/// The cgroup of the task's root process in one hierarchy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TaskCgroup {
    pub version: CgroupVersion,
    mount: String,
    /// Of the root process at the start; limits apply from here up.
    path: String,
    /// The path up to the group that is the task's own; usage is read there.
    own: Option<String>,
}

/// The cgroup for each resource.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TaskCgroups {
    pub memory: Option<TaskCgroup>,
    pub cpu_time: Option<TaskCgroup>,
    pub cpu_limit: Option<TaskCgroup>,
    pub cpuset: Option<TaskCgroup>,
    pub io: Option<TaskCgroup>,
    pub pids: Option<TaskCgroup>,
    /// The group of version 2: has pressure, and `cgroup.events` shows whether processes are left.
    v2: Option<TaskCgroup>,
}

impl TaskCgroups {
    pub(super) fn of_process(
        machine: &MachineFiles,
        pid: u32,
        lineage: &mut Lineage<'_>,
    ) -> TaskCgroups {
        let text = machine.text(format!("proc/{pid}/cgroup"));
        let text = text.unwrap_or_default();
        let lines: Vec<(&str, &str)> = cgroup_lines(&text).take(64).collect();
        let mut find = CgroupFinder {
            machine,
            pid,
            lineage,
        };
        let unified = lines.iter().find(|(controllers, _)| controllers.is_empty());
        let v2 = unified
            .and_then(|(_, path)| find.group(CgroupVersion::V2, cgroup_v2_mount(machine)?, path));
        let mut of = |controller: &str, v2_file: &str| {
            let v2 = v2.clone().filter(|group| {
                let folder = group.own_folder().unwrap_or_else(|| group.folder());
                machine.exists(format!("{folder}/{v2_file}"))
            });
            let is_own = |group: &TaskCgroup| group.own.is_some();
            if v2.as_ref().is_some_and(is_own) {
                return v2;
            }
            let v1 = cgroup_v1_mount(machine, &lines, controller)
                .and_then(|(mount, path)| find.group(CgroupVersion::V1, mount, &path));
            if v1.as_ref().is_some_and(is_own) {
                return v1;
            }
            v2.or(v1)
        };
        TaskCgroups {
            memory: of("memory", "memory.current"),
            cpu_time: of("cpuacct", "cpu.stat"),
            cpu_limit: of("cpu", "cpu.max"),
            cpuset: of("cpuset", "cpuset.cpus.effective"),
            io: of("blkio", "io.stat"),
            pids: of("pids", "pids.current"),
            v2,
        }
    }

    /// Returns the own group whose processes are listed, if there is one.
    pub(super) fn population(&self) -> Option<&TaskCgroup> {
        let groups = [&self.memory, &self.v2, &self.pids, &self.cpu_time, &self.io];
        groups
            .into_iter()
            .flatten()
            .find(|group| group.own.is_some())
    }

    /// Returns the group whose pressure is known.
    pub(super) fn pressure(&self) -> Option<&TaskCgroup> {
        self.v2.as_ref()
    }

    /// Whether own groups account for memory, CPU time and I/O.
    pub(super) fn are_complete(&self) -> bool {
        let all = [&self.memory, &self.cpu_time, &self.io];
        all.into_iter()
            .all(|group| group.as_ref().is_some_and(|group| group.own.is_some()))
    }

    pub(super) fn disown(&mut self) {
        let all = [
            &mut self.memory,
            &mut self.cpu_time,
            &mut self.cpu_limit,
            &mut self.cpuset,
            &mut self.io,
            &mut self.pids,
            &mut self.v2,
        ];
        for group in all.into_iter().flatten() {
            group.own = None;
        }
    }
}

impl TaskCgroup {
    /// Returns the directory of the root process's group.
    pub(super) fn folder(&self) -> String {
        format!("{}{}", self.mount, self.path)
    }

    pub(super) fn path(&self) -> &str {
        display_path(&self.path)
    }

    pub(super) fn own_folder(&self) -> Option<String> {
        Some(format!("{}{}", self.mount, self.own.as_ref()?))
    }

    pub(super) fn own_path(&self) -> Option<&str> {
        self.own.as_deref().map(display_path)
    }

    /// Returns path and directory of the root process's group and of all groups above it.
    pub(super) fn ancestors(&self) -> Vec<(String, String)> {
        let folders = cgroup_ancestors(&self.mount, &self.path);
        let with_path = |folder: String| {
            let path = folder.strip_prefix(&self.mount).unwrap_or_default();
            (display_path(path).to_owned(), folder)
        };
        folders.into_iter().map(with_path).collect()
    }

    /// Returns the processes of the own group and of the groups below it; `None` if it was
    /// removed.
    pub(super) fn processes(&self, machine: &MachineFiles) -> Option<Vec<u32>> {
        group_processes(machine, &self.own_folder()?)
    }

    /// Returns the own group's directory and those below it.
    pub(super) fn own_subtree(&self, machine: &MachineFiles) -> Vec<String> {
        let own = self.own_folder();
        own.map(|own| subtree(machine, own)).unwrap_or_default()
    }
}

fn display_path(path: &str) -> &str {
    if path.is_empty() { "/" } else { path }
}

/// Finds groups of one process.
struct CgroupFinder<'a, 'b> {
    machine: &'a MachineFiles,
    pid: u32,
    lineage: &'a mut Lineage<'b>,
}

impl CgroupFinder<'_, '_> {
    fn group(&mut self, version: CgroupVersion, mount: String, path: &str) -> Option<TaskCgroup> {
        let mut path = path.trim_end_matches('/');
        // The kernel writes `/..` for a group outside of this process's cgroup namespace.
        if path.split('/').any(|part| part == "..") {
            return None;
        }
        if !self.machine.exists(format!("{mount}{path}")) {
            // In a container without a cgroup namespace, the mount is the container's group.
            let processes = group_processes(self.machine, &mount)?;
            processes.contains(&self.pid).then_some(())?;
            path = "";
        }
        let own = self.own_group(version, &mount, path);
        Some(TaskCgroup {
            version,
            mount,
            path: path.to_owned(),
            own,
        })
    }

    fn own_group(&mut self, version: CgroupVersion, mount: &str, path: &str) -> Option<String> {
        let is_there = |group: &&str| self.machine.exists(format!("{mount}{group}"));
        if path.is_empty() {
            let has = |file: &str| self.machine.exists(format!("{mount}/{file}"));
            let is_container = match version {
                CgroupVersion::V1 => !has("release_agent") && has("cgroup.procs"),
                CgroupVersion::V2 => has("cgroup.events"),
            };
            return is_container.then(String::new);
        }
        if let Some(named) = named_group(path).filter(is_there) {
            return Some(named.to_owned());
        }
        (!is_shared_name(path) && self.is_exclusive(&format!("{mount}{path}")))
            .then(|| path.to_owned())
    }

    /// Whether all processes of a group belong to the task or are this agent.
    fn is_exclusive(&mut self, folder: &str) -> bool {
        let processes = group_processes(self.machine, folder).unwrap_or_default();
        let agent = agent_processes(self.machine);
        // A truncated list proves nothing.
        (1..PROCESSES_MAX).contains(&processes.len())
            && processes
                .into_iter()
                .all(|pid| agent.contains(&pid) || self.lineage.is_descendant(pid))
    }
}

/// Returns the path up to the group of a job or container.
fn named_group(path: &str) -> Option<&str> {
    if let Some(group) = job_cgroup(path) {
        return Some(group);
    }
    let mut end = 0;
    for part in path.split_inclusive('/') {
        end += part.len();
        let name = part.trim_end_matches('/');
        if is_container(name) || is_flux_shell(name) {
            return Some(path[..end].trim_end_matches('/'));
        }
    }
    None
}

/// `docker-<id>.scope`, `libpod-<id>.scope`, `/docker/<id>`.
fn is_container(name: &str) -> bool {
    let name = name.strip_suffix(".scope").unwrap_or(name);
    let id = name.rsplit('-').next().unwrap_or_default();
    id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// `imp-shell-0-f2Yxyz.service`: the unit of a job's shell, where Flux uses systemd.
fn is_flux_shell(name: &str) -> bool {
    let unit = name.strip_suffix(".service").unwrap_or_default();
    let job = unit.strip_prefix("imp-").unwrap_or(unit);
    let job = job
        .strip_prefix("shell-")
        .and_then(|job| job.split_once('-'));
    job.is_some_and(|(rank, id)| is_number(rank) && !id.is_empty())
}

/// Whether systemd gives such a name to a group of more than one task.
fn is_shared_name(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    let is_login = name.starts_with("session-") && name.ends_with(".scope");
    let is_manager = name.starts_with("user@") && name.ends_with(".service");
    is_login || is_manager || name == "init.scope" || name.ends_with(".slice")
}

/// Returns this process and its parent, which restarts it: they may be in the task's cgroup but do
/// not belong to the task. None in a fixture tree.
pub(super) fn agent_processes(machine: &MachineFiles) -> Vec<u32> {
    if !machine.is_local() {
        return Vec::new();
    }
    let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get());
    let parent = parent.and_then(|pid| u32::try_from(pid).ok());
    let parent = parent.filter(|parent| *parent > 1);
    [std::process::id()].into_iter().chain(parent).collect()
}

fn group_processes(machine: &MachineFiles, folder: &str) -> Option<Vec<u32>> {
    machine.exists(folder).then_some(())?;
    let mut processes = Vec::new();
    for folder in subtree(machine, folder.to_owned()) {
        let text = machine.text(format!("{folder}/cgroup.procs"));
        let text = text.unwrap_or_default();
        let pids = text.lines().filter_map(|line| line.parse::<u32>().ok());
        processes.extend(pids.take(PROCESSES_MAX - processes.len()));
    }
    processes.sort_unstable();
    processes.dedup();
    Some(processes)
}

fn subtree(machine: &MachineFiles, folder: String) -> Vec<String> {
    let mut folders = vec![folder];
    let mut next = 0;
    while next < folders.len() {
        let folder = folders[next].clone();
        let names = machine.directory_names(&folder);
        let room = DIRECTORIES_MAX - folders.len();
        let below = names.into_iter().map(|name| format!("{folder}/{name}"));
        folders.extend(below.take(room));
        next += 1;
    }
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[rustfmt::skip]
    fn jobs_and_containers_are_known_by_their_path() {
        let id = "0123456789abcdef".repeat(4);
        let docker = format!("/system.slice/docker-{id}.scope");
        let inner = format!("/docker/{id}/x");
        for (path, expected) in [
            (&*docker, Some(&*docker)),
            (&inner, inner.strip_suffix("/x")),
            ("/slurm/uid_1/job_7/step_0/task_1", Some("/slurm/uid_1/job_7")),
            ("/user.slice/user@997.service/app.slice/imp-shell-0-f2Yx.service/x",
             Some("/user.slice/user@997.service/app.slice/imp-shell-0-f2Yx.service")),
            ("/system.slice/sshd.service", None),
            ("/user.slice/user-0.slice/session-3.scope", None),
            ("/x/0123", None),
        ] {
            assert_eq!(named_group(path), expected, "{path}");
        }
    }

    #[test]
    fn slices_and_login_sessions_are_shared() {
        for path in [
            "/user.slice",
            "/user.slice/user-0.slice/session-3.scope",
            "/user.slice/user-0.slice/user@0.service",
            "/init.scope",
        ] {
            assert!(is_shared_name(path), "{path}");
        }
        for path in ["/system.slice/run-u7.scope", "/x/task-3.service", "/a"] {
            assert!(!is_shared_name(path), "{path}");
        }
    }
}
