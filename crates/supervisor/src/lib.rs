//! Supervises the threads of an agent, so that none of them ends or hangs unnoticed.
//!
//! A *critical* thread is one without which samples are lost or requests go unanswered: the store's
//! writer, the sampler, a statsd receiver. If one ends before its owner expects it, by a panic or
//! by returning, the supervisor keeps the first such [`ThreadFailure`] and the agent exits with it;
//! the service manager restarts the agent.
//!
//! A *restarted* thread serves one collector, the snapshot or the cloud watch. After a panic it is
//! restarted, after a pause that grows each time.
//!
//! A *task* of a runtime that the agent cannot do without is run by [`Supervisor::task`]. A thread
//! for a call that may hang is one of [`AbandonableThreads`].
//!
//! Every part of the agent that starts a long-lived thread takes a [`Supervisor`] in its options
//! and starts it with [`Supervisor::thread`].

mod abandonable;
mod critical;
mod record;
mod restarted;
mod task;

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::sync::{Arc, Weak};
use std::task::{Poll, Waker};
use std::thread::Builder;
use std::time::Duration;

use parking_lot::Mutex;

pub use abandonable::AbandonableThreads;
pub use critical::CriticalThread;
pub use record::{Heartbeat, ThreadState, ThreadStatus};
pub use restarted::RestartedThread;

use record::ThreadRecord;

/// A thread that has been busy with one task for this long is stuck.
pub const STUCK_AFTER: Duration = Duration::from_secs(10);

/// A handle to the supervisor of an agent; clones share one supervisor.
#[derive(Debug, Clone, Default)]
pub struct Supervisor {
    inner: Arc<SupervisorState>,
}

#[derive(Debug, Default)]
struct SupervisorState {
    failure: Mutex<FirstFailure>,
    records: Mutex<Vec<Weak<ThreadRecord>>>,
}

#[derive(Debug, Default)]
struct FirstFailure {
    /// Only the first failure is kept: later ones are mostly its consequences.
    failure: Option<ThreadFailure>,
    waker: Option<Waker>,
}

/// The unexpected end of a critical thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadFailure {
    pub thread: String,
    /// The message of its panic; `None` if it returned.
    pub panic: Option<String>,
}

impl fmt::Display for ThreadFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.panic {
            Some(message) => write!(f, "thread {} panicked: {message}", self.thread),
            None => write!(f, "thread {} ended unexpectedly", self.thread),
        }
    }
}

impl std::error::Error for ThreadFailure {}

/// A thread that is about to be started.
#[derive(Debug)]
pub struct ThreadBuilder {
    supervisor: Supervisor,
    name: String,
    builder: Builder,
}

impl Supervisor {
    /// Prepares a thread with this name, as the kernel and `/status` show it.
    pub fn thread(&self, name: impl Into<String>) -> ThreadBuilder {
        let name = name.into();
        ThreadBuilder {
            supervisor: self.clone(),
            builder: Builder::new().name(name.clone()),
            name,
        }
    }

    /// Reports that a critical thread or task ended unexpectedly. Only the first report is kept.
    pub fn fail(&self, failure: ThreadFailure) {
        tracing::error!("{failure}");
        let mut waiting = self.inner.failure.lock();
        waiting.failure.get_or_insert(failure);
        let waker = waiting.waker.take();
        drop(waiting);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Returns the first failure, if there was one.
    pub fn failure(&self) -> Option<ThreadFailure> {
        self.inner.failure.lock().failure.clone()
    }

    /// Waits for the first failure. Only one task may wait at a time.
    pub async fn failed(&self) -> ThreadFailure {
        poll_fn(|context| {
            let mut waiting = self.inner.failure.lock();
            match &waiting.failure {
                Some(failure) => Poll::Ready(failure.clone()),
                None => {
                    waiting.waker = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Describes the first thread that does not work: stuck on one task, or waiting for its
    /// restart.
    pub fn fault(&self) -> Option<String> {
        let failed = self.failure().map(|failure| failure.to_string());
        failed.or_else(|| self.records().iter().find_map(|record| record.fault()))
    }

    /// Describes a critical thread that has been busy with one task for longer than
    /// [`STUCK_AFTER`].
    pub fn stuck(&self) -> Option<String> {
        self.records().iter().find_map(|record| record.stuck())
    }

    /// Returns the state of every thread, in the order in which they were started.
    pub fn threads(&self) -> Vec<ThreadStatus> {
        self.records()
            .iter()
            .map(|record| record.status())
            .collect()
    }

    fn records(&self) -> Vec<Arc<ThreadRecord>> {
        let records = self.inner.records.lock();
        records.iter().filter_map(Weak::upgrade).collect()
    }

    fn register(&self, name: &str) -> Arc<ThreadRecord> {
        let record = Arc::new(ThreadRecord::new(name));
        let mut records = self.inner.records.lock();
        records.retain(|known| known.strong_count() > 0);
        records.push(Arc::downgrade(&record));
        record
    }
}

impl ThreadBuilder {
    pub fn stack_size(mut self, bytes: usize) -> ThreadBuilder {
        self.builder = self.builder.stack_size(bytes);
        self
    }

    /// Starts a critical thread.
    pub fn critical(
        self,
        body: impl FnOnce(&Heartbeat) + Send + 'static,
    ) -> io::Result<CriticalThread> {
        let record = self.supervisor.register(&self.name);
        CriticalThread::start(self.builder, self.supervisor, record, body)
    }

    /// Starts a thread that runs `body` again, after a pause, whenever it panics. It ends when
    /// `body` returns.
    pub fn restarted(self, body: impl FnMut() + Send + 'static) -> io::Result<RestartedThread> {
        let record = self.supervisor.register(&self.name);
        RestartedThread::start(self.builder, record, body)
    }
}

/// Returns the message of a panic.
pub fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message").to_owned()
}

#[cfg(test)]
mod tests;
