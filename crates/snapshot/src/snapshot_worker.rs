//! The snapshot in an agent: taken when it starts, when it is asked to, when the cloud says something and every few
//! minutes, on a thread of its own; stored when something changed; served from memory.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pegel_config::with_causes;
use pegel_supervisor::{RestartedThread, Supervisor, panic_message};
use serde::Serialize;

use crate::cloud::{CloudEvent, CloudProvider, CloudWatcher};
use crate::snapshot::{Snapshot, SnapshotOptions};
use crate::snapshot_store::SnapshotStore;
use crate::timestamp::Timestamp;

/// Whoever asks for it more often gets the last one.
const INTERVAL_MIN: Duration = Duration::from_secs(1);

/// Keeps the snapshot of a running agent.
#[derive(Debug)]
pub struct SnapshotWorker {
    shared: Arc<SnapshotWorkerShared>,
    thread: Option<RestartedThread>,
}

/// How the keeper is doing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SnapshotStatus {
    pub taken: Option<Timestamp>,
    /// Since the start of the agent.
    pub looks: u64,
    /// Those of them that found something new and were stored.
    pub stored: u64,
    pub trouble: Option<String>,
}

#[derive(Debug, Default)]
struct SnapshotWorkerShared {
    state: Mutex<SnapshotWorkerState>,
    wake: Condvar,
    cloud_watcher: Mutex<Option<CloudWatcher>>,
}

#[derive(Debug, Default)]
struct SnapshotWorkerState {
    current: Option<Arc<str>>,
    status: SnapshotStatus,
    retake_requested: bool,
    is_stopped: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SnapshotWorker {
    /// Starts to look. Nothing is waited for: the first snapshot is there soon.
    pub fn start(
        subject: SnapshotOptions,
        dir: PathBuf,
        every: Duration,
        supervisor: &Supervisor,
    ) -> io::Result<SnapshotWorker> {
        let shared = Arc::new(SnapshotWorkerShared::default());
        let for_thread = shared.clone();
        let for_cloud = supervisor.clone();
        let thread = supervisor.thread("snapshot").restarted(move || {
            // Reading what an earlier agent stored is part of what must not delay the start.
            let shelf = SnapshotStore::open(&dir);
            for_thread.run_loop(&subject, shelf, every, &for_cloud);
        })?;
        Ok(SnapshotWorker {
            shared,
            thread: Some(thread),
        })
    }

    /// The latest snapshot as JSON; `None` in the first moments.
    pub fn current(&self) -> Option<Arc<str>> {
        lock(&self.shared.state).current.clone()
    }

    pub fn status(&self) -> SnapshotStatus {
        lock(&self.shared.state).status.clone()
    }

    /// Has the machine looked at again, soon.
    pub fn retake(&self) {
        self.shared.retake();
    }

    /// What the cloud is about to do to this machine; `None` where no cloud answers.
    pub fn events(&self) -> Option<(CloudProvider, Vec<CloudEvent>)> {
        lock(&self.shared.cloud_watcher).as_ref()?.events()
    }
}

impl Drop for SnapshotWorker {
    fn drop(&mut self) {
        lock(&self.shared.state).is_stopped = true;
        self.shared.wake.notify_all();
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
        // Its thread calls back into what is shared: it ends first.
        let watch = lock(&self.shared.cloud_watcher).take();
        drop(watch);
    }
}

impl SnapshotWorkerShared {
    fn run_loop(
        self: &Arc<Self>,
        subject: &SnapshotOptions,
        mut shelf: SnapshotStore,
        every: Duration,
        supervisor: &Supervisor,
    ) {
        let mut has_asked = false;
        loop {
            let started = Instant::now();
            let cloud = lock(&self.cloud_watcher).as_ref().map(CloudWatcher::cloud);
            // A panic is a mistake in the reading of some file: the agent goes on without this snapshot.
            let look = || subject.read_machine(Timestamp::now(), cloud);
            match catch_unwind(AssertUnwindSafe(look)) {
                Ok(snapshot) => {
                    if !std::mem::replace(&mut has_asked, true) {
                        self.start_cloud_watcher(subject, &snapshot, supervisor);
                    }
                    self.publish(&snapshot, &mut shelf);
                }
                Err(panic) => self.set_trouble(format!(
                    "looking at the machine panicked: {}",
                    panic_message(&*panic)
                )),
            }
            if !self.wait_until_due(started, every) {
                return;
            }
        }
    }

    fn start_cloud_watcher(
        self: &Arc<Self>,
        subject: &SnapshotOptions,
        snapshot: &Snapshot,
        supervisor: &Supervisor,
    ) {
        let Some(question) = subject.metadata_target(snapshot) else {
            return;
        };
        let shared = Arc::downgrade(self);
        let changed = move || {
            if let Some(shared) = shared.upgrade() {
                shared.retake();
            }
        };
        match CloudWatcher::start(question, changed, supervisor) {
            Ok(watch) => *lock(&self.cloud_watcher) = Some(watch),
            Err(error) => self.set_trouble(format!(
                "cannot start the thread that asks the cloud: {error}"
            )),
        }
    }

    fn publish(&self, snapshot: &Snapshot, shelf: &mut SnapshotStore) {
        let stored = shelf.store_if_changed(snapshot);
        let mut state = lock(&self.state);
        state.current = Some(snapshot.json().into());
        state.status.taken = Some(snapshot.taken);
        state.status.looks += 1;
        match stored {
            Ok(is_new) => {
                state.status.stored += u64::from(is_new);
                state.status.trouble = None;
            }
            Err(error) => {
                drop(state);
                self.set_trouble(with_causes(&error));
            }
        }
    }

    fn set_trouble(&self, trouble: String) {
        let mut state = lock(&self.state);
        if state.status.trouble.as_ref() != Some(&trouble) {
            tracing::warn!(trouble, "the snapshot is not well");
        }
        state.status.trouble = Some(trouble);
    }

    fn retake(&self) {
        lock(&self.state).retake_requested = true;
        self.wake.notify_all();
    }

    /// Until it is time for the next one; false when it is to stop.
    fn wait_until_due(&self, started: Instant, every: Duration) -> bool {
        let mut state = lock(&self.state);
        loop {
            if state.is_stopped {
                return false;
            }
            let pause = if state.retake_requested {
                INTERVAL_MIN
            } else {
                every.max(INTERVAL_MIN)
            };
            let left = pause.saturating_sub(started.elapsed());
            if left.is_zero() {
                state.retake_requested = false;
                return true;
            }
            let waited = self.wake.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
