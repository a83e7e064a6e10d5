//! Watches the directories of schedulers with inotify and lists them, so that jobs of a few
//! milliseconds are seen. Without inotify, or after lost events, only listing is left.

use std::collections::HashMap;
use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};

use crate::cgroup_hierarchies::{CgroupHierarchy, group_directory};
use crate::cgroup_paths::{DirectoryKind, directory_kind};
use crate::table::RUNNING_MAX;

/// Two watches for each running job, and those of the directories above.
const WATCHES_MAX: usize = 2 * RUNNING_MAX + 256;
/// The entries of a directory that are looked at.
const ENTRIES_MAX: usize = 16_384;
const BUFFER_BYTES: usize = 64 << 10;
/// The events that one call reads; the rest stays in the queue of the kernel.
const EVENTS_MAX: usize = 8_192;

/// A directory of a job or step, and its hierarchy.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct JobDirectory {
    pub hierarchy: usize,
    pub path: String,
}

/// A change of the directories.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CgroupEvent {
    Found(JobDirectory),
    Gone(JobDirectory),
    /// Processes entered or left the job, or a step of it appeared or ended.
    Changed(JobDirectory),
    /// Events were lost: everything must be listed again.
    Overflow,
}

#[derive(Debug)]
pub(crate) struct CgroupWatcher {
    /// `None` if inotify is not available.
    inotify: Option<OwnedFd>,
    watches: HashMap<i32, JobDirectory>,
    by_directory: HashMap<JobDirectory, Vec<i32>>,
    buffer: Vec<MaybeUninit<u8>>,
}

impl CgroupWatcher {
    pub(crate) fn new() -> CgroupWatcher {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK);
        if let Err(error) = &inotify {
            tracing::warn!(%error, "inotify is not available; jobs shorter than a second can be missed");
        }
        CgroupWatcher {
            inotify: inotify.ok(),
            watches: HashMap::new(),
            by_directory: HashMap::new(),
            buffer: vec![MaybeUninit::uninit(); BUFFER_BYTES],
        }
    }

    /// Returns the descriptor that becomes readable with the next event.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inotify.as_ref().map(AsFd::as_fd)
    }

    /// Lists a directory and those below it that can lead to jobs, watches them, and returns jobs
    /// and steps below it.
    pub(crate) fn scan(
        &mut self,
        hierarchies: &[CgroupHierarchy],
        at: &JobDirectory,
        found: &mut Vec<JobDirectory>,
    ) {
        let Some(hierarchy) = hierarchies.get(at.hierarchy) else {
            return;
        };
        let directory = group_directory(&hierarchy.root, &at.path);
        let kind = directory_kind(hierarchy.version, &at.path);
        // Before listing: what appears in between is reported.
        self.watch(&directory, kind, at);
        if !has_directories(kind) {
            return;
        }
        let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
        for entry in entries.take(ENTRIES_MAX) {
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let Some(name) = entry.file_name().to_str().map(str::to_owned) else {
                continue;
            };
            let child = at.child(&name);
            let kind = directory_kind(hierarchy.version, &child.path);
            if !is_directory || kind == DirectoryKind::Other {
                continue;
            }
            if kind != DirectoryKind::Ancestor {
                found.push(child.clone());
            }
            self.scan(hierarchies, &child, found);
        }
    }

    fn watch(&mut self, directory: &Path, kind: DirectoryKind, at: &JobDirectory) {
        let Some(inotify) = self
            .inotify
            .as_ref()
            .filter(|_| self.watches.len() < WATCHES_MAX)
        else {
            return;
        };
        let mut added = Vec::new();
        if has_directories(kind) {
            let entries = WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::ONLYDIR;
            added.extend(inotify::add_watch(inotify, directory, entries));
        }
        if kind != DirectoryKind::Ancestor {
            // The kernel reports here that the last process left; the figures can still be read.
            let events = directory.join("cgroup.events");
            added.extend(inotify::add_watch(inotify, &events, WatchFlags::MODIFY));
        }
        for watch in added {
            if self.watches.insert(watch, at.clone()).is_none() {
                self.by_directory.entry(at.clone()).or_default().push(watch);
            }
        }
    }

    /// Ends the watches of a directory that was removed. The kernel does not end those of cgroups
    /// by itself.
    pub(crate) fn forget(&mut self, directory: &JobDirectory) {
        for watch in self.by_directory.remove(directory).unwrap_or_default() {
            self.watches.remove(&watch);
            if let Some(inotify) = &self.inotify {
                // Fails if the kernel ended it.
                let _ = inotify::remove_watch(inotify, watch);
            }
        }
    }

    /// Reads the events of the queue.
    pub(crate) fn read_events(&mut self, hierarchies: &[CgroupHierarchy]) -> Vec<CgroupEvent> {
        let mut raw: Vec<(i32, ReadFlags, Option<String>)> = Vec::new();
        if let Some(inotify) = &self.inotify {
            let mut reader = inotify::Reader::new(inotify, &mut self.buffer);
            while raw.len() < EVENTS_MAX
                && let Ok(event) = reader.next()
            {
                let name = event.file_name().and_then(|name| name.to_str().ok());
                raw.push((event.wd(), event.events(), name.map(str::to_owned)));
            }
        }
        let mut events = Vec::new();
        for (watch, flags, name) in raw {
            if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
                events.push(CgroupEvent::Overflow);
                continue;
            }
            let Some(at) = self.watches.get(&watch) else {
                continue;
            };
            if flags.contains(ReadFlags::IGNORED) {
                self.watches.remove(&watch);
                continue;
            }
            let Some(name) = name else {
                events.push(CgroupEvent::Changed(at.clone()));
                continue;
            };
            let child = at.child(&name);
            let version = hierarchies.get(at.hierarchy).map(|one| one.version);
            let kind = version.map_or(DirectoryKind::Other, |of| directory_kind(of, &child.path));
            let is_created = flags.contains(ReadFlags::CREATE);
            match kind {
                _ if !flags.contains(ReadFlags::ISDIR) => {}
                DirectoryKind::Other => {}
                _ if is_created => events.push(CgroupEvent::Found(child)),
                _ => events.push(CgroupEvent::Gone(child)),
            }
        }
        events
    }
}

/// Returns whether directories of jobs or steps can be in a directory.
fn has_directories(kind: DirectoryKind) -> bool {
    matches!(
        kind,
        DirectoryKind::Ancestor | DirectoryKind::Job { has_steps: true }
    )
}

impl JobDirectory {
    pub(crate) fn root(hierarchy: usize) -> JobDirectory {
        JobDirectory {
            hierarchy,
            path: String::new(),
        }
    }

    fn child(&self, name: &str) -> JobDirectory {
        JobDirectory {
            hierarchy: self.hierarchy,
            path: format!("{}/{name}", self.path),
        }
    }

    /// Returns whether this is a directory below another one.
    pub(crate) fn is_below(&self, other: &JobDirectory) -> bool {
        let rest = self.path.strip_prefix(other.path.as_str());
        self.hierarchy == other.hierarchy && rest.is_some_and(|rest| rest.starts_with('/'))
    }
}
