use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::Note;
use crate::host::{StatVfs, Volume};

/// How long one mount may think; a healthy one takes microseconds, a loaded server milliseconds.
pub(super) const MOUNT_TIMEOUT: Duration = Duration::from_secs(1);
/// All waiting of a pass together, in patiences; less than the collector itself may take.
const PASS_TIMEOUTS_MAX: u32 = 4;
/// So many threads may be stuck in mounts that do not answer.
pub(super) const HUNG_MAX: usize = 8;
const STACK_BYTES: usize = 64 * 1024;

/// What a mount said.
#[derive(Debug)]
pub(super) enum StatvfsOutcome {
    Space(Volume),
    /// It cannot be asked.
    Failed,
    /// It was asked and has not answered yet.
    Hung,
    /// There was no time, or there are too many that are stuck.
    Skipped,
}

/// Asks many mounts, of which any may never answer.
#[derive(Debug)]
pub(super) struct MountProber {
    statvfs: StatVfs,
    timeout: Duration,
    /// The mounts that are being asked, whoever asked them.
    pending: Arc<Mutex<BTreeSet<PathBuf>>>,
}

/// One pass over the mounts, shared with the threads that ask.
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
    /// The next path to ask.
    next: usize,
    /// Which thread may take it. The thread of a mount that got stuck has lost its turn.
    current_worker: usize,
    is_done: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Whatever is in there is right by itself, even if a holder panicked.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MountProber {
    pub(super) fn new(statvfs: StatVfs, patience: Duration) -> MountProber {
        MountProber {
            statvfs,
            timeout: patience,
            pending: Arc::default(),
        }
    }

    #[cfg(test)]
    pub(super) fn hung_count(&self) -> usize {
        lock(&self.pending).len()
    }

    /// The answers of all paths, in their order.
    pub(super) fn statvfs_all(&self, paths: Vec<PathBuf>, note: &Note) -> Vec<StatvfsOutcome> {
        let stuck = lock(&self.pending).clone();
        let answers = paths.iter().map(|path| match stuck.contains(path) {
            true => StatvfsOutcome::Hung,
            false => StatvfsOutcome::Skipped,
        });
        let progress = ProbeProgress {
            outcomes: answers.collect(),
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
            let stuck = lock(&self.pending).len();
            if stuck >= HUNG_MAX || Instant::now() >= deadline || !start_worker(&round, turn) {
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
    lock(&round.progress).current_worker = turn;
    let round = round.clone();
    std::thread::Builder::new()
        .name("statvfs".into())
        .stack_size(STACK_BYTES)
        .spawn(move || round.run_worker(turn))
        .is_ok()
}

impl ProbeRound {
    /// The thread's work: asks one path after the other while it has the turn.
    fn run_worker(&self, turn: usize) {
        while let Some(index) = self.next_path(turn) {
            let path = &self.paths[index];
            let answer = match (self.statvfs)(path) {
                Ok(volume) => StatvfsOutcome::Space(volume),
                Err(_) => StatvfsOutcome::Failed,
            };
            lock(&self.pending).remove(path);
            let mut progress = lock(&self.progress);
            if progress.current_worker == turn {
                progress.outcomes[index] = answer;
                self.changed.notify_all();
            }
        }
    }

    /// The next path that is not stuck already.
    fn next_path(&self, turn: usize) -> Option<usize> {
        let mut progress = lock(&self.progress);
        if progress.current_worker != turn {
            return None;
        }
        while let Some(path) = self.paths.get(progress.next) {
            let index = progress.next;
            progress.next += 1;
            if !matches!(progress.outcomes[index], StatvfsOutcome::Skipped) {
                continue;
            }
            // Two mounts may lie on the same place; if one is stuck, so is the other.
            if lock(&self.pending).insert(path.clone()) {
                return Some(index);
            }
            progress.outcomes[index] = StatvfsOutcome::Hung;
        }
        progress.is_done = true;
        self.changed.notify_all();
        None
    }

    /// True when all were asked; false when one got stuck.
    fn wait_for_worker(&self, patience: Duration, deadline: Instant, note: &Note) -> bool {
        let mut progress = lock(&self.progress);
        let mut noted = usize::MAX;
        let mut until = deadline;
        while !progress.is_done {
            let now = Instant::now();
            if noted != progress.next {
                noted = progress.next;
                until = deadline.min(now + patience);
            }
            if now >= until {
                return self.abandon_worker(&mut progress, note);
            }
            let result = self.changed.wait_timeout(progress, until - now);
            progress = result.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    fn abandon_worker(&self, progress: &mut ProbeProgress, note: &Note) -> bool {
        // Takes the turn away: what the thread brings later is too late for this pass.
        progress.current_worker = usize::MAX;
        if let Some(index) = progress.next.checked_sub(1) {
            progress.outcomes[index] = StatvfsOutcome::Hung;
            note.set(&format!("the mount {}", self.paths[index].display()));
        }
        false
    }

    fn finish(&self) -> Vec<StatvfsOutcome> {
        let mut progress = lock(&self.progress);
        progress.current_worker = usize::MAX;
        std::mem::take(&mut progress.outcomes)
    }
}
