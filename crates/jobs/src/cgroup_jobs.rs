//! Jobs with cgroups of their own: begins and ends them in the table as their directories appear
//! and disappear, and reads what they use while they run.
//!
//! Files of a removed cgroup cannot be read, not even through descriptors that are open. The
//! figures of a job are those of the last reading: when its last process left, when a step ended,
//! and at intervals that grow with its age from 25 ms to five seconds. A job that is gone when its
//! directory is first read has no figures, but its id, begin and end are known from the events.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use pegel_metric::Millis;

use crate::cgroup_figures::CgroupFiles;
use crate::cgroup_hierarchies::{CgroupHierarchy, find_hierarchies};
use crate::cgroup_paths::{job_of_path, uid_of_path};
use crate::cgroup_processes::{ProcFiles, complete_from_processes};
use crate::cgroup_watcher::{CgroupEvent, CgroupWatcher, JobDirectory};
use crate::interval::{JobInterval, JobOrigin};
use crate::job_end::JobEnd;
use crate::job_file::JobNumber;
use crate::jobs::Jobs;
use crate::worker::GpuSeconds;

/// Young jobs are read every second, older ones every five. In the first four seconds the time
/// between two readings is a quarter of the age of the job: short jobs have figures, too.
const YOUNG_MS: Millis = 30_000;
const NEW_MS: Millis = 4 * READ_INTERVAL_MS;
const FIRST_READ_INTERVAL_MS: Millis = 25;
const READ_INTERVAL_MS: Millis = 1_000;
const OLD_READ_INTERVAL_MS: Millis = 5_000;
/// How often the state of a running job is written to the file, and limits are read again.
const WRITE_INTERVAL_MS: Millis = 30_000;

/// A cgroup of a running job or step.
#[derive(Debug)]
struct TrackedGroup {
    number: JobNumber,
    /// The hierarchies with a directory of this job, as bits.
    hierarchies: u8,
    begin: Millis,
    /// When this agent saw the directory first.
    found: Millis,
    has_oom_kill: bool,
    next_read: Millis,
    next_write: Millis,
}

#[derive(Debug)]
pub(crate) struct CgroupJobs {
    mount: PathBuf,
    hierarchies: Vec<CgroupHierarchy>,
    pub(crate) watcher: CgroupWatcher,
    files: ProcFiles,
    gpu_seconds: GpuSeconds,
    groups: HashMap<String, TrackedGroup>,
}

impl CgroupJobs {
    /// Finds the jobs that run, and continues those of the table. `mount` is `sys/fs/cgroup`.
    pub(crate) fn open(
        mount: PathBuf,
        files: ProcFiles,
        gpu_seconds: GpuSeconds,
        jobs: &Jobs,
        now: Millis,
    ) -> CgroupJobs {
        let mut found = CgroupJobs {
            hierarchies: find_hierarchies(&mount),
            mount,
            watcher: CgroupWatcher::new(),
            files,
            gpu_seconds,
            groups: HashMap::new(),
        };
        found.resume(jobs);
        found.rescan(jobs, now);
        found
    }

    /// Continues the jobs of an earlier agent whose cgroups exist, and ends the others.
    fn resume(&mut self, jobs: &Jobs) {
        jobs.update(|state| {
            let known = state.running(|number, job| {
                (job.origin == JobOrigin::Cgroup).then(|| (number, job.clone()))
            });
            for (number, job) in known {
                let masks = self.present(&job.cgroup);
                let is_same = masks.iter().any(|(_, inode)| *inode == job.inode);
                let hierarchies = masks.iter().fold(0, |mask, (at, _)| mask | 1 << at);
                if !is_same || self.groups.contains_key(&*job.cgroup) {
                    state.end(number, job.seen, JobEnd::Lost);
                    continue;
                }
                let group = TrackedGroup {
                    number,
                    hierarchies,
                    begin: job.begin,
                    found: job.seen,
                    has_oom_kill: false,
                    next_read: 0,
                    next_write: 0,
                };
                self.groups.insert(job.cgroup.into(), group);
            }
        });
    }

    /// Returns the hierarchies that have a cgroup, and its inodes.
    fn present(&self, path: &str) -> Vec<(usize, u64)> {
        let files = CgroupFiles::new(&self.hierarchies, path);
        let directories = files.directories().enumerate();
        directories
            .filter_map(|(at, directory)| Some((at, fs::metadata(directory).ok()?.ino())))
            .collect()
    }

