//! Threads whose unexpected end is a failure of the agent.
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use crate::record::{Heartbeat, ThreadRecord};
use crate::{Supervisor, ThreadFailure, panic_message};

/// The handle of a critical thread. Its end is expected once the owner drops the handle or calls
/// [`CriticalThread::expect_end`].
#[derive(Debug)]
pub struct CriticalThread {
    record: Arc<ThreadRecord>,
    handle: Option<JoinHandle<()>>,
}

impl CriticalThread {
    pub(crate) fn start(
        builder: Builder,
        supervisor: Supervisor,
        record: Arc<ThreadRecord>,
        body: impl FnOnce(&Heartbeat) + Send + 'static,
    ) -> io::Result<CriticalThread> {
        let heartbeat = Heartbeat(record.clone());
        let handle = builder.spawn(move || {
            let ended = catch_unwind(AssertUnwindSafe(|| body(&heartbeat)));
            let record = heartbeat.0;
            record.ended();
            let panic = ended.err().map(|panic| panic_message(&*panic));
            if panic.is_some() || !record.is_end_expected() {
                let thread = record.name().to_owned();
                supervisor.fail(ThreadFailure { thread, panic });
            }
        })?;
        Ok(CriticalThread {
            record,
            handle: Some(handle),
        })
    }

    /// Marks the end of the thread as expected. Must be called before the thread is asked to end.
    pub fn expect_end(&self) {
        self.record.expect_end();
    }

    /// Waits for the end of the thread, which must have been asked to end.
    pub fn join(mut self) {
        self.expect_end();
        if let Some(handle) = self.handle.take() {
            // A panic is caught and reported by the thread itself.
            let _ = handle.join();
        }
    }
}

impl Drop for CriticalThread {
    fn drop(&mut self) {
        self.expect_end();
    }
}
