//! Executes requests off the async workers, with limits on concurrency and on the memory of all
//! responses. Routes call [`RequestExecutor`] with a closure that reads or writes the store; range
//! queries, reads of current values, writes of samples and changes of other files have separate
//! limits, so that one kind cannot starve another, not even if the disk hangs. Response memory is
//! reserved while a response is built and released when its last byte has been sent.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{AcquireError, Semaphore};
use tokio::time::timeout;

use crate::api_error::ApiError;
use crate::budgeted_buffer::BufferMemoryBudget;
use crate::finished_response::ResponseBuffer;
use crate::guard::AccessRights;
use crate::query_slots::QuerySlots;
use crate::query_threads::QueryThreads;
use crate::refusals::{ClientRefusal, RefusalCounters};
use crate::settings::ServeSettings;

/// How many writes run concurrently; further ones wait. Half of them are reserved for the agent's
/// user and root.
const WRITES_MAX: usize = 16;
/// The same for changes.
const CHANGES_MAX: usize = 16;
/// How long a read waits for a refresh of programs' counters.
const REFRESH_TIME: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub(crate) struct RequestExecutor {
    response_bytes_max: usize,
    /// Range queries, which read blocks.
    queries: QuerySlots,
    query_threads: QueryThreads,
    /// Reads of current values: they must not queue behind range queries.
    latest_reads: QuerySlots,
    /// Writes: several may wait for the log together.
    writes: QuerySlots,
    /// Changes of annotations, filters, jobs and sessions: each waits for a file of its own, and
    /// for those before it.
    changes: QuerySlots,
    /// At most one refresh of programs' counters runs at a time.
    refreshes: Arc<Semaphore>,
    /// From the first byte built to the last byte sent.
    memory: BufferMemoryBudget,
    refusals: Arc<RefusalCounters>,
}

impl RequestExecutor {
    pub(crate) fn new(
        settings: &ServeSettings,
        refusals: Arc<RefusalCounters>,
    ) -> io::Result<RequestExecutor> {
        Ok(RequestExecutor {
            response_bytes_max: settings.response_bytes_max,
            queries: QuerySlots::new(settings.queries_max),
            query_threads: QueryThreads::new(settings.queries_max)?,
            latest_reads: QuerySlots::new(settings.queries_max),
            writes: QuerySlots::new(WRITES_MAX),
            changes: QuerySlots::new(CHANGES_MAX),
            refreshes: Arc::new(Semaphore::new(1)),
            memory: BufferMemoryBudget::with_share_for_small(settings.responses_bytes_max),
            refusals,
        })
    }

    /// An empty buffer for one response to a client with these rights.
    pub(crate) fn response_buffer(&self, rights: AccessRights) -> ResponseBuffer {
        ResponseBuffer::new(self.memory.buffer(self.response_bytes_max, rights))
    }

    /// Executes a range query.
    pub(crate) async fn query<T: Send + 'static>(
        &self,
        rights: AccessRights,
        work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let slot = self.queries.take(rights);
        self.run_blocking(slot, self.query_threads.handle(), work)
            .await
    }

    /// Executes a read of current values.
    pub(crate) async fn read_latest<T: Send + 'static>(
        &self,
        rights: AccessRights,
        work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let slot = self.latest_reads.take(rights);
        self.run_blocking(slot, &Handle::current(), work).await
    }

    /// Executes a change of annotations, filters, jobs or sessions, which waits for the disk.
    pub(crate) async fn change<T: Send + 'static>(
        &self,
        rights: AccessRights,
        work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let slot = self.changes.take(rights);
        self.run_blocking(slot, &Handle::current(), work).await
    }

    /// Executes a write of samples, which may wait for the log.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        rights: AccessRights,
        work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let slot = self.writes.take(rights);
        self.run_blocking(slot, &Handle::current(), work).await
    }

    /// Refreshes programs' counters, so that a read sees what they counted until now. If the store
    /// hangs, the read does not wait for long and returns the values that are there.
    pub(crate) async fn refresh(&self, refresh_programs: &Arc<dyn Fn() + Send + Sync>) {
        let refresh_programs = refresh_programs.clone();
        let slot = self.refreshes.clone().acquire_owned();
        let threads = Handle::current();
        let refresh = self.run_blocking(slot, &threads, move || {
            refresh_programs();
            Ok(())
        });
        let _ = timeout(REFRESH_TIME, refresh).await;
    }

    /// Waits for a slot, then runs the work on a blocking thread of a runtime.
    async fn run_blocking<T: Send + 'static, S: Send + 'static>(
        &self,
        slot: impl Future<Output = Result<S, AcquireError>>,
        threads: &Handle,
        work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let slot = slot.await.map_err(|_| ApiError::internal())?;
        // The slot moves with the work: it stays taken if the client disconnects before the end.
        let done = threads.spawn_blocking(move || {
            let result = work();
            drop(slot);
            result
        });
        let result = done.await.map_err(|_| ApiError::internal())?;
        if let Err(failure) = &result {
            if *failure == ApiError::response_too_large(self.response_bytes_max) {
                self.refusals.count(ClientRefusal::AnswerSize);
            } else if *failure == ApiError::response_memory_full() {
                self.refusals.count(ClientRefusal::AnswerMemory);
            }
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use tokio::sync::mpsc;

    use super::*;

    #[test]
    fn writes_of_guests_leave_half_of_the_slots_to_the_agents_user_and_root() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let executor = RequestExecutor::new(&ServeSettings::default(), Arc::default());
            let executor = Arc::new(executor.expect("threads"));
            let (started, mut starts) = mpsc::unbounded_channel();
            let (release, wait) = std::sync::mpsc::channel::<()>();
            let wait = Arc::new(Mutex::new(wait));
            let guests: Vec<_> = (0..2 * WRITES_MAX)
                .map(|_| {
                    let (executor, started, wait) =
                        (executor.clone(), started.clone(), wait.clone());
                    tokio::spawn(async move {
                        let work = move || {
                            started.send(()).map_err(|_| ApiError::internal())?;
                            // Until the sender is dropped.
                            let _ = wait.lock().recv();
                            Ok(())
                        };
                        executor.write(AccessRights::User, work).await
                    })
                })
                .collect();
            for _ in 0..WRITES_MAX / 2 {
                starts.recv().await.expect("a guest writes");
            }
            let owner = executor.write(AccessRights::Owner, || Ok(7));
            let owner = timeout(Duration::from_secs(30), owner).await;
            assert!(matches!(owner, Ok(Ok(7))), "waits for no guest");
            assert!(starts.try_recv().is_err(), "the other guests wait");
            drop(release);
            for guest in guests {
                assert!(guest.await.expect("ended").is_ok());
            }
        });
    }
}
