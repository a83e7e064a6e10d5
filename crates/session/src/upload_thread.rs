//! The upload thread of a session: opens the storage with the current credentials and stores the
//! blocks of the spool until the record is complete or the agent stops.

use std::time::{Duration, Instant};

use pegel_metric::with_causes;

use crate::session::Session;
use crate::storage::{
    FileStorage, RecordPlace, RecordStorage, StorageProblem, StorageProblemKind, open_storage,
};
use crate::upload::{RecordUploader, UploadStep};

/// The longest time that the thread waits for new blocks or credentials.
const IDLE_WAIT: Duration = Duration::from_secs(60);

impl Session {
    /// Stores blocks until everything is stored, or the agent stops. Called by a thread that is
    /// restarted after a panic.
    pub(crate) fn upload(&self) {
        let mut opened: Option<(u64, RecordUploader)> = None;
        loop {
            let version = self.read(|shared| shared.credentials_version);
            let uploader = match opened.take() {
                Some((known, uploader)) if known == version => uploader,
                _ => RecordUploader::new(self.spool.clone(), self.open_storage()),
            };
            let (_, uploader) = opened.insert((version, uploader));
            let step = uploader.step(Instant::now());
            let status = uploader.status();
            let seen = self.update(|shared| {
                shared.upload = Some(status);
                (shared.blocks, shared.is_ended)
            });
            let wait = match step {
                UploadStep::Stored => Duration::ZERO,
                UploadStep::Idle => IDLE_WAIT,
                UploadStep::Wait(wait) => wait,
                UploadStep::Finished => {
                    drop(opened);
                    self.finish();
                    break;
                }
            };
            let is_idle = step == UploadStep::Idle;
            let has_time = self.wait_for_blocks(wait, is_idle.then_some(seen), version);
            if !has_time {
                break;
            }
        }
        self.update(|shared| shared.has_upload_stopped = true);
    }

    /// Waits for the next step; with `seen`, also for new blocks. Returns whether to continue: the
    /// agent is not stopping, or has time and blocks left.
    fn wait_for_blocks(&self, wait: Duration, seen: Option<(u64, bool)>, version: u64) -> bool {
        let deadline = Instant::now() + wait;
        self.wait_until(deadline, |shared| {
            let has_new = seen.is_some_and(|seen| seen != (shared.blocks, shared.is_ended));
            // An upload with nothing to do ends with the recorder.
            let is_done = seen.is_some() && !has_new && shared.has_recorder_stopped;
            let is_stopping = shared.stop_at.is_some_and(|at| at <= deadline || is_done);
            has_new || is_stopping || shared.credentials_version != version
        });
        self.read(|shared| {
            let has_new = seen.is_none_or(|seen| seen != (shared.blocks, shared.is_ended));
            match shared.stop_at {
                None => true,
                Some(at) => Instant::now() < at && (has_new || !shared.has_recorder_stopped),
            }
        })
    }

    /// Opens the storage. If that fails, the result reports the problem at every attempt.
    fn open_storage(&self) -> Box<dyn RecordStorage> {
        let description = self.read(|shared| shared.description.clone());
        if let Some(root) = &description.permitted_directory
            && let RecordPlace::Directory(dir) = description.folder()
        {
            return Box::new(FileStorage::below(root.clone(), dir));
        }
        let opened = match self.dir.read_credentials() {
            Ok(credentials) => open_storage(
                &description.place,
                &description.identity.folder(),
                &credentials,
                &description.endpoints,
            ),
            Err(error) => Err(StorageProblem::new(
                StorageProblemKind::Credentials,
                format!("cannot read the credentials of the session: {error}"),
            )),
        };
        opened.unwrap_or_else(|problem| Box::new(UnusableStorage(problem)))
    }

    /// Removes what a stored record no longer needs.
    fn finish(&self) {
        let done = self
            .change_description(|description| description.is_stored = true)
            .and_then(|()| self.dir.remove_spool());
        if let Err(error) = done {
            let error = with_causes(&error);
            tracing::warn!(error, "cannot remove the spool of a stored record");
        }
    }
}

/// Storage that could not be opened: every request fails with the problem.
#[derive(Debug)]
struct UnusableStorage(StorageProblem);

impl RecordStorage for UnusableStorage {
    fn part_limits(&self) -> crate::storage::PartLimits {
        crate::storage::PartLimits {
            bytes: u64::MAX,
            blocks: u32::MAX,
        }
    }

    fn append(
        &mut self,
        _: u32,
        _: u64,
        _: &[u8],
    ) -> Result<crate::storage::AppendOutcome, StorageProblem> {
        Err(self.0.clone())
    }

    fn finish(&mut self, _: u32, _: &str) -> Result<(), StorageProblem> {
        Err(self.0.clone())
    }
}
