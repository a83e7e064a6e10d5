//! The thread that performs the log's file operations, so that a hanging disk does not block the
//! writer.
//!
//! The writer submits one operation at a time and waits for it at most
//! `StoreOptions::disk_timeout`. An operation that takes longer continues in its thread; until it
//! returns, the log is unusable and the store degraded. The same thread checks that written data is
//! still reachable: that the segment is at its path, and that the directory is the one that this
//! store locked.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::time::Duration;

use crate::files::{FileHandle, Files, write_all_at};
use crate::lock::LockedDir;

use super::{FrameEncoder, LogSegment};

/// The writer's side: submits operations and receives their results.
#[derive(Debug)]
pub(crate) struct LogIo {
    requests: SyncSender<LogIoRequest>,
    results: Receiver<LogIoResult>,
    timeout: Duration,
    /// Whether an operation was submitted and has not returned.
    is_busy: bool,
}

#[derive(Debug)]
enum LogIoRequest {
    Open {
        number: u64,
        /// Whether to sync segment and directory before the segment is used.
        sync: bool,
    },
    Append {
        file: Arc<dyn FileHandle>,
        frames: Vec<u8>,
        at: u64,
        /// The path at which the file must still be after the write.
        check: Option<Arc<Path>>,
    },
}

#[derive(Debug)]
enum LogIoResult {
    Opened(io::Result<LogSegment>),
    /// Also returns the buffer for reuse.
    Appended(io::Result<()>, Vec<u8>),
}

/// The thread's side: performs the operations.
#[derive(Debug)]
pub(crate) struct LogIoThread {
    files: Arc<dyn Files>,
    dir: PathBuf,
    locked: Arc<LockedDir>,
    requests: Receiver<LogIoRequest>,
    results: SyncSender<LogIoResult>,
}

impl LogIo {
    pub(crate) fn new(
        files: Arc<dyn Files>,
        dir: PathBuf,
        locked: Arc<LockedDir>,
        stall: Duration,
    ) -> (LogIo, LogIoThread) {
        let (jobs, for_thread) = sync_channel(1);
        let (done, outcomes) = sync_channel(1);
        let disk = LogIo {
            requests: jobs,
            results: outcomes,
            timeout: stall,
            is_busy: false,
        };
        let thread = LogIoThread {
            files,
            dir,
            locked,
            requests: for_thread,
            results: done,
        };
        (disk, thread)
    }

    /// Returns whether the next operation can start: the previous one has returned, late or not.
    pub(crate) fn is_idle(&mut self) -> bool {
        // The result of an operation that timed out is ignored: its samples go to a block.
        if self.is_busy && !matches!(self.results.try_recv(), Err(TryRecvError::Empty)) {
            self.is_busy = false;
        }
        !self.is_busy
    }

    /// Creates a segment.
    pub(crate) fn open(&mut self, number: u64, sync: bool) -> io::Result<LogSegment> {
        match self.submit(LogIoRequest::Open { number, sync })? {
            LogIoResult::Opened(opened) => opened,
            LogIoResult::Appended(..) => {
                Err(io::Error::other("internal error: unexpected log result"))
            }
        }
    }

    /// Appends the encoder's frames to a segment. With `check`, success also means that segment and
    /// directory are still at their paths.
    pub(crate) fn append(
        &mut self,
        segment: &mut LogSegment,
        encoder: &mut FrameEncoder,
        check: bool,
    ) -> io::Result<()> {
        let frames = encoder.take_frames();
        let len = frames.len() as u64;
        let job = LogIoRequest::Append {
            file: segment.file.clone(),
            frames,
            at: segment.len(),
            check: check.then(|| segment.path.clone()),
        };
        match self.submit(job)? {
            LogIoResult::Appended(written, buffer) => {
                encoder.recycle(buffer);
                written.map(|()| segment.advance(len))
            }
            LogIoResult::Opened(_) => {
                Err(io::Error::other("internal error: unexpected log result"))
            }
        }
    }

    fn submit(&mut self, job: LogIoRequest) -> io::Result<LogIoResult> {
        if !self.is_idle() {
            return Err(self.stalled());
        }
        let ended = || io::Error::other("internal error: the log's thread has ended");
        self.requests.send(job).map_err(|_| ended())?;
        self.is_busy = true;
        match self.results.recv_timeout(self.timeout) {
            Ok(outcome) => {
                self.is_busy = false;
                Ok(outcome)
            }
            Err(RecvTimeoutError::Timeout) => Err(self.stalled()),
            Err(RecvTimeoutError::Disconnected) => Err(ended()),
        }
    }

    fn stalled(&self) -> io::Error {
        let message = format!("the disk did not respond within {:?}", self.timeout);
        io::Error::new(io::ErrorKind::TimedOut, message)
    }
}

impl LogIoThread {
    /// Runs until the writer's side is dropped.
    pub(crate) fn run(self) {
        while let Ok(job) = self.requests.recv() {
            let outcome = match job {
                LogIoRequest::Open { number, sync } => LogIoResult::Opened(self.open(number, sync)),
                LogIoRequest::Append {
                    file,
                    frames,
                    at,
                    check,
                } => {
                    let written = write_all_at(&*file, &frames, at).and_then(|()| match check {
                        Some(path) => self.check(&*file, &path),
                        None => Ok(()),
                    });
                    LogIoResult::Appended(written, frames)
                }
            };
            if self.results.send(outcome).is_err() {
                return;
            }
        }
    }

    fn open(&self, number: u64, sync: bool) -> io::Result<LogSegment> {
        // A directory that replaced ours may be in use by another agent.
        self.locked.check()?;
        self.locked.refresh();
        let segment = LogSegment::create(&*self.files, &self.dir, number)?;
        if sync {
            let synced = segment.file.sync();
            let synced = synced.and_then(|()| self.files.sync_dir(&self.dir));
            synced.map_err(|error| {
                io::Error::new(error.kind(), format!("sync of the log: {error}"))
            })?;
        }
        Ok(segment)
    }

    fn check(&self, file: &dyn FileHandle, path: &Path) -> io::Result<()> {
        self.locked.check()?;
        if file.is_at(path) {
            Ok(())
        } else {
            Err(io::Error::new(
                io::ErrorKind::NotFound,
                "the file was removed or replaced",
            ))
        }
    }
}
