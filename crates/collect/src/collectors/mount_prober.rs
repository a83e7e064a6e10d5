//! Probes many mounts with statvfs(2), any of which may block forever. Used by the collector
//! `filesystem`.
//!
//! One worker thread at a time takes the paths in order. If a path does not respond within the
//! timeout, the round marks it as hung, revokes the worker's turn and starts another worker with
//! the next path. The abandoned thread stays in its call; when the call returns, it removes its
//! path from the pending set and ends. At most [`HUNG_MAX`] threads are blocked at a time, and a
//! round waits at most [`PASS_TIMEOUTS_MAX`] timeouts in all.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::CurrentOperation;
use crate::host::{FilesystemSpace, StatVfs};

/// Time that one mount may take. A healthy mount takes microseconds, a loaded server milliseconds.
pub(super) const MOUNT_TIMEOUT: Duration = Duration::from_secs(1);
/// Upper bound on the total waiting time of a round, in timeouts; below the time limit of the
/// collector.
const PASS_TIMEOUTS_MAX: u32 = 4;
/// Maximum number of threads blocked in mounts that do not respond.
pub(super) const HUNG_MAX: usize = 8;
const STACK_BYTES: usize = 64 * 1024;

/// The result of probing a mount.
#[derive(Debug)]
pub(super) enum StatvfsOutcome {
    Space(FilesystemSpace),
    /// statvfs returned an error.
    Failed,
    /// statvfs was called and has not returned yet.
    Hung,
    /// Not probed: no time left, or too many threads are blocked.
    Skipped,
}

/// Calls statvfs on many mounts, any of which may never respond.
#[derive(Debug)]
pub(super) struct MountProber {
    statvfs: StatVfs,
    timeout: Duration,
    /// The mounts with a call in progress, of this round or an earlier one.
    pending: Arc<Mutex<BTreeSet<PathBuf>>>,
}

/// One round over the mounts, shared with its worker threads.
#[derive(Debug)]
struct ProbeRound {
    statvfs: StatVfs,
    pending: Arc<Mutex<BTreeSet<PathBuf>>>,
    paths: Vec<PathBuf>,
    progress: Mutex<ProbeProgress>,
    changed: Condvar,
}

#[derive(Debug)]
struct ProbeProgress {
    outcomes: Vec<StatvfsOutcome>,
    /// Index of the next path to probe.
    next: usize,
    /// The turn of the worker that may take it. A worker whose mount hangs has lost its turn.
    current_worker: usize,
    is_done: bool,
}

impl MountProber {
    pub(super) fn new(statvfs: StatVfs, timeout: Duration) -> MountProber {
        MountProber {
            statvfs,
            timeout,
            pending: Arc::default(),
        }
    }

    #[cfg(test)]
    pub(super) fn hung_count(&self) -> usize {
        self.pending.lock().len()
    }

    /// Probes all paths and returns the outcomes in the same order.
    pub(super) fn statvfs_all(
        &self,
        paths: Vec<PathBuf>,
        note: &CurrentOperation,
    ) -> Vec<StatvfsOutcome> {
        let pending = self.pending.lock().clone();
        let outcomes = paths.iter().map(|path| {
            if pending.contains(path) {
                StatvfsOutcome::Hung
            } else {
                StatvfsOutcome::Skipped
            }
        });
        let progress = ProbeProgress {
            outcomes: outcomes.collect(),
            next: 0,
            current_worker: 0,
            is_done: false,
        };
        let round = Arc::new(ProbeRound {
            statvfs: self.statvfs,
            pending: self.pending.clone(),
            paths,
            progress: Mutex::new(progress),
            changed: Condvar::new(),
        });
        let deadline = Instant::now() + PASS_TIMEOUTS_MAX * self.timeout;
        for turn in 0.. {
            let hung_count = self.pending.lock().len();
            if hung_count >= HUNG_MAX || Instant::now() >= deadline || !start_worker(&round, turn) {
                break;
            }
            if round.wait_for_worker(self.timeout, deadline, note) {
                break;
            }
        }
        round.finish()
    }
}

fn start_worker(round: &Arc<ProbeRound>, turn: usize) -> bool {
    round.progress.lock().current_worker = turn;
    let round = round.clone();
    std::thread::Builder::new()
        .name("statvfs".into())
        .stack_size(STACK_BYTES)
        .spawn(move || round.run_worker(turn))
        .is_ok()
}

impl ProbeRound {
    /// Runs on the worker thread: probes one path after the other while it has the turn.
    fn run_worker(&self, turn: usize) {
        while let Some(index) = self.next_path(turn) {
            let path = &self.paths[index];
            let outcome = match (self.statvfs)(path) {
                Ok(volume) => StatvfsOutcome::Space(volume),
                Err(_) => StatvfsOutcome::Failed,
            };
            self.pending.lock().remove(path);
            let mut progress = self.progress.lock();
            if progress.current_worker == turn {
                progress.outcomes[index] = outcome;
                self.changed.notify_all();
            }
        }
    }

    /// Takes the next path that has no call in progress.
    fn next_path(&self, turn: usize) -> Option<usize> {
        let mut progress = self.progress.lock();
        if progress.current_worker != turn {
            return None;
        }
        while let Some(path) = self.paths.get(progress.next) {
            let index = progress.next;
            progress.next += 1;
            if !matches!(progress.outcomes[index], StatvfsOutcome::Skipped) {
                continue;
            }
            // Two mounts may share a mount point: if one hangs, so does the other.
            if self.pending.lock().insert(path.clone()) {
                return Some(index);
            }
            progress.outcomes[index] = StatvfsOutcome::Hung;
        }
        progress.is_done = true;
        self.changed.notify_all();
        None
    }

    /// Returns true when the round is complete, false when a mount hangs.
    fn wait_for_worker(
        &self,
        timeout: Duration,
        deadline: Instant,
        note: &CurrentOperation,
    ) -> bool {
        let mut progress = self.progress.lock();
        let mut noted = usize::MAX;
        let mut until = deadline;
        while !progress.is_done {
            let now = Instant::now();
            if noted != progress.next {
                noted = progress.next;
                until = deadline.min(now + timeout);
            }
            if now >= until {
                return self.abandon_worker(&mut progress, note);
            }
            self.changed.wait_for(&mut progress, until - now);
        }
        true
    }

    fn abandon_worker(&self, progress: &mut ProbeProgress, note: &CurrentOperation) -> bool {
        // Revoke the turn: a result that the thread delivers later is ignored.
        progress.current_worker = usize::MAX;
        if let Some(index) = progress.next.checked_sub(1) {
            progress.outcomes[index] = StatvfsOutcome::Hung;
            note.set(&format!("mount {}", self.paths[index].display()));
        }
        false
    }

    fn finish(&self) -> Vec<StatvfsOutcome> {
        let mut progress = self.progress.lock();
        progress.current_worker = usize::MAX;
        std::mem::take(&mut progress.outcomes)
    }
}
