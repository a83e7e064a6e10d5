//! A machine whose scheduler creates cgroups for jobs: a directory in place of `/sys/fs/cgroup`.

use std::fs;
use std::path::{Path, PathBuf};

use crate::TempDir;

/// The root of a simulated machine, for `PEGEL_ROOT`.
#[derive(Debug)]
pub struct JobCgroups {
    root: TempDir,
}

impl JobCgroups {
    /// The directory of Slurm's jobs in cgroups v2.
    pub const SLURM: &str = "system.slice/slurmstepd.scope";

    /// Creates a machine with cgroups v2 and four processors.
    pub fn v2() -> JobCgroups {
        let cgroups = JobCgroups::empty();
        cgroups.write("sys/fs/cgroup/cgroup.controllers", "cpuset cpu memory\n");
        let scope = cgroups.group(JobCgroups::SLURM);
        fs::create_dir_all(scope).expect("made");
        cgroups
    }

    /// Creates a machine with the hierarchies of cgroups v1.
    pub fn v1() -> JobCgroups {
        let cgroups = JobCgroups::empty();
        for controller in ["memory", "cpuset", "cpuacct", "freezer"] {
            fs::create_dir_all(cgroups.group(controller)).expect("made");
        }
        cgroups
    }

    fn empty() -> JobCgroups {
        let cgroups = JobCgroups {
            root: TempDir::new(),
        };
        let cpus = (0..4).map(|cpu| format!("cpu{cpu} {cpu}00 0 50 900 0 0 0 0 0 0\n"));
        let stat = format!(
            "cpu 600 0 200 3600 0 0 0 0 0 0\n{}btime 1000\n",
            cpus.collect::<String>()
        );
        cgroups.write("proc/stat", &stat);
        cgroups
    }

    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// Returns the directory of a cgroup.
    pub fn group(&self, group: &str) -> PathBuf {
        self.root.join("sys/fs/cgroup").join(group)
    }

    /// Writes a file of the machine.
    pub fn write(&self, name: &str, text: &str) {
        let path = self.root.join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        fs::write(path, text).expect("written");
    }

    /// Creates a cgroup with files, as the kernel does when a scheduler creates the directory.
    pub fn begin(&self, group: &str, files: &[(&str, &str)]) {
        let directory = self.group(group);
        fs::create_dir_all(&directory).expect("made");
        for (name, text) in files {
            fs::write(directory.join(name), text).expect("written");
        }
    }

    /// Removes a cgroup with those below it.
    pub fn end(&self, group: &str) {
        fs::remove_dir_all(self.group(group)).expect("removed");
    }
}
