//! Which processes belong to a task.

use std::collections::HashMap;

use pegel_machine::{MachineFiles, ProcDir, ProcessStat};
use serde::{Deserialize, Serialize};

use super::own_cgroup::TaskCgroups;

/// Longer than any `stat` file of a process.
const STAT_BYTES: usize = 1024;
/// The most parents that are followed from a process upwards.
const PARENTS_MAX: usize = 256;

/// A process. The start time, in ticks since boot, distinguishes it from a later one with the same
/// ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProcessKey {
    pub pid: u32,
    pub start_ticks: u64,
}

/// The processes of a task: those in its own cgroup, and the descendants of its root process.
///
/// A cgroup is the task's own in two cases. Either a batch system or a container runtime created
/// it for one job or one container and named it so: Slurm (by number or SLUID), PBS, LSF, Flux,
/// HTCondor, ECS, Kubernetes, and containers with an ID of 64 hexadecimal digits (Docker,
/// containerd, CRI-O, Podman); then the group of the job or container is used, not the one of a
/// step in it. The root of a container's cgroup namespace is such a group too. Or, at the start,
/// the process's cgroup contains no process but the root process, its descendants and this agent;
/// that is how the groups of Azure Batch and of `systemd-run` are found. The root group of a
/// machine, slices, login sessions (`session-N.scope`) and user managers are never a task's own.
/// With cgroups v1 each controller is decided by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskScope {
    /// The boot that the start times refer to.
    pub(super) boot_id: Option<String>,
    pub(super) root: ProcessKey,
    pub(super) name: String,
    /// Parents of the root process, which may be in its cgroup but do not belong to the task.
    pub(super) ancestors: Vec<ProcessKey>,
    pub(super) cgroups: TaskCgroups,
}

impl TaskScope {
    /// Finds the task of a process, which becomes its root process. That is the process whose end
    /// is the end of the task: the shell that calls `pegel session start`, not the command itself.
    /// Returns `None` if there is no such process.
    pub fn of_process(machine: &MachineFiles, pid: u32) -> Option<TaskScope> {
        let proc = ProcDir::open(&machine.resolve("proc")).ok()?;
        let mut lineage = Lineage::new(&proc, pid);
        let (root, name) = lineage.read(pid)?;
        let ancestors = lineage.ancestors(pid);
        let cgroups = TaskCgroups::of_process(machine, pid, &mut lineage);
        Some(TaskScope {
            boot_id: boot_id(machine),
            root,
            name,
            ancestors,
            cgroups,
        })
    }

    pub fn root(&self) -> ProcessKey {
        self.root
    }

    /// Returns the name of the root process at the start.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the path of the task's own cgroup: of the memory controller, if it has one.
    pub fn own_cgroup(&self) -> Option<&str> {
        self.cgroups.population()?.own_path()
    }

    /// Leaves only the process tree: for a task that shares its job's or container's cgroup with
    /// other tasks that run at the same time.
    pub fn disown_cgroups(&mut self) {
        self.cgroups.disown();
    }

    /// Whether the processes are of the present boot.
    pub(super) fn is_this_boot(&self, machine: &MachineFiles) -> bool {
        let now = boot_id(machine);
        now.is_none() || self.boot_id.is_none() || now == self.boot_id
    }
}

fn boot_id(machine: &MachineFiles) -> Option<String> {
    machine.text("proc/sys/kernel/random/boot_id")
}

/// Parents of processes, read when they are needed.
#[derive(Debug)]
pub(super) struct Lineage<'a> {
    proc: &'a ProcDir,
    root: u32,
    /// Whether processes that were looked up descend from the root process.
    known: HashMap<u32, bool>,
}

impl<'a> Lineage<'a> {
    fn new(proc: &'a ProcDir, root: u32) -> Lineage<'a> {
        Lineage {
            proc,
            root,
            known: HashMap::from([(root, true)]),
        }
    }

    /// Whether a process is the root process, one of its descendants, or has ended.
    pub(super) fn is_descendant(&mut self, pid: u32) -> bool {
        let mut path = Vec::new();
        let mut current = pid;
        let found = loop {
            if let Some(known) = self.known.get(&current) {
                break *known;
            }
            if current <= 1 || path.len() >= PARENTS_MAX {
                break false;
            }
            path.push(current);
            match self.parent(current) {
                Some(parent) => current = parent,
                // It has ended: harmless for the process itself, unknown for a parent.
                None => break path.len() == 1,
            }
        };
        self.known.extend(path.into_iter().map(|pid| (pid, found)));
        found
    }

    fn read(&self, pid: u32) -> Option<(ProcessKey, String)> {
        let mut text = [0; STAT_BYTES];
        let length = self.proc.read(pid, "stat", &mut text).ok()?;
        let stat = ProcessStat::parse(&text[..length])?;
        let key = ProcessKey {
            pid,
            start_ticks: stat.start_ticks,
        };
        Some((key, super::task_process::printable_name(stat.comm)))
    }

    fn parent(&self, pid: u32) -> Option<u32> {
        let mut text = [0; STAT_BYTES];
        let length = self.proc.read(pid, "stat", &mut text).ok()?;
        Some(ProcessStat::parse(&text[..length])?.parent)
    }

    /// Returns the parents of the root process, the nearest first.
    fn ancestors(&self, pid: u32) -> Vec<ProcessKey> {
        let mut ancestors: Vec<ProcessKey> = Vec::new();
        let mut next = self.parent(pid);
        while let Some(parent) = next
            && parent != 0
            && ancestors.len() < PARENTS_MAX
            && ancestors.iter().all(|known| known.pid != parent)
            && parent != self.root
        {
            let Some((key, _)) = self.read(parent) else {
                break;
            };
            ancestors.push(key);
            next = self.parent(parent);
        }
        ancestors
    }
}
