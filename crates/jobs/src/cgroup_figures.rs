//! What a cgroup may use and has used, for both versions.

use std::path::{Path, PathBuf};

use pegel_machine::{CGROUP_UNLIMITED_BYTES, key_value};
use pegel_plain_file::read_plain;

use crate::cgroup_hierarchies::{CgroupHierarchy, group_directory};
use crate::cgroup_paths::HierarchyVersion;
use crate::cpu_ranges::CpuRanges;
use crate::interval::JobInterval;

/// Files of a cgroup are small; a list of devices is the longest.
const FILE_BYTES_MAX: u64 = 64 << 10;
/// The device numbers of GPUs: /dev/nvidiaN and /dev/dri/cardN.
const NVIDIA_MAJOR: u32 = 195;
const DRM_MAJOR: u32 = 226;
/// Larger minor numbers are no GPUs: nvidiactl, render nodes.
const GPU_MINOR_MAX: u32 = 64;

/// The directories of one cgroup.
#[derive(Debug)]
pub(crate) struct CgroupFiles<'a> {
    hierarchies: &'a [CgroupHierarchy],
    path: &'a str,
}

impl<'a> CgroupFiles<'a> {
    pub(crate) fn new(hierarchies: &'a [CgroupHierarchy], path: &'a str) -> CgroupFiles<'a> {
        CgroupFiles { hierarchies, path }
    }

    /// Returns the directory in the hierarchy of v2, or in that of a controller of v1.
    fn directory(&self, controller: Option<&str>) -> Option<PathBuf> {
        let mut hierarchies = self.hierarchies.iter();
        let found = hierarchies.find(|one| match controller {
            None => one.version == HierarchyVersion::V2,
            Some(controller) => one.controllers.contains(&controller),
        });
        Some(group_directory(&found?.root, self.path))
    }

    /// Reads a file of v2, else another one of a controller of v1.
    fn read(&self, v2: &str, (controller, v1): (&str, &str)) -> Option<Vec<u8>> {
        let of = |directory: Option<PathBuf>, name: &str| read(&directory?.join(name));
        of(self.directory(None), v2).or_else(|| of(self.directory(Some(controller)), v1))
    }

    /// Sets what the job holds: CPUs, GPUs (of v1 only) and the memory limit.
    pub(crate) fn read_limits(&self, job: &mut JobInterval) {
        let cpus = self.read("cpuset.cpus.effective", ("cpuset", "cpuset.effective_cpus"));
        let cpus = cpus.or_else(|| self.read("cpuset.cpus", ("cpuset", "cpuset.cpus")));
        let cpus = cpus.and_then(|text| CpuRanges::parse(&String::from_utf8_lossy(&text)));
        job.cpus = cpus.or(job.cpus.take());
        // The hierarchies of v1 are removed in turn: what was known stays known.
        if let Some(limit) = self.read("memory.max", ("memory", "memory.limit_in_bytes")) {
            job.memory_limit = number(&limit).filter(|bytes| *bytes < CGROUP_UNLIMITED_BYTES);
        }
        let devices = self.directory(Some("devices"));
        let devices = devices.and_then(|directory| read(&directory.join("devices.list")));
        if let Some(devices) = devices {
            job.gpus = gpus_of_devices(&String::from_utf8_lossy(&devices)).or(job.gpus.take());
        }
    }

    /// Updates what the job has used. Figures that cannot be read keep their last values.
    pub(crate) fn read_usage(&self, job: &mut JobInterval) {
        let peak = self.read("memory.peak", ("memory", "memory.max_usage_in_bytes"));
        // Before Linux 5.19 there is no peak: the highest of the values that were seen.
        let peak =
            peak.or_else(|| self.read("memory.current", ("memory", "memory.usage_in_bytes")));
        if let Some(bytes) = peak.as_deref().and_then(number) {
            job.memory_peak = Some(job.memory_peak.map_or(bytes, |known| known.max(bytes)));
        }
        if let Some(seconds) = self.cpu_seconds() {
            job.cpu_seconds = Some(job.cpu_seconds.map_or(seconds, |known| known.max(seconds)));
        }
    }

    fn cpu_seconds(&self) -> Option<f64> {
        if let Some(text) = self
            .directory(None)
            .and_then(|dir| read(&dir.join("cpu.stat")))
        {
            return Some(key_value(&text, "usage_usec")? as f64 / 1e6);
        }
        let usage = read(&self.directory(Some("cpuacct"))?.join("cpuacct.usage"))?;
        Some(number(&usage)? as f64 / 1e9)
    }

    /// Returns whether the kernel killed a process of the job because of its memory limit.
    pub(crate) fn has_oom_kill(&self) -> bool {
        let text = self.read("memory.events", ("memory", "memory.oom_control"));
        text.is_some_and(|text| key_value(&text, "oom_kill").is_some_and(|count| count > 0))
    }

    /// Returns the directories of this cgroup in all hierarchies.
    pub(crate) fn directories(&self) -> impl Iterator<Item = PathBuf> {
        { self.hierarchies.iter() }.map(|one| group_directory(&one.root, self.path))
    }
}

