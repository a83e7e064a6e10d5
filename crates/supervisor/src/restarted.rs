//! Threads that are restarted after a panic.
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use crate::panic_message;
use crate::record::ThreadRecord;

/// The pause before the first restart. It doubles with each restart, up to the maximum, and is
/// reset after a thread ran for longer than the maximum.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// The handle of a thread that is restarted after a panic. When it is dropped, there are no further
/// restarts, and the thread ends when its `body` returns.
#[derive(Debug)]
pub struct RestartedThread {
    record: Arc<ThreadRecord>,
    handle: Option<JoinHandle<()>>,
}

impl RestartedThread {
    pub(crate) fn start(
        builder: Builder,
        record: Arc<ThreadRecord>,
        body: impl FnMut() + Send + 'static,
    ) -> io::Result<RestartedThread> {
        let for_thread = record.clone();
        let handle = builder.spawn(move || run(&for_thread, body))?;
        Ok(RestartedThread {
            record,
            handle: Some(handle),
        })
    }

    /// Whether the thread has ended.
    pub fn has_ended(&self) -> bool {
        self.handle.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for the end of the thread, whose body must have been asked to return.
    pub fn join(mut self) {
        self.record.expect_end();
        if let Some(handle) = self.handle.take() {
            handle.thread().unpark();
            // A panic is caught by the thread itself.
            let _ = handle.join();
        }
    }
}

impl Drop for RestartedThread {
    fn drop(&mut self) {
        self.record.expect_end();
        if let Some(handle) = &self.handle {
            handle.thread().unpark();
        }
    }
}

fn run(record: &ThreadRecord, mut body: impl FnMut()) {
    let mut pause = PAUSE;
    loop {
        let started = Instant::now();
        let Err(panic) = catch_unwind(AssertUnwindSafe(&mut body)) else {
            break;
        };
        let message = panic_message(&*panic);
        tracing::error!(
            thread = record.name(),
            message,
            "thread panicked; restarting it"
        );
        record.panicked(&message);
        if started.elapsed() > PAUSE_MAX {
            pause = PAUSE;
        }
        if !wait(record, pause) {
            break;
        }
        pause = (pause * 2).min(PAUSE_MAX);
        record.restarted();
    }
    record.ended();
}

/// Waits for `pause`. Returns false when the owner dropped the handle.
fn wait(record: &ThreadRecord, pause: Duration) -> bool {
    let until = Instant::now() + pause;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if record.is_end_expected() || left.is_zero() {
            return !record.is_end_expected();
        }
        std::thread::park_timeout(left);
    }
}
