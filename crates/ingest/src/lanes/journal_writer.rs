//! Writes the lane journal on its own thread: a pass over the lanes never waits for the disk.
//!
//! The thread has one task at a time: records to append, or a whole file that replaces the old one.
//! [`super::Lanes`] submits nothing while a task is pending; amounts are absolute, so a lane's next
//! record covers those that were left out. A task that fails is retried until it succeeds. A
//! failure, or a task that takes longer than [`STALL_TIMEOUT`], degrades the agent.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use pegel_supervisor::{CriticalThread, Supervisor};

use super::journal::{JournalContents, JournalRecords};
use super::journal_file::JournalFile;
use super::settings::LanesSettings;

/// A disk that has not responded for this long is reported.
const STALL_TIMEOUT: Duration = Duration::from_secs(3);
/// How long shutdown waits for the disk.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause before a failed task is retried; doubled each time up to the maximum.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
const RETRY_INTERVAL_MAX: Duration = Duration::from_secs(8);
/// The file is rewritten when it has grown by this much since the last rewrite.
const GROWTH_MAX: usize = 4 << 20;

/// The handle of the thread. On drop, waits for the pending task, for at most [`STOP_TIMEOUT`].
#[derive(Debug)]
pub(super) struct JournalWriter {
    /// Records for the next submission.
    pub records: JournalRecords,
    /// The number of the next submission.
    number: u64,
    /// The size of the file once everything submitted is written.
    bytes: usize,
    /// Its size after the last rewrite.
    rewritten_bytes: usize,
    stop_by: Option<Instant>,
    shared: Arc<JournalWriterContext>,
    thread: Option<CriticalThread>,
}

/// A write to the journal.
#[derive(Debug)]
pub(super) struct JournalTask {
    number: u64,
    pub bytes: Vec<u8>,
    /// Whether the bytes are the whole file rather than an addition.
    pub replaces_file: bool,
    /// Whether to sync everything written so far.
    pub sync: bool,
}

#[derive(Debug, Default)]
struct JournalWriterContext {
    state: Mutex<JournalWriterState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct JournalWriterState {
    /// The next task, or one that failed and is retried.
    task: Option<JournalTask>,
    /// When the task in progress began.
    started: Option<Instant>,
    /// The last submission that is in the file.
    written: u64,
    write_error: Option<String>,
    /// Kept until the file is rewritten: the kernel may have dropped what it did not sync.
    sync_error: Option<String>,
    is_stopping: bool,
    has_ended: bool,
}

impl JournalWriter {
    pub(super) fn start(
        settings: &LanesSettings,
        supervisor: &Supervisor,
    ) -> io::Result<JournalWriter> {
        let shared = Arc::new(JournalWriterContext::default());
        let file = JournalFile::new(settings.files.clone(), settings.journal.clone());
        let for_thread = shared.clone();
        let thread = supervisor.thread("lane-journal");
        let thread = thread.critical(move |_| for_thread.run(file))?;
        Ok(JournalWriter {
            records: JournalRecords::default(),
            number: 1,
            bytes: 0,
            rewritten_bytes: 0,
            stop_by: None,
            shared,
            thread: Some(thread),
        })
    }

    /// Returns the number of the next submission.
    pub(super) fn next_number(&self) -> u64 {
        self.number
    }

    /// Returns whether this submission is in the file.
    pub(super) fn is_written(&self, number: u64) -> bool {
        self.shared.state().written >= number
    }

    /// Returns whether a task is pending. Nothing should be submitted until it is done.
    pub(super) fn is_busy(&self) -> bool {
        let state = self.shared.state();
        state.task.is_some() || state.started.is_some()
    }

    /// Returns whether the file is much larger than its contents.
    pub(super) fn needs_compaction(&self) -> bool {
        self.bytes > 2 * self.rewritten_bytes + GROWTH_MAX
    }

    /// Returns whether a sync failed since the file was last rewritten.
    pub(super) fn has_sync_failed(&self) -> bool {
        self.shared.state().sync_error.is_some()
    }

    /// Submits the records, to be appended.
    pub(super) fn append(&mut self, sync: bool) {
        let bytes = self.records.take();
        if bytes.is_empty() && !sync {
            return;
        }
        self.bytes += bytes.len();
        self.submit(bytes, false, sync);
    }

