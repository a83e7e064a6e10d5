//! The directories in which lanes are found. They are scanned when inotify reports a change, and
//! periodically.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use pegel_lane::reader::LaneFile;
use pegel_metric::Millis;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

use super::journal::LaneId;
use super::quota::LaneQuota;
use super::watched_directory::{WatchedDirectory, with_directory};
use super::{LaneDirectory, LanesSettings};

/// A lane that was not known before.
#[derive(Debug)]
pub(super) struct OpenedLane {
    pub file: LaneFile,
    pub directory: usize,
}

#[derive(Debug)]
pub(super) struct LaneDirectories {
    watched: Vec<WatchedDirectory>,
    inotify: Option<OwnedFd>,
    quota: LaneQuota,
    journal: PathBuf,
    /// Whether the journal did not exist before this start.
    is_new: bool,
}

impl LaneDirectories {
    pub(super) fn new(settings: &LanesSettings, is_new: bool) -> LaneDirectories {
        let flags = CreateFlags::NONBLOCK | CreateFlags::CLOEXEC;
        // Claims identify agents by this path.
        let journal = std::path::absolute(&settings.journal);
        let mut directories = LaneDirectories {
            watched: settings
                .directories
                .iter()
                .map(WatchedDirectory::new)
                .collect(),
            // Without inotify, new lanes are found up to a second later.
            inotify: inotify::init(flags).ok(),
            quota: LaneQuota::new(settings.lanes_max),
            journal: journal.unwrap_or_else(|_| settings.journal.clone()),
            is_new,
        };
        directories.open();
        directories
    }

    fn open(&mut self) {
        for watched in &mut self.watched {
            if watched.open(&self.journal, self.is_new)
                && let Some(inotify) = &self.inotify
            {
                let events = WatchFlags::MOVED_TO | WatchFlags::CREATE | WatchFlags::ONLYDIR;
                let _ = inotify::add_watch(inotify, watched.path(), events);
            }
        }
    }

    /// Returns whether a file appeared since the last call.
    pub(super) fn has_changes(&self) -> bool {
        let Some(inotify) = &self.inotify else {
            return false;
        };
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(inotify, &mut buffer);
        let mut has_news = false;
        // Bounded: a program that renames files without end must not delay the pass.
        for _ in 0..1000 {
            match reader.next() {
                Ok(_) => has_news = true,
                Err(_) => break,
            }
        }
        has_news
    }

    /// Opens the lane with this id, whichever directory it is in.
    pub(super) fn open_by_id(&mut self, id: &LaneId) -> Option<OpenedLane> {
        let quota = &mut self.quota;
        let watched = self.watched.iter_mut().enumerate();
        watched.into_iter().find_map(|(directory, watched)| {
            let file = watched.open_by_id(id, quota)?;
            Some(OpenedLane { file, directory })
        })
    }

    /// Opens the lanes for which `is_known` returns false.
    pub(super) fn open_new_lanes(
        &mut self,
        is_known: impl Fn(&LaneId) -> bool,
        now: Millis,
    ) -> Vec<OpenedLane> {
        self.open();
        let mut opened = Vec::new();
        for (at, watched) in self.watched.iter_mut().enumerate() {
            let files = watched.scan(&is_known, &mut self.quota, now);
            opened.extend(with_directory(at, files));
        }
        opened
    }

    /// Records that a lane is read. Returns whether an agent with another journal has counted it
    /// before.
    pub(super) fn claim(&mut self, directory: usize, id: &LaneId) -> bool {
        self.watched[directory].claim(id)
    }

    /// Releases a lane that is no longer read.
    pub(super) fn release(&mut self, file: &LaneFile) {
        self.quota.release(file);
    }

    /// Marks a lane with invalid contents, so that it is not opened again.
    pub(super) fn refuse(&mut self, directory: usize, file: &LaneFile, reason: String) {
        self.watched[directory].refuse(file, reason);
    }

    pub(super) fn remove(&self, directory: usize, name: &str) -> io::Result<()> {
        self.watched[directory].remove(name)
    }

    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.watched.iter().map(WatchedDirectory::path)
    }

    pub(super) fn faults(&self) -> impl Iterator<Item = String> + '_ {
        self.watched.iter().flat_map(WatchedDirectory::faults)
    }

    /// Returns the number of files that are not read, by reason.
    pub(super) fn refused(&self) -> BTreeMap<String, u64> {
        let mut reasons = BTreeMap::new();
        for watched in &self.watched {
            watched.count_refused(&mut reasons);
        }
        reasons
    }
}

/// Creates a directory of the agent's user, or checks the existing one: another user may have
/// created it first.
pub(super) fn prepare_directory(settings: &LaneDirectory) -> Result<(), String> {
    match settings.mode {
        Some(mode) if !settings.is_optional || settings.path.exists() => {
            create_or_check(&settings.path, mode)
        }
        _ => Ok(()),
    }
}

fn create_or_check(path: &Path, mode: u32) -> Result<(), String> {
    let uid = rustix::process::geteuid().as_raw();
    let made = fs::DirBuilder::new().mode(0o700).create(path);
    if let Err(error) = made
        && error.kind() != io::ErrorKind::AlreadyExists
    {
        return Err(error.to_string());
    }
    let found = fs::symlink_metadata(path).map_err(|error| error.to_string())?;
    if !found.is_dir() || found.uid() != uid {
        return Err(format!("it is not a directory of user {uid}"));
    }
    if found.mode() & 0o7777 & !mode != 0 {
        return Err(format!("its mode is too permissive; set it to {mode:o}"));
    }
    // The directory is ours and its parent is sticky, so no other user can have replaced it with a
    // link.
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(|error| error.to_string())
}