fn read(path: &Path) -> Option<Vec<u8>> {
    read_plain(path, FILE_BYTES_MAX).ok()
}

/// Parses a file with one number.
fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.trim().parse().ok()
}

/// Returns the GPUs in a list of permitted devices; `None` if all devices are permitted.
fn gpus_of_devices(list: &str) -> Option<Box<[Box<str>]>> {
    let mut gpus: Vec<Box<str>> = Vec::new();
    for line in list.lines() {
        let mut words = line.split_ascii_whitespace();
        if words.next()? == "a" {
            return None;
        }
        let Some((major, minor)) = words.next().and_then(|device| device.split_once(':')) else {
            continue;
        };
        let (Ok(major), Ok(minor)) = (major.parse::<u32>(), minor.parse::<u32>()) else {
            continue;
        };
        match major {
            NVIDIA_MAJOR if minor < GPU_MINOR_MAX => gpus.push(minor.to_string().into()),
            DRM_MAJOR if minor < GPU_MINOR_MAX => gpus.push(format!("card{minor}").into()),
            _ => {}
        }
    }
    Some(gpus.into())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use pegel_testkit::TempDir;

    use super::*;
    use crate::cgroup_hierarchies::find_hierarchies;
    use crate::interval::JobOrigin;

    fn job_at(files: &[(&str, &str)], path: &str) -> (JobInterval, bool) {
        let dir = TempDir::new();
        for (name, text) in files {
            let file = dir.join(name);
            fs::create_dir_all(file.parent().expect("a parent")).expect("made");
            fs::write(file, text).expect("written");
        }
        let hierarchies = find_hierarchies(dir.path());
        let files = CgroupFiles::new(&hierarchies, path);
        let mut job = JobInterval::new("7", "slurm", JobOrigin::Cgroup, 0);
        files.read_limits(&mut job);
        files.read_usage(&mut job);
        (job, files.has_oom_kill())
    }

    #[test]
    fn figures_of_version_2_are_read() {
        let (job, has_oom_kill) = job_at(
            &[
                ("cgroup.controllers", "cpu memory"),
                ("j/cpuset.cpus.effective", "0-3\n"),
                ("j/memory.max", "1048576\n"),
                ("j/memory.peak", "4096\n"),
                ("j/cpu.stat", "usage_usec 2500000\nuser_usec 1\n"),
                ("j/memory.events", "low 0\noom_kill 1\n"),
            ],
            "/j",
        );
        assert_eq!(job.cpus.expect("CPUs").to_string(), "0-3");
        assert_eq!(
            (job.memory_limit, job.memory_peak),
            (Some(1 << 20), Some(4096))
        );
        assert_eq!((job.cpu_seconds, has_oom_kill), (Some(2.5), true));
        let old = [
            ("cgroup.controllers", ""),
            ("j/memory.max", "max\n"),
            ("j/memory.current", "77\n"),
        ];
        let (job, _) = job_at(&old, "/j");
        assert_eq!((job.memory_limit, job.memory_peak), (None, Some(77)));
    }

    #[test]
    fn figures_of_version_1_are_read() {
        let (job, has_oom_kill) = job_at(
            &[
                ("cpuset/j/cpuset.cpus", "8\n"),
                ("memory/j/memory.limit_in_bytes", "9223372036854771712\n"),
                ("memory/j/memory.max_usage_in_bytes", "4096\n"),
                ("memory/j/memory.oom_control", "under_oom 0\noom_kill 0\n"),
                ("cpuacct/j/cpuacct.usage", "1500000000\n"),
                (
                    "devices/j/devices.list",
                    "c 195:1 rw\nc 195:255 rw\nc 226:0 rw\nc 226:128 rw\n",
                ),
            ],
            "/j",
        );
        assert_eq!(job.cpus.expect("CPUs").to_string(), "8");
        assert_eq!((job.memory_limit, job.memory_peak), (None, Some(4096)));
        assert_eq!((job.cpu_seconds, has_oom_kill), (Some(1.5), false));
        assert_eq!(job.gpus.expect("GPUs"), ["1".into(), "card0".into()].into());
        assert_eq!(gpus_of_devices("a *:* rwm\n"), None);
    }
}
