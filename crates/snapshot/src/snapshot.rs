//! The snapshot as a whole: its structure, how it is read from a machine, and its output formats.
//!
//! Called by the snapshot worker of an agent and by `pegel snapshot`. Reading the machine never
//! fails and never touches the network; only [`SnapshotOptions::take`] queries the cloud.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::azure_batch::{self, AzureBatch};
use crate::cgroup::{self, CgroupLimits};
use crate::cloud::{CloudInfo, MetadataTarget};
use crate::cpu::{self, CpuInfo};
use crate::disks::{self, DiskInfo, NvmeController};
use crate::environment::ProcessEnvironment;
use crate::firmware::{self, Firmware};
use crate::gpus::{self, GpuInfo};
use crate::interconnects::{self, InterconnectAdapter};
use crate::job::{self, Job};
use crate::kernel::{self, KernelInfo};
use crate::markdown;
use crate::memory::{self, MemoryInfo};
use crate::mounts::{self, MountedFilesystem};
use crate::network::{self, InterfaceInfo};
use crate::once_inputs::{OnceInputValues, OnceInputs};
use crate::redacted_config::RedactedConfig;
use crate::settings::SnapshotSettings;
use crate::timestamp::Timestamp;
use pegel_machine::MachineFiles;

/// The version of the JSON format. It is incremented when a key is removed or changes its meaning.
pub const SNAPSHOT_FORMAT: u32 = 1;

/// The description of a machine at one moment.
#[derive(Debug, Clone, Serialize)]
pub struct Snapshot {
    pub format: u32,
    pub taken: Timestamp,
    pub node: String,
    pub pegel: String,
    pub firmware: Firmware,
    pub cpu: CpuInfo,
    pub memory: MemoryInfo,
    pub kernel: KernelInfo,
    pub gpus: Vec<GpuInfo>,
    pub network: Vec<InterfaceInfo>,
    pub interconnects: Vec<InterconnectAdapter>,
    pub disks: Vec<DiskInfo>,
    pub nvme: Vec<NvmeController>,
    pub mounts: Vec<MountedFilesystem>,
    pub cgroup: CgroupLimits,
    pub cloud: Option<CloudInfo>,
    pub azure_batch: Option<AzureBatch>,
    pub job: Option<Job>,
    pub environment: BTreeMap<String, String>,
    pub configuration: Option<RedactedConfig>,
    /// The values of programs that the agent runs once, by the name of the input.
    #[serde(skip_serializing_if = "OnceInputValues::is_empty")]
    pub inputs: OnceInputValues,
    /// Files and directories that exist but are not readable.
    pub unreadable: Vec<UnreadablePath>,
}

/// A file or directory that exists but could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnreadablePath {
    /// Absolute path on the machine itself, without the root.
    pub path: PathBuf,
    pub why: &'static str,
    /// How to make it readable.
    pub hint: &'static str,
}

/// The machine to read, and the properties of the agent that go into the snapshot.
#[derive(Debug, Clone)]
pub struct SnapshotOptions {
    /// `/`, or the directory with the files of another machine.
    pub root: PathBuf,
    pub node: String,
    pub version: String,
    pub environment: ProcessEnvironment,
    pub configuration: Option<RedactedConfig>,
    pub settings: SnapshotSettings,
    /// The values of programs that the agent runs once.
    pub once_inputs: OnceInputs,
}

impl SnapshotOptions {
    /// Reads the machine. Does not query the cloud, which may take seconds.
    pub fn read_machine(&self, taken: Timestamp, cloud: Option<CloudInfo>) -> Snapshot {
        let machine = MachineFiles::at(&self.root);
        let cpu = cpu::read(&machine);
        let environment = |name: &str| self.environment.get(name).map(str::to_owned);
        let cgroups = machine.text("proc/self/cgroup").unwrap_or_default();
        let mut job = job::detect_job(&environment, &cgroups);
        if let Some(job) = &mut job {
            job::resolve_slurm_job_id(job, &machine, &cgroups);
        }
        let mut snapshot = Snapshot {
            format: SNAPSHOT_FORMAT,
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
            nvme: disks::read_nvme(&machine),
            mounts: mounts::read(&machine),
            cgroup: cgroup::read(&machine),
            cloud,
            azure_batch: azure_batch::read(&machine, &self.settings.azure_batch_log),
            job,
            environment: self.environment.allowed_variables(),
            configuration: self.configuration.clone(),
            inputs: self.once_inputs.values(),
            unreadable: Vec::new(),
            cpu,
        };
        let unreadable = machine.unreadable().into_iter().map(|path| UnreadablePath {
            path,
            why: "permission denied",
            hint: "run as root, or grant the agent's user read permission",
        });
        snapshot.unreadable = unreadable.collect();
        snapshot
    }

    /// Reads the machine and queries its cloud, if there is one.
    pub fn take(&self, taken: Timestamp) -> Snapshot {
        let mut snapshot = self.read_machine(taken, None);
        snapshot.cloud = self
            .metadata_target(&snapshot)
            .map(|target| target.fetch_facts());
        snapshot
    }

    pub(crate) fn metadata_target(&self, snapshot: &Snapshot) -> Option<MetadataTarget> {
        let is_local = self.root == Path::new("/");
        let target = MetadataTarget::new(&snapshot.firmware, &self.environment, is_local);
        target.filter(|_| self.settings.cloud)
    }
}

impl Snapshot {
    pub fn json(&self) -> String {
        // Cannot fail: all parts consist of strings, numbers, lists and maps with string keys.
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }

    pub fn yaml(&self) -> String {
        serde_saphyr::to_string(self).unwrap_or_default()
    }

    /// Renders the snapshot as one page of Markdown.
    pub fn markdown(&self) -> String {
        markdown::render(self)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Options for a machine whose files are below `root`.
    pub(crate) fn options(root: &Path) -> SnapshotOptions {
        SnapshotOptions {
            root: root.to_owned(),
            node: "n1".to_owned(),
            version: "0.0.0".to_owned(),
            environment: ProcessEnvironment::default(),
            configuration: None,
            settings: SnapshotSettings::default(),
            once_inputs: OnceInputs::default(),
        }
    }

    #[test]
    fn a_machine_without_files_gives_an_empty_snapshot() {
        let root = pegel_testkit::TempDir::new();
        let snapshot = options(root.path()).take(Timestamp(0));
        assert_eq!((snapshot.cpu.threads, snapshot.gpus.len()), (0, 0));
        assert!(snapshot.cloud.is_none() && snapshot.job.is_none());
        assert_eq!(snapshot.unreadable, []);
        assert!(
            snapshot.markdown().starts_with("# n1\n"),
            "{}",
            snapshot.markdown()
        );
    }
}
