//! The threads that execute range queries. They run at a lower priority than the threads that take
//! and store samples: a query may read and decode a lot of data, and samples must not wait for it.

use std::io;

use tokio::runtime::{Builder, Handle, Runtime};

/// Added to the agent's nice value. Linux keeps one per thread, and raising it needs no privilege.
const NICE: i32 = 5;

#[derive(Debug)]
pub(crate) struct QueryThreads {
    handle: Handle,
    /// A runtime with blocking threads only; `None` only while it is dropped.
    runtime: Option<Runtime>,
}

impl QueryThreads {
    pub(crate) fn new(count: usize) -> io::Result<QueryThreads> {
        let runtime = Builder::new_current_thread()
            .max_blocking_threads(count.max(1))
            .thread_name("query")
            .on_thread_start(|| {
                if let Err(error) = rustix::process::nice(NICE) {
                    tracing::debug!(%error, "cannot lower the priority of a query thread");
                }
            })
            .build()?;
        Ok(QueryThreads {
            handle: runtime.handle().clone(),
            runtime: Some(runtime),
        })
    }

    /// The runtime whose `spawn_blocking` runs work on a query thread.
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for QueryThreads {
    /// Shuts down in the background: this runs on a worker of another runtime, where waiting for
    /// threads is not permitted.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::getpriority_process;

    use super::*;

    #[test]
    fn query_threads_have_a_lower_priority_than_the_others() {
        let priority = || getpriority_process(None).expect("its own");
        let threads = QueryThreads::new(1).expect("started");
        let running = threads.handle().spawn_blocking(priority);
        let runtime = Builder::new_current_thread().build().expect("a runtime");
        let niced = runtime.block_on(running).expect("no panic");
        assert_eq!(niced, (priority() + NICE).min(19));
    }
}
