//! Maintains the snapshot of a running agent on a thread of its own.
//!
//! A snapshot is taken at start, at regular intervals, on request ([`SnapshotWorker::retake`]) and
//! when the cloud reports a change. It is stored on disk only if it differs from the previous one,
//! and served from memory. The agent never waits for this thread; a panic while reading a file
//! costs one snapshot, not the agent.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use pegel_metric::with_causes;
use pegel_supervisor::{RestartedThread, Supervisor, panic_message};
use serde::Serialize;

use crate::cloud::{CloudEvent, CloudProvider, CloudWatcher};
use crate::snapshot::{Snapshot, SnapshotOptions};
use crate::snapshot_store::SnapshotStore;
use crate::timestamp::Timestamp;

/// Minimum time between two snapshots. More frequent requests are merged.
const INTERVAL_MIN: Duration = Duration::from_secs(1);

/// Handle to the thread that takes the snapshots of an agent. Dropping it stops the thread.
#[derive(Debug)]
pub struct SnapshotWorker {
    shared: Arc<SnapshotWorkerShared>,
    thread: Option<RestartedThread>,
}

/// State of the worker, shown in the agent's status.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SnapshotStatus {
    pub taken: Option<Timestamp>,
    /// Snapshots taken since the start of the agent.
    pub looks: u64,
    /// Snapshots among them that differed from the previous one and were stored.
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

impl SnapshotWorker {
    /// Starts the worker without waiting for the first snapshot.
    pub fn start(
        options: SnapshotOptions,
        dir: PathBuf,
        supervisor: &Supervisor,
    ) -> io::Result<SnapshotWorker> {
        let shared = Arc::new(SnapshotWorkerShared::default());
        let for_thread = shared.clone();
        let for_cloud = supervisor.clone();
        let thread = supervisor.thread("snapshot").restarted(move || {
            // Opened on this thread: reading stored snapshots must not delay the start of the
            // agent.
            let store = SnapshotStore::open(&dir);
            for_thread.run_loop(&options, store, &for_cloud);
        })?;
        Ok(SnapshotWorker {
            shared,
            thread: Some(thread),
        })
    }

    /// Returns the latest snapshot as JSON; `None` until the first one is taken.
    pub fn current(&self) -> Option<Arc<str>> {
        self.shared.state.lock().current.clone()
    }

    pub fn status(&self) -> SnapshotStatus {
        self.shared.state.lock().status.clone()
    }

    /// Requests a new snapshot; it is taken within about a second.
    pub fn retake(&self) {
        self.shared.retake();
    }

    /// Returns the scheduled cloud events of this machine; `None` if no cloud answers.
    pub fn events(&self) -> Option<(CloudProvider, Vec<CloudEvent>)> {
        self.shared.cloud_watcher.lock().as_ref()?.events()
    }
}

impl Drop for SnapshotWorker {
    fn drop(&mut self) {
        self.shared.state.lock().is_stopped = true;
        self.shared.wake.notify_all();
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
        // Dropped outside the lock: the watcher's thread may call back into the shared state until
        // it ends.
        let watcher = self.shared.cloud_watcher.lock().take();
        drop(watcher);
    }
}

impl SnapshotWorkerShared {
    fn run_loop(
        self: &Arc<Self>,
        options: &SnapshotOptions,
        mut store: SnapshotStore,
        supervisor: &Supervisor,
    ) {
        let mut cloud_watcher_started = false;
        loop {
            let started = Instant::now();
            let cloud = self.cloud_watcher.lock().as_ref().map(CloudWatcher::cloud);
            // A panic is a bug in one of the parsers: the agent continues without this snapshot.
            let read = || options.read_machine(Timestamp::now(), cloud);
            match catch_unwind(AssertUnwindSafe(read)) {
                Ok(snapshot) => {
                    if !std::mem::replace(&mut cloud_watcher_started, true) {
                        self.start_cloud_watcher(options, &snapshot, supervisor);
                    }
                    self.publish(&snapshot, &mut store);
                }
                Err(panic) => self.set_trouble(format!(
                    "internal error: reading the machine panicked: {}",
                    panic_message(&*panic)
                )),
            }
            if !self.wait_until_due(started, options.settings.every.duration()) {
                return;
            }
        }
    }

    fn start_cloud_watcher(
        self: &Arc<Self>,
        options: &SnapshotOptions,
        snapshot: &Snapshot,
        supervisor: &Supervisor,
    ) {
        let Some(target) = options.metadata_target(snapshot) else {
            return;
        };
        let shared = Arc::downgrade(self);
        let changed = move || {
            if let Some(shared) = shared.upgrade() {
                shared.retake();
            }
        };
        match CloudWatcher::start(target, changed, supervisor) {
            Ok(watcher) => *self.cloud_watcher.lock() = Some(watcher),
            Err(error) => {
                self.set_trouble(format!("cannot start the cloud metadata thread: {error}"))
            }
        }
    }

    fn publish(&self, snapshot: &Snapshot, store: &mut SnapshotStore) {
        let stored = store.store_if_changed(snapshot);
        let mut state = self.state.lock();
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
        let mut state = self.state.lock();
        if state.status.trouble.as_ref() != Some(&trouble) {
            tracing::warn!(trouble, "snapshot is incomplete");
        }
        state.status.trouble = Some(trouble);
    }

    fn retake(&self) {
        self.state.lock().retake_requested = true;
        self.wake.notify_all();
    }

    /// Waits until the next snapshot is due. Returns false when the worker is stopped.
    fn wait_until_due(&self, started: Instant, every: Duration) -> bool {
        let mut state = self.state.lock();
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
            self.wake.wait_for(&mut state, left);
        }
    }
}
