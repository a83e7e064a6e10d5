//! Forces the lane journal to disk on a thread of its own: fsync may take seconds, and a pass must not wait for it.
//! At most one runs at a time, and a failure is kept until a later one succeeds.

use std::fs::File;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pegel_supervisor::{CriticalThread, Supervisor};

/// A sync that takes longer than this is reported.
const SLOW: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct JournalSync {
    shared: Arc<Shared>,
    thread: Option<CriticalThread>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<SyncState>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct SyncState {
    requested: Option<File>,
    /// When the sync that runs now began.
    began: Option<Instant>,
    failure: Option<String>,
    is_stopping: bool,
}

impl JournalSync {
    pub fn start(supervisor: &Supervisor) -> io::Result<JournalSync> {
        JournalSync::start_with(supervisor, File::sync_data)
    }

    fn start_with(
        supervisor: &Supervisor,
        sync: impl Fn(&File) -> io::Result<()> + Send + 'static,
    ) -> io::Result<JournalSync> {
        let shared = Arc::new(Shared::default());
        let for_thread = shared.clone();
        let thread = supervisor.thread("lane-journal");
        let thread = thread.critical(move |_| for_thread.run(sync))?;
        Ok(JournalSync {
            shared,
            thread: Some(thread),
        })
    }

    /// Asks for a sync of what was written so far. False when the last one has not ended: then this one is left
    /// out, and the next covers it.
    pub fn request(&self, file: File) -> bool {
        let mut state = self.shared.state();
        if state.requested.is_some() || state.began.is_some() {
            return false;
        }
        state.requested = Some(file);
        self.shared.wake.notify_one();
        true
    }

    /// Why what was written may not be on disk.
    pub fn fault(&self) -> Option<String> {
        let state = self.shared.state();
        let slow = state
            .began
            .map(|began| began.elapsed())
            .filter(|time| *time > SLOW);
        match (&state.failure, slow) {
            (Some(failure), _) => Some(format!("the lane journal cannot be synced: {failure}")),
            (None, Some(time)) => Some(format!(
                "a sync of the lane journal has been running for {} s",
                time.as_secs()
            )),
            (None, None) => None,
        }
    }

    /// Whether the last sync failed. What it covered must be written again: the kernel may have dropped it.
    pub fn has_failed(&self) -> bool {
        self.shared.state().failure.is_some()
    }

    /// The journal was written anew and synced.
    pub fn reset(&self) {
        self.shared.state().failure = None;
    }
}

impl Drop for JournalSync {
    fn drop(&mut self) {
        self.thread.iter().for_each(CriticalThread::expect_end);
        let mut state = self.shared.state();
        state.is_stopping = true;
        let is_busy = state.began.is_some();
        drop(state);
        self.shared.wake.notify_one();
        // A disk that hangs must not keep the agent from ending.
        if let Some(thread) = self.thread.take().filter(|_| !is_busy) {
            thread.join();
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, SyncState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, sync: impl Fn(&File) -> io::Result<()>) {
        let mut state = self.state();
        while !state.is_stopping {
            let Some(file) = state.requested.take() else {
                let woken = self.wake.wait(state);
                state = woken.unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            state.began = Some(Instant::now());
            drop(state);
            let synced = sync(&file);
            drop(file);
            state = self.state();
            state.began = None;
            if let Err(error) = synced {
                state.failure = Some(error.to_string());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use pegel_testkit::eventually;

    use super::*;

    fn file() -> File {
        File::open("/dev/null").expect("opened")
    }

    #[test]
    fn at_most_one_sync_runs_however_long_it_takes() {
        let (began, has_begun) = channel();
        let (release, is_released) = channel::<()>();
        let sync = JournalSync::start_with(&Supervisor::default(), move |_| {
            began.send(()).expect("waited for");
            is_released.recv().map_err(io::Error::other)
        });
        let sync = sync.expect("started");
        assert!(sync.request(file()));
        has_begun.recv().expect("begins");
        for _ in 0..1000 {
            assert!(!sync.request(file()), "one is under way");
        }
        release.send(()).expect("waits");
        eventually("the next one is taken", || {
            sync.request(file()).then_some(()).ok_or("not yet")
        });
        has_begun.recv().expect("begins");
        release.send(()).expect("waits");
        assert!(has_begun.try_recv().is_err(), "two requests, two syncs");
    }

    #[test]
    fn a_sync_that_fails_is_said_until_the_journal_is_written_anew() {
        // The kernel does not sync a device of this kind.
        let sync = JournalSync::start(&Supervisor::default()).expect("started");
        assert!(sync.request(file()));
        let fault = eventually("the failure is said", || sync.fault().ok_or("none"));
        assert!(
            fault.starts_with("the lane journal cannot be synced: "),
            "{fault}"
        );
        assert!(sync.has_failed());
        sync.reset();
        assert_eq!(sync.fault(), None);
    }
}