    /// Submits a new file with exactly these contents, which replaces the old one and the records.
    pub(super) fn replace(&mut self, kept: &JournalContents) {
        self.records.clear();
        let bytes = kept.to_bytes();
        self.bytes = bytes.len();
        self.rewritten_bytes = self.bytes;
        self.submit(bytes, true, false);
    }

    fn submit(&mut self, bytes: Vec<u8>, is_whole: bool, sync: bool) {
        let number = self.number;
        self.number += 1;
        let mut state = self.shared.state();
        match &mut state.task {
            // The pending task has failed so far: both are written together.
            Some(task) if !is_whole => {
                task.bytes.extend(bytes);
                task.number = number;
                task.sync |= sync;
            }
            task => {
                *task = Some(JournalTask {
                    number,
                    bytes,
                    replaces_file: is_whole,
                    sync,
                });
            }
        }
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Returns why submitted records are not in the file, or may not be on disk.
    pub(super) fn error_message(&self) -> Option<String> {
        let state = self.shared.state();
        if let Some(error) = &state.write_error {
            return Some(format!("the lane journal cannot be written: {error}"));
        }
        if let Some(error) = &state.sync_error {
            return Some(format!("the lane journal cannot be synced: {error}"));
        }
        let time = state.started?.elapsed();
        let seconds = time.as_secs();
        (time >= STALL_TIMEOUT)
            .then(|| format!("the lane journal: the disk has not responded for {seconds} s"))
    }

    /// At shutdown: waits until no task is in progress. Returns false if the disk hangs.
    pub(super) fn wait_until_idle(&mut self) -> bool {
        self.wait_to_stop(|state| state.started.is_none() && !state.is_untried())
    }

    /// Drops the pending task, as a kill would.
    pub(super) fn discard(&mut self) {
        self.shared.state().task = None;
    }

    fn wait_to_stop(&mut self, is_reached: impl Fn(&JournalWriterState) -> bool) -> bool {
        let by = Instant::now() + STOP_TIMEOUT;
        let left = (*self.stop_by.get_or_insert(by)).saturating_duration_since(Instant::now());
        let mut state = self.shared.state();
        let is_waiting = |state: &mut JournalWriterState| !is_reached(state);
        self.shared
            .changed
            .wait_while_for(&mut state, is_waiting, left);
        is_reached(&state)
    }
}

impl Drop for JournalWriter {
    fn drop(&mut self) {
        self.thread.iter().for_each(CriticalThread::expect_end);
        self.shared.state().is_stopping = true;
        self.shared.changed.notify_all();
        // A disk that hangs must not prevent the agent from exiting.
        if !self.wait_to_stop(|state| state.has_ended) {
            tracing::warn!("the lane journal is incomplete: the disk does not respond");
        } else if let Some(thread) = self.thread.take() {
            thread.join();
        }
    }
}

impl JournalWriterState {
    /// Returns whether the pending task has not been tried yet.
    fn is_untried(&self) -> bool {
        self.task.is_some() && self.write_error.is_none()
    }
}

impl JournalWriterContext {
    fn state(&self) -> MutexGuard<'_, JournalWriterState> {
        self.state.lock()
    }

    fn run(&self, mut file: JournalFile) {
        let mut pause = RETRY_INTERVAL;
        let mut state = self.state();
        loop {
            let Some(task) = state.task.take() else {
                if state.is_stopping {
                    break;
                }
                self.changed.wait(&mut state);
                continue;
            };
            state.started = Some(Instant::now());
            drop(state);
            let written = file.write(&task);
            let synced = match &written {
                Ok(()) if task.sync => file.sync(),
                _ => Ok(()),
            };
            state = self.state();
            state.started = None;
            state.write_error = written.err().map(|error| error.to_string());
            if state.write_error.is_none() {
                state.written = task.number;
                if task.replaces_file {
                    state.sync_error = None;
                }
                if let Err(error) = synced {
                    state.sync_error = Some(error.to_string());
                }
                pause = RETRY_INTERVAL;
                self.changed.notify_all();
                continue;
            }
            state.task = Some(task);
            self.changed.notify_all();
            if state.is_stopping {
                break;
            }
            self.changed
                .wait_while_for(&mut state, |state| !state.is_stopping, pause);
            pause = (pause * 2).min(RETRY_INTERVAL_MAX);
        }
        state.has_ended = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests;