    /// Lists all directories: begins jobs that were not seen, and ends those that are gone.
    pub(crate) fn rescan(&mut self, jobs: &Jobs, now: Millis) {
        let hierarchies = find_hierarchies(&self.mount);
        if hierarchies != self.hierarchies && self.groups.is_empty() {
            self.hierarchies = hierarchies;
        }
        let mut found = Vec::new();
        for at in 0..self.hierarchies.len() {
            let root = JobDirectory::root(at);
            self.watcher.scan(&self.hierarchies, &root, &mut found);
        }
        let mut masks: HashMap<&str, u8> = HashMap::new();
        for directory in &found {
            *masks.entry(&directory.path).or_default() |= 1 << directory.hierarchy;
        }
        let gone: Vec<JobDirectory> = { self.groups.iter() }
            .flat_map(|(path, group)| {
                let missing = group.hierarchies & !masks.get(path.as_str()).unwrap_or(&0);
                let bits = (0..8).filter(move |at| missing & 1 << at != 0);
                bits.map(|hierarchy| JobDirectory {
                    hierarchy,
                    path: path.clone(),
                })
            })
            .collect();
        for directory in gone {
            self.remove(&directory, jobs, now);
        }
        for directory in found {
            self.add(&directory, jobs, now, true);
        }
    }

    /// Applies the changes that the kernel reported since the last call.
    pub(crate) fn apply_events(&mut self, jobs: &Jobs, now: Millis) {
        for event in self.watcher.read_events(&self.hierarchies) {
            match event {
                CgroupEvent::Found(directory) => {
                    self.add(&directory, jobs, now, false);
                    let mut below = Vec::new();
                    self.watcher.scan(&self.hierarchies, &directory, &mut below);
                    for inner in below {
                        self.add(&inner, jobs, now, false);
                    }
                }
                CgroupEvent::Gone(directory) => self.remove(&directory, jobs, now),
                CgroupEvent::Changed(directory) => self.read_usage(&directory.path, jobs, now),
                CgroupEvent::Overflow => {
                    jobs.update(|state| state.count_overflow());
                    self.rescan(jobs, now);
                }
            }
        }
    }

