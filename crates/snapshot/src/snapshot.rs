//! The whole, and how it is taken.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::azure_batch::{self, AzureBatch};
use crate::cgroup::{self, Cgroup};
use crate::cloud::{Cloud, Question};
use crate::configuration::Configuration;
use crate::cpu::{self, Cpu};
use crate::disks::{self, Disk, Nvme};
use crate::environment::Environment;
use crate::firmware::{self, Firmware};
use crate::gpus::{self, Gpu};
use crate::interconnects::{self, Adapter};
use crate::job::{self, Job};
use crate::kernel::{self, Kernel};
use crate::machine::{Machine, Unreadable};
use crate::memory::{self, Memory};
use crate::moment::Moment;
use crate::mounts::{self, Mount};
use crate::network::{self, Interface};
use crate::page;

/// Grows when a key changes its meaning or goes away.
pub const FORMAT: u32 = 1;

/// A machine at one moment.
#[derive(Debug, Clone, Serialize)]
pub struct Snapshot {
    pub format: u32,
    pub taken: Moment,
    pub node: String,
    pub pegel: String,
    pub firmware: Firmware,
    pub cpu: Cpu,
    pub memory: Memory,
    pub kernel: Kernel,
    pub gpus: Vec<Gpu>,
    pub network: Vec<Interface>,
    pub interconnects: Vec<Adapter>,
    pub disks: Vec<Disk>,
    pub nvme: Vec<Nvme>,
    pub mounts: Vec<Mount>,
    pub cgroup: Cgroup,
    pub cloud: Option<Cloud>,
    pub azure_batch: Option<AzureBatch>,
    pub job: Option<Job>,
    pub environment: BTreeMap<String, String>,
    pub configuration: Option<Configuration>,
    /// What is there and may not be read.
    pub unreadable: Vec<Unreadable>,
}

/// What is looked at, and by whom.
#[derive(Debug, Clone)]
pub struct Subject {
    /// `/`, or where the files of another machine are.
    pub root: PathBuf,
    pub node: String,
    pub version: String,
    pub environment: Environment,
    pub configuration: Option<Configuration>,
    pub azure_batch_log: PathBuf,
    /// Whether the metadata service of a cloud may be asked.
    pub cloud: bool,
}

impl Subject {
    /// Reads the machine. The cloud is not asked: that may take seconds.
    pub fn look(&self, taken: Moment, cloud: Option<Cloud>) -> Snapshot {
        let machine = Machine::at(&self.root);
        let cpu = cpu::read(&machine);
        let environment = |name: &str| self.environment.get(name).map(str::to_owned);
        let cgroups = machine.text("proc/self/cgroup").unwrap_or_default();
        let mut job = job::identity(&environment, &cgroups);
        if let Some(job) = &mut job {
            job::find_number(job, &machine, &cgroups);
        }
        let mut snapshot = Snapshot {
            format: FORMAT,
            taken,
            node: self.node.clone(),
            pegel: self.version.clone(),
            firmware: firmware::read(&machine, &cpu.flags),
            memory: memory::read(&machine),
            kernel: kernel::read(&machine),
            gpus: gpus::read(&machine),
            network: network::read(&machine),
            interconnects: interconnects::read(&machine),
            disks: disks::read(&machine),
            nvme: disks::nvme(&machine),
            mounts: mounts::read(&machine),
            cgroup: cgroup::read(&machine),
            cloud,
            azure_batch: azure_batch::read(&machine, &self.azure_batch_log),
            job,
            environment: self.environment.allowed(),
            configuration: self.configuration.clone(),
            unreadable: Vec::new(),
            cpu,
        };
        snapshot.unreadable = machine.unreadable();
        snapshot
    }

    /// Reads the machine and, where there is one, asks its cloud for facts.
    pub fn take(&self, taken: Moment) -> Snapshot {
        let mut snapshot = self.look(taken, None);
        snapshot.cloud = self.question(&snapshot).map(|question| question.ask());
        snapshot
    }

    pub(crate) fn question(&self, snapshot: &Snapshot) -> Option<Question> {
        let is_this_one = self.root == Path::new("/");
        let question = Question::new(&snapshot.firmware, &self.environment, is_this_one);
        question.filter(|_| self.cloud)
    }
}

impl Snapshot {
    pub fn json(&self) -> String {
        // Every part is made of text, numbers and lists: this cannot fail.
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }

    pub fn yaml(&self) -> String {
        serde_saphyr::to_string(self).unwrap_or_default()
    }

    /// One page for people, in Markdown.
    pub fn page(&self) -> String {
        page::page(self)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A machine without anything.
    pub(crate) fn subject(root: &Path) -> Subject {
        Subject {
            root: root.to_owned(),
            node: "n1".to_owned(),
            version: "0.0.0".to_owned(),
            environment: Environment::default(),
            configuration: None,
            azure_batch_log: PathBuf::from("/mnt/batch/sys/logs/agent-debug.log"),
            cloud: true,
        }
    }

    #[test]
    fn a_machine_without_any_file_is_quiet() {
        let root = pegel_testkit::TempDir::new();
        let snapshot = subject(root.path()).take(Moment(0));
        assert_eq!((snapshot.cpu.threads, snapshot.gpus.len()), (0, 0));
        assert!(snapshot.cloud.is_none() && snapshot.job.is_none());
        assert_eq!(snapshot.unreadable, []);
        assert!(snapshot.page().starts_with("# n1\n"), "{}", snapshot.page());
    }
}
