//! The descriptors that report the end of the root process, OOM kills and an empty cgroup at once.
//!
//! Linux reports changes of `memory.events` and `cgroup.events` as POLLPRI until the file is read
//! again. Cgroups v1 signal an eventfd when memory runs out, before the kernel kills. A descriptor
//! that stays ready, because its process ended or its cgroup was removed, is dropped.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

use pegel_machine::{MachineFiles, key_value};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::own_cgroup::{CgroupVersion, TaskCgroup};
use super::scope::TaskScope;

/// Longer than `memory.events` and `cgroup.events`.
const EVENTS_BYTES: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct TaskDescriptors {
    /// Readable when the root process has ended.
    pub root: Option<OwnedFd>,
    memory_events: Option<File>,
    population: Option<File>,
    /// Of cgroups v1: counts the times that memory ran out.
    out_of_memory: Option<OwnedFd>,
    /// `memory.peak`, reset when it was opened, for this descriptor only.
    peak: Option<File>,
    /// Whether the end of the root process was seen.
    has_root_ended: bool,
}

impl TaskDescriptors {
    /// Opens what there is. A fixture tree has no processes, and its files never change by
    /// themselves.
    pub(super) fn open(machine: &MachineFiles, scope: &TaskScope) -> TaskDescriptors {
        let mut opened = TaskDescriptors::default();
        if !machine.is_local() {
            return opened;
        }
        // The caller checks afterwards that this is the root process, by its start time.
        let pid = i32::try_from(scope.root.pid).ok().and_then(Pid::from_raw);
        opened.root = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let cgroups = &scope.cgroups;
        let of_v2 = |group: Option<&TaskCgroup>, file: &str| {
            let group = group.filter(|group| group.version == CgroupVersion::V2)?;
            let folder = group.own_folder()?;
            let file = File::open(machine.resolve(format!("{folder}/{file}"))).ok()?;
            // A new descriptor is ready until its first reading.
            read_events(&file).ok()?;
            Some(file)
        };
        opened.memory_events = of_v2(cgroups.memory.as_ref(), "memory.events");
        opened.population = of_v2(cgroups.population(), "cgroup.events");
        if let Some(group) = &cgroups.memory
            && let Some(own) = group.own_folder()
        {
            match group.version {
                CgroupVersion::V1 => {
                    let folder = machine.resolve(group.folder());
                    opened.out_of_memory = watch_out_of_memory(&folder).ok();
                }
                CgroupVersion::V2 => {
                    let path = machine.resolve(format!("{own}/memory.peak"));
                    opened.peak = reset_peak(&path).ok();
                }
            }
        }
        opened
    }

    pub(super) fn poll_fds(&self) -> Vec<PollFd<'_>> {
        let changes = [&self.memory_events, &self.population];
        let changes = changes.into_iter().flatten();
        let changes = changes.map(|file| PollFd::new(file, PollFlags::PRI));
        let root = self.root.iter().filter(|_| !self.has_root_ended);
        let events = root.chain(&self.out_of_memory);
        let events = events.map(|event| PollFd::new(event, PollFlags::IN));
        changes.chain(events).collect()
    }

    /// Whether the root process has ended; `None` if there is no pidfd.
    pub(super) fn has_root_ended(&mut self) -> Option<bool> {
        let root = self.root.as_ref()?;
        self.has_root_ended = self.has_root_ended || is_ready(root);
        Some(self.has_root_ended)
    }

    /// Reads `memory.events` again. Returns the number of OOM kills, if it is known.
    pub(super) fn oom_kills(&mut self) -> Option<u64> {
        let text = read_events(self.memory_events.as_ref()?);
        if text.is_err() {
            self.memory_events = None;
        }
        key_value(&text.ok()?, "oom_kill")
    }

    /// Whether memory ran out since the last call (cgroups v1).
    pub(super) fn has_memory_run_out(&mut self) -> bool {
        let Some(event) = self.out_of_memory.as_ref().filter(|event| is_ready(event)) else {
            return false;
        };
        let mut count = [0; 8];
        let is_read = rustix::io::read(event, &mut count).is_ok();
        if !is_read {
            self.out_of_memory = None;
        }
        is_read
    }

    /// Whether the cgroup contains processes: `false` also if it was removed; `None` if unknown.
    pub(super) fn is_populated(&mut self) -> Option<bool> {
        match read_events(self.population.as_ref()?) {
            Ok(text) => key_value(&text, "populated").map(|populated| populated != 0),
            Err(_) => {
                self.population = None;
                Some(false)
            }
        }
    }

    /// Returns the peak since the descriptor was opened.
    pub(super) fn peak_since_start(&self) -> Option<u64> {
        let mut text = [0; 32];
        let length = self.peak.as_ref()?.read_at(&mut text, 0).ok()?;
        pegel_machine::parse_u64(text[..length].trim_ascii())
    }
}

fn is_ready(fd: impl AsFd) -> bool {
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut fds, Some(&at_once)).is_ok() && !fds[0].revents().is_empty()
}

fn read_events(file: &File) -> io::Result<Vec<u8>> {
    let mut text = vec![0; EVENTS_BYTES];
    let length = file.read_at(&mut text, 0)?;
    text.truncate(length);
    Ok(text)
}

/// Since Linux 6.12 a write resets the peak for the reader of this descriptor. Earlier kernels
/// refuse to open the file for writing.
fn reset_peak(path: &Path) -> io::Result<File> {
    let mut file = OpenOptions::new().read(true).write(true).open(path)?;
    file.write_all(b"reset\n")?;
    Ok(file)
}

/// Registers an eventfd for a group of cgroups v1; only root may.
fn watch_out_of_memory(folder: &Path) -> io::Result<OwnedFd> {
    let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let control = File::open(folder.join("memory.oom_control"))?;
    let registration = format!("{} {}", event.as_raw_fd(), control.as_raw_fd());
    let mut registry = OpenOptions::new()
        .write(true)
        .open(folder.join("cgroup.event_control"))?;
    registry.write_all(registration.as_bytes())?;
    Ok(event)
}
