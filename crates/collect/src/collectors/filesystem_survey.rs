use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::Note;
use crate::host::{StatVfs, Volume};

/// How long one mount may think; a healthy one takes microseconds, a loaded server milliseconds.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);
/// All waiting of a pass together, in patiences; less than the collector itself may take.
const PASS_MAX: u32 = 4;
/// So many threads may be stuck in mounts that do not answer.
pub(super) const STUCK_MAX: usize = 8;
const STACK_BYTES: usize = 64 * 1024;

/// What a mount said.
#[derive(Debug)]
pub(super) enum Answer {
    Volume(Volume),
    /// It cannot be asked.
    Refused,
    /// It was asked and has not answered yet.
    Stuck,
    /// There was no time, or there are too many that are stuck.
    NotAsked,
}

/// Asks many mounts, of which any may never answer.
#[derive(Debug)]
pub(super) struct Survey {
    statvfs: StatVfs,
    patience: Duration,
    /// The mounts that are being asked, whoever asked them.
    pending: Arc<Mutex<BTreeSet<PathBuf>>>,
}

/// One pass over the mounts, shared with the threads that ask.
#[derive(Debug)]
struct Round {
    statvfs: StatVfs,
    pending: Arc<Mutex<BTreeSet<PathBuf>>>,
    paths: Vec<PathBuf>,
    progress: Mutex<Progress>,
    changed: Condvar,
}

#[derive(Debug)]
struct Progress {
    answers: Vec<Answer>,
    /// The next path to ask.
    next: usize,
    /// Which thread may take it. The thread of a mount that got stuck has lost its turn.
    turn: usize,
    is_done: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Whatever is in there is right by itself, even if a holder panicked.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Survey {
    pub(super) fn new(statvfs: StatVfs, patience: Duration) -> Survey {
        Survey {
            statvfs,
            patience,
            pending: Arc::default(),
        }
    }

    #[cfg(test)]
    pub(super) fn stuck_count(&self) -> usize {
        lock(&self.pending).len()
    }

    /// The answers of all paths, in their order.
    pub(super) fn ask(&self, paths: Vec<PathBuf>, note: &Note) -> Vec<Answer> {
        let stuck = lock(&self.pending).clone();
        let answers = paths.iter().map(|path| match stuck.contains(path) {
            true => Answer::Stuck,
            false => Answer::NotAsked,
        });
        let progress = Progress {
            answers: answers.collect(),
            next: 0,
            turn: 0,
            is_done: false,
        };
        let round = Arc::new(Round {
            statvfs: self.statvfs,
            pending: self.pending.clone(),
            paths,
            progress: Mutex::new(progress),
            changed: Condvar::new(),
        });
        let deadline = Instant::now() + PASS_MAX * self.patience;
        for turn in 0.. {
            let stuck = lock(&self.pending).len();
            if stuck >= STUCK_MAX || Instant::now() >= deadline || !start(&round, turn) {
                break;
            }
            if round.watch(self.patience, deadline, note) {
                break;
            }
        }
        round.finish()
    }
}

fn start(round: &Arc<Round>, turn: usize) -> bool {
    lock(&round.progress).turn = turn;
    let round = round.clone();
    std::thread::Builder::new()
        .name("statvfs".into())
        .stack_size(STACK_BYTES)
        .spawn(move || round.ask_on(turn))
        .is_ok()
}

impl Round {
    /// The thread's work: asks one path after the other while it has the turn.
    fn ask_on(&self, turn: usize) {
        while let Some(index) = self.take(turn) {
            let path = &self.paths[index];
            let answer = match (self.statvfs)(path) {
                Ok(volume) => Answer::Volume(volume),
                Err(_) => Answer::Refused,
            };
            lock(&self.pending).remove(path);
            let mut progress = lock(&self.progress);
            if progress.turn == turn {
                progress.answers[index] = answer;
                self.changed.notify_all();
            }
        }
    }

    /// The next path that is not stuck already.
    fn take(&self, turn: usize) -> Option<usize> {
        let mut progress = lock(&self.progress);
        if progress.turn != turn {
            return None;
        }
        while let Some(path) = self.paths.get(progress.next) {
            let index = progress.next;
            progress.next += 1;
            if !matches!(progress.answers[index], Answer::NotAsked) {
                continue;
            }
            // Two mounts may lie on the same place; if one is stuck, so is the other.
            if lock(&self.pending).insert(path.clone()) {
                return Some(index);
            }
            progress.answers[index] = Answer::Stuck;
        }
        progress.is_done = true;
        self.changed.notify_all();
        None
    }

    /// True when all were asked; false when one got stuck.
    fn watch(&self, patience: Duration, deadline: Instant, note: &Note) -> bool {
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
                return self.give_up(&mut progress, note);
            }
            let result = self.changed.wait_timeout(progress, until - now);
            progress = result.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    fn give_up(&self, progress: &mut Progress, note: &Note) -> bool {
        // Takes the turn away: what the thread brings later is too late for this pass.
        progress.turn = usize::MAX;
        if let Some(index) = progress.next.checked_sub(1) {
            progress.answers[index] = Answer::Stuck;
            note.set(&format!("the mount {}", self.paths[index].display()));
        }
        false
    }

    fn finish(&self) -> Vec<Answer> {
        let mut progress = lock(&self.progress);
        progress.turn = usize::MAX;
        std::mem::take(&mut progress.answers)
    }
}
