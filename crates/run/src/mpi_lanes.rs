//! Reads the MPI counts of a program from the lanes of its processes.
//!
//! The wrapper names a list of lanes in the environment, to which each process of the program adds
//! its lanes (`pegel_lane::LANE_LIST_VARIABLE`). The helper opens them while their processes run
//! and keeps them open: the agent removes the files of ended processes at any time.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use pegel_lane::reader::{
    LaneDirectoryHandle, LaneFile, LaneLimits, LaneValue, ProcessState, lane_file_name,
};
use rustix::fs::inotify;

use crate::run_directory::run_directory;

/// The most lanes that are open at the same time.
const LANES_MAX: usize = 4096;
/// The most bytes of the list that are read: far more than any program has processes.
const LIST_BYTES_MAX: usize = 16 << 20;

/// The counts of one MPI function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MpiCall {
    pub name: String,
    pub hits: u64,
    pub bytes: u64,
    pub nanos: u64,
}

/// The MPI calls of all processes of a program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MpiSummary {
    /// The number of processes that called MPI.
    pub processes: u64,
    /// Longest time first.
    pub calls: Vec<MpiCall>,
    /// Lanes that could not be read; their calls are missing.
    pub unread_lanes: u64,
}

/// The list that the wrapper creates before the program starts.
#[derive(Debug)]
pub(crate) struct LaneList {
    path: PathBuf,
}

impl LaneList {
    /// Creates an empty list.
    pub(crate) fn create() -> io::Result<LaneList> {
        let missing = || io::Error::other("no private directory in $XDG_RUNTIME_DIR or /tmp");
        let directory = run_directory().ok_or_else(missing)?;
        remove_stale_lists(&directory);
        let name = format!("run-{}.lanes", std::process::id());
        let path = directory.join(name);
        // Left by a process with the same ID that was killed.
        let _ = fs::remove_file(&path);
        File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        Ok(LaneList { path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn remove(&self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Removes lists whose helper was killed: neither the program nor the helper runs.
fn remove_stale_lists(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| {
            let digits = name.strip_prefix("run-")?.strip_suffix(".lanes")?;
            digits.parse::<i32>().ok()
        });
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// The lanes of a program's processes.
#[derive(Debug)]
pub(crate) struct MpiLanes {
    list: LaneList,
    file: File,
    /// Readable when a process has added a lane; None if the kernel refuses it.
    changes: Option<OwnedFd>,
    /// The number of bytes of the list that were read.
    position: u64,
    directory: LaneDirectoryHandle,
    open: Vec<LaneFile>,
    ended: LaneSums,
    unread: u64,
}

#[derive(Debug, Clone, Default)]
struct LaneSums {
    processes: u64,
    calls: BTreeMap<String, [u64; 3]>,
}

impl MpiLanes {
    pub(crate) fn open(list: LaneList) -> io::Result<MpiLanes> {
        let directory = LaneDirectoryHandle::open_unlisted(pegel_lane::lane_directory())?;
        Ok(MpiLanes {
            file: File::open(&list.path)?,
            changes: watch(&list.path).ok(),
            list,
            position: 0,
            directory,
            open: Vec::new(),
            ended: LaneSums::default(),
            unread: 0,
        })
    }

    /// Returns a descriptor that is readable when [`MpiLanes::update`] should be called.
    pub(crate) fn changes(&self) -> Option<BorrowedFd<'_>> {
        self.changes.as_ref().map(AsFd::as_fd)
    }

    /// Opens lanes that were added to the list since the last call.
    pub(crate) fn update(&mut self) {
        if let Some(changes) = &self.changes {
            // Only drains the descriptor: all events mean the same.
            let _ = rustix::io::read(changes, &mut [0; 4096]);
        }
        let mut entries = [0; 16 * 64];
        while self.position < LIST_BYTES_MAX as u64 {
            let Ok(count) = self.file.read_at(&mut entries, self.position) else {
                return;
            };
            let whole = count - count % 16;
            if whole == 0 {
                return;
            }
            self.position += whole as u64;
            for id in pegel_lane::lane_list_entries(&entries[..whole]) {
                self.open_lane(&lane_file_name(id));
            }
        }
    }

    fn open_lane(&mut self, name: &str) {
        if self.open.len() >= LANES_MAX {
            self.close_ended();
        }
        let uid = rustix::process::geteuid().as_raw();
        let limits = LaneLimits {
            owners: Some(vec![uid]),
            ..LaneLimits::default()
        };
        match self.directory.open_lane(name, &limits) {
            Ok(lane) if self.open.len() < LANES_MAX => self.open.push(lane),
            _ => self.unread += 1,
        }
    }

    /// Adds up and closes the lanes of processes that are gone.
    fn close_ended(&mut self) {
        let (ended, running) = std::mem::take(&mut self.open)
            .into_iter()
            .partition(|lane| lane.process() == ProcessState::Gone);
        self.open = running;
        for mut lane in ended {
            self.unread += u64::from(!self.ended.add(&mut lane));
        }
    }

    /// Returns the counts so far.
    pub(crate) fn summary(&mut self) -> MpiSummary {
        self.update();
        let mut sums = self.ended.clone();
        let mut unread_lanes = self.unread;
        for lane in &mut self.open {
            unread_lanes += u64::from(!sums.add(lane));
        }
        let call = |(name, [hits, bytes, nanos]): (String, [u64; 3])| MpiCall {
            name,
            hits,
            bytes,
            nanos,
        };
        let mut calls: Vec<MpiCall> = sums.calls.into_iter().map(call).collect();
        calls.sort_by(|a, b| (b.nanos, b.hits, &a.name).cmp(&(a.nanos, a.hits, &b.name)));
        MpiSummary {
            processes: sums.processes,
            calls,
            unread_lanes,
        }
    }
}

impl LaneSums {
    /// Adds the MPI calls of a lane. Returns false if it cannot be read.
    fn add(&mut self, lane: &mut LaneFile) -> bool {
        let is_first = lane.header().number == 0;
        let mut buffer = Vec::new();
        let Ok(view) = lane.read(&mut buffer) else {
            return false;
        };
        let mut has_calls = false;
        for (index, value) in view.iter() {
            let Some(LaneValue::Calls { hits, bytes, nanos }) = value else {
                continue;
            };
            let Ok(series) = view.series(index) else {
                continue;
            };
            let call = series.labels.iter().find(|(key, _)| *key == "call");
            if let ("mpi", Some((_, call))) = (series.name, call)
                && hits > 0
            {
                has_calls = true;
                let sums = self.calls.entry((*call).to_owned()).or_default();
                for (sum, more) in sums.iter_mut().zip([hits, bytes, nanos]) {
                    *sum = sum.saturating_add(more);
                }
            }
        }
        self.processes += u64::from(is_first && has_calls);
        true
    }
}

impl Drop for MpiLanes {
    fn drop(&mut self) {
        self.list.remove();
    }
}

fn watch(path: &Path) -> io::Result<OwnedFd> {
    let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
    let changes = inotify::init(flags)?;
    inotify::add_watch(&changes, path, inotify::WatchFlags::MODIFY)?;
    Ok(changes)
}
