//! One session of a running agent: the state that its threads share with requests.
//!
//! The recorder thread reads the store at each flush and writes blocks to the spool
//! (`recorder.rs`). The upload thread stores them (`upload_thread.rs`). Neither holds a lock that a
//! request waits for while it does I/O: `session status` responds even if a disk or a storage
//! hangs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use pegel_config::UserInfo;
use pegel_metric::Millis;

use crate::description::{RequestedEnd, SessionDescription, SessionDir};
use crate::manager::SessionContext;
use crate::requests::{SessionState, SessionStatus};
use crate::session_record::SessionRecord;
use crate::spool::SharedSpool;
use crate::task::TaskPeaks;
use crate::upload::UploadStatus;

/// A session, shared by its threads and by requests.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) context: Arc<SessionContext>,
    pub(crate) dir: SessionDir,
    /// The name of its user, for the sampler, which must not read files.
    pub(crate) user: String,
    /// Locked while a block is written. Requests never lock it.
    pub(crate) record: Mutex<SessionRecord>,
    pub(crate) spool: SharedSpool,
    shared: Mutex<SessionShared>,
    /// Held while the description is changed and written: threads and requests do both.
    description_change: Mutex<()>,
    /// Signalled at every change of `shared`.
    changed: Condvar,
}

/// The state that the threads of a session and requests exchange.
#[derive(Debug, Clone)]
pub(crate) struct SessionShared {
    pub(crate) description: SessionDescription,
    /// Numbers of the last flush that was requested and of the last that was done.
    pub(crate) flushes_requested: u64,
    pub(crate) flushes_done: u64,
    /// Whether the last block is in the spool.
    pub(crate) is_ended: bool,
    /// Counts changes of the credentials.
    pub(crate) credentials_version: u64,
    /// Counts blocks written since the start of the agent.
    pub(crate) blocks: u64,
    pub(crate) samples: u64,
    pub(crate) recorded_until: Option<Millis>,
    pub(crate) problem: Option<String>,
    pub(crate) upload: Option<UploadStatus>,
    /// The usage of the task so far.
    pub(crate) peaks: Option<TaskPeaks>,
    /// Set when the agent stops: the deadline for storing blocks.
    pub(crate) stop_at: Option<Instant>,
    pub(crate) has_recorder_stopped: bool,
    pub(crate) has_upload_stopped: bool,
}

impl Session {
    pub(crate) fn new(
        context: Arc<SessionContext>,
        dir: SessionDir,
        description: SessionDescription,
        record: SessionRecord,
    ) -> Session {
        let spool = record.spool();
        let user = UserInfo::lookup(description.uid).short_name();
        let shared = SessionShared {
            is_ended: record.has_ended(),
            recorded_until: record.samples_end(),
            description,
            flushes_requested: 0,
            flushes_done: 0,
            credentials_version: 0,
            blocks: 0,
            samples: 0,
            problem: None,
            upload: None,
            peaks: None,
            stop_at: None,
            has_recorder_stopped: record.has_ended(),
            has_upload_stopped: false,
        };
        Session {
            context,
            dir,
            user,
            record: Mutex::new(record),
            spool,
            shared: Mutex::new(shared),
            description_change: Mutex::new(()),
            changed: Condvar::new(),
        }
    }

    /// Returns a copy of a part of the shared state.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&SessionShared) -> T) -> T {
        read(&self.shared.lock())
    }

    /// Changes the shared state and wakes all waiting threads.
    pub(crate) fn update<T>(&self, change: impl FnOnce(&mut SessionShared) -> T) -> T {
        let result = change(&mut self.shared.lock());
        self.changed.notify_all();
        result
    }

    /// Waits until `is_done`, or until the deadline. Returns whether it is done.
    pub(crate) fn wait_until(
        &self,
        deadline: Instant,
        mut is_done: impl FnMut(&SessionShared) -> bool,
    ) -> bool {
        let mut shared = self.shared.lock();
        loop {
            if is_done(&shared) {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            self.changed.wait_for(&mut shared, left);
        }
    }

    /// Changes the description, durably.
    pub(crate) fn change_description(
        &self,
        change: impl FnOnce(&mut SessionDescription),
    ) -> std::io::Result<()> {
        let _changing = self.description_change.lock();
        let mut description = self.read(|shared| shared.description.clone());
        change(&mut description);
        self.dir.write_description(&description)?;
        self.update(|shared| shared.description = description);
        Ok(())
    }

    /// Whether this session occupies its slot: its end was not requested.
    pub(crate) fn is_recording(&self) -> bool {
        self.read(|shared| shared.description.requested_end.is_none() && !shared.is_ended)
    }

    pub(crate) fn is_in_slot(&self, uid: u32, slot: &str) -> bool {
        self.read(|shared| shared.description.uid == uid && shared.description.slot == slot)
    }

    /// Requests a flush of everything up to now; returns whether it was done in time.
    pub(crate) fn flush(&self, timeout: Duration) -> bool {
        let number = self.update(|shared| {
            shared.flushes_requested += 1;
            shared.flushes_requested
        });
        self.wait_until(Instant::now() + timeout, |shared| {
            shared.flushes_done >= number || shared.is_ended
        })
    }

    /// Requests the end of the record. The request survives a restart of the agent.
    pub(crate) fn request_end(&self, end: RequestedEnd) -> std::io::Result<()> {
        if !self.is_recording() {
            return Ok(());
        }
        self.change_description(|description| {
            description.requested_end.get_or_insert(end);
        })
    }

    pub(crate) fn status(&self) -> SessionStatus {
        self.read(|shared| {
            let description = &shared.description;
            let state = match (shared.is_ended, &description.requested_end) {
                _ if description.is_stored => SessionState::Stored,
                (true, _) => SessionState::Storing,
                (false, Some(_)) => SessionState::Ending,
                (false, None) => SessionState::Recording,
            };
            let end = description.requested_end.as_ref();
            SessionStatus {
                slot: description.slot.clone(),
                uid: description.uid,
                identity: description.identity.clone(),
                to: description.folder().to_string(),
                state,
                begin: description.begin,
                task_end: description.task_end,
                end: end.map(|end| end.time),
                end_reason: end.map(|end| end.reason),
                recorded_until: shared.recorded_until,
                blocks: shared.blocks,
                samples: shared.samples,
                problem: shared.problem.clone(),
                upload: shared.upload.clone(),
            }
        })
    }
}