    /// Begins the job of a directory, if it is new.
    fn add(&mut self, directory: &JobDirectory, jobs: &Jobs, now: Millis, is_listed: bool) {
        let path = directory.path.as_str();
        if let Some(group) = self.groups.get_mut(path) {
            let hierarchy = 1 << directory.hierarchy;
            let is_new = group.hierarchies & hierarchy == 0;
            group.hierarchies |= hierarchy;
            // Limits and figures are in several hierarchies, which a scheduler creates in turn.
            if is_new {
                self.read_usage(path, jobs, now);
            }
            return;
        }
        let Some(named) = job_of_path(path) else {
            return;
        };
        let mut job = JobInterval::new(&named.id, named.scheduler, JobOrigin::Cgroup, now);
        job.step = named.step.map(Into::into);
        job.sluid = named.sluid.map(Into::into);
        job.cgroup = path.into();
        job.uid = uid_of_path(path);
        let files = CgroupFiles::new(&self.hierarchies, path);
        job.inode = { files.directories() }
            .find_map(|place| fs::metadata(place).ok())
            .map_or(0, |found| found.ino());
        files.read_limits(&mut job);
        files.read_usage(&mut job);
        complete_from_processes(&mut job, files.directories(), &self.files, is_listed);
        self.inherit(path, &mut job, jobs);
        let begin = job.begin;
        let Some(number) = jobs.update(|state| state.begin(job)) else {
            return;
        };
        let group = TrackedGroup {
            number,
            hierarchies: 1 << directory.hierarchy,
            begin,
            found: now,
            has_oom_kill: files.has_oom_kill(),
            next_read: now + FIRST_READ_INTERVAL_MS,
            next_write: now + WRITE_INTERVAL_MS,
        };
        self.groups.insert(path.to_owned(), group);
        // A step can tell the user and the number of its job.
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.read_usage(parent, jobs, now);
        }
    }

    /// Completes a step by what is known of its job.
    fn inherit(&self, path: &str, step: &mut JobInterval, jobs: &Jobs) {
        let Some((parent, _)) = path.rsplit_once('/').filter(|_| step.step.is_some()) else {
            return;
        };
        let number = self.groups.get(parent).map(|group| group.number);
        let job = number.and_then(|number| jobs.job(number));
        if let Some(job) = job {
            step.uid = step.uid.or(job.uid);
            step.job = job.job;
        }
    }

    /// Ends the job of a directory and of those below it.
    fn remove(&mut self, directory: &JobDirectory, jobs: &Jobs, now: Millis) {
        self.watcher.forget(directory);
        let is_meant = |path: &str| {
            let own = JobDirectory {
                hierarchy: directory.hierarchy,
                path: path.to_owned(),
            };
            own == *directory || own.is_below(directory)
        };
        let paths = self.groups.keys().filter(|path| is_meant(path));
        let mut paths: Vec<String> = paths.cloned().collect();
        // Steps before their job.
        paths.sort_unstable_by_key(|path| std::cmp::Reverse(path.len()));
        for path in paths {
            self.watcher.forget(&JobDirectory {
                hierarchy: directory.hierarchy,
                path: path.clone(),
            });
            let Some(group) = self.groups.get_mut(&path) else {
                continue;
            };
            group.hierarchies &= !(1 << directory.hierarchy);
            if group.hierarchies == 0 {
                self.end(&path, jobs, now);
            }
        }
        // The end of a step is a good time to read its job: it may be the last one.
        if let Some((parent, _)) = directory.path.rsplit_once('/') {
            self.read_usage(parent, jobs, now);
        }
    }

    fn end(&mut self, path: &str, jobs: &Jobs, now: Millis) {
        let Some(group) = self.groups.remove(path) else {
            return;
        };
        self.update_gpu_seconds(&group, jobs, now);
        let how = match group.has_oom_kill {
            true => JobEnd::OutOfMemory,
            false => JobEnd::Ended,
        };
        jobs.update(|state| state.end(group.number, now, how));
    }

    /// Reads the figures of a job, and completes what is unknown about it.
    fn read_usage(&mut self, path: &str, jobs: &Jobs, now: Millis) {
        let Some(group) = self.groups.get_mut(path) else {
            return;
        };
        let files = CgroupFiles::new(&self.hierarchies, path);
        if !files.directories().any(|directory| directory.is_dir()) {
            return;
        }
        let age = now - group.found;
        let is_young = age < YOUNG_MS;
        group.next_read = now
            + match is_young {
                true => (age / 4).clamp(FIRST_READ_INTERVAL_MS, READ_INTERVAL_MS),
                false => OLD_READ_INTERVAL_MS,
            };
        group.has_oom_kill |= files.has_oom_kill();
        let is_due = now >= group.next_write;
        if is_due {
            group.next_write = now + WRITE_INTERVAL_MS;
        }
        let number = group.number;
        let Some(mut job) = jobs.job(number) else {
            return;
        };
        let before = (job.job.clone(), job.uid, job.gpus.clone());
        // Schedulers set limits after they create a directory.
        if is_young || is_due {
            files.read_limits(&mut job);
            complete_from_processes(&mut job, files.directories(), &self.files, false);
            self.inherit(path, &mut job, jobs);
        }
        files.read_usage(&mut job);
        job.seen = now;
        let is_new = before != (job.job.clone(), job.uid, job.gpus.clone());
        jobs.update(|state| match is_new || is_due {
            true => state.replace(number, job),
            false => state.change(number, |known| *known = job),
        });
    }

    /// Returns when a job in its first seconds is to be read: earlier than others, which are read
    /// with the next tick.
    pub(crate) fn next_early_read(&self, now: Millis) -> Option<Millis> {
        let new = { self.groups.values() }.filter(|group| now - group.found < NEW_MS);
        new.map(|group| group.next_read).min()
    }

    /// Reads the jobs whose time has come.
    pub(crate) fn poll(&mut self, jobs: &Jobs, now: Millis) {
        let due = { self.groups.iter() }.filter(|(_, group)| now >= group.next_read);
        let due: Vec<(String, bool)> = due
            .map(|(path, group)| (path.clone(), now >= group.next_write))
            .collect();
        for (path, is_due) in due {
            self.read_usage(&path, jobs, now);
            if let Some(group) = self.groups.get(&path).filter(|_| is_due) {
                self.update_gpu_seconds(group, jobs, now);
            }
        }
    }

    /// Reads all jobs a last time, before the agent stops.
    pub(crate) fn flush(&mut self, jobs: &Jobs, now: Millis) {
        for group in self.groups.values_mut() {
            (group.next_read, group.next_write) = (0, 0);
        }
        self.poll(jobs, now);
    }

    /// Sets how long the GPUs of a job were busy, from the stored series.
    fn update_gpu_seconds(&self, group: &TrackedGroup, jobs: &Jobs, now: Millis) {
        let job = jobs.job(group.number);
        let gpus = job.as_ref().and_then(|job| job.gpus.as_deref());
        let Some(gpus) = gpus.filter(|gpus| !gpus.is_empty()) else {
            return;
        };
        let Some(seconds) = (self.gpu_seconds.0)(gpus, group.begin, now) else {
            return;
        };
        jobs.update(|state| state.change(group.number, |job| job.gpu_seconds = Some(seconds)));
    }
}
