//! Drops values on a background thread.
//!
//! Releasing a watched program waits for the thread that holds it, and for a grace period of the
//! kernel after each deleted map entry: milliseconds, at worst two seconds. Connections end on
//! async workers of the agent, which must not block. Their values are dropped here instead, by one
//! thread that exists only while values are queued.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use pegel_supervisor::Supervisor;

/// The thread's stack, several times what it uses.
const STACK_BYTES: usize = 128 << 10;

/// A queue of values to drop. The caller bounds their number.
#[derive(Debug)]
pub(super) struct DropQueue<T> {
    queue: Mutex<DropQueueState<T>>,
    supervisor: Supervisor,
}

#[derive(Debug)]
struct DropQueueState<T> {
    waiting: Vec<T>,
    has_thread: bool,
}

impl<T: Send + 'static> DropQueue<T> {
    pub(super) fn new(supervisor: &Supervisor) -> DropQueue<T> {
        DropQueue {
            queue: Mutex::new(DropQueueState {
                waiting: Vec::new(),
                has_thread: false,
            }),
            supervisor: supervisor.clone(),
        }
    }

    /// Queues a value to be dropped, without waiting for it.
    pub(super) fn push(self: &Arc<Self>, value: T) {
        let mut queue = self.queue();
        queue.waiting.push(value);
        if std::mem::replace(&mut queue.has_thread, true) {
            return;
        }
        drop(queue);
        let releases = self.clone();
        let thread = self.supervisor.thread("release").stack_size(STACK_BYTES);
        // The handle is dropped: the thread ends when the queue is empty.
        let thread = thread.restarted(move || releases.drop_all()).map(drop);
        // No thread could be started: drop the values here.
        if thread.is_err() {
            self.drop_all();
        }
    }

    /// Drops queued values until the queue is empty.
    fn drop_all(&self) {
        loop {
            let mut queue = self.queue();
            let Some(value) = queue.waiting.pop() else {
                queue.has_thread = false;
                return;
            };
            drop(queue);
            // The panic hook has reported a panic; the other values are still dropped.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(value)));
        }
    }

    fn queue(&self) -> MutexGuard<'_, DropQueueState<T>> {
        self.queue.lock()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread::{self, ThreadId};

    use super::*;

    /// Is not dropped before the test allows it, and reports which thread did it.
    struct Slow {
        go: Arc<Mutex<()>>,
        dropped: mpsc::Sender<ThreadId>,
        panics: bool,
    }

    impl Drop for Slow {
        fn drop(&mut self) {
            drop(self.go.lock());
            self.dropped.send(thread::current().id()).expect("heard");
            assert!(!self.panics, "as the test wants it");
        }
    }

    #[test]
    fn the_thread_that_lets_go_does_not_wait() {
        let supervisor = Supervisor::default();
        let releases = Arc::new(DropQueue::new(&supervisor));
        let go = Arc::new(Mutex::new(()));
        let (dropped, ids) = mpsc::channel();
        // Would never end if a value were dropped here.
        let wait = go.lock();
        for panics in [true, false, true, false] {
            let (go, dropped) = (go.clone(), dropped.clone());
            releases.push(Slow {
                go,
                dropped,
                panics,
            });
        }
        assert_eq!(ids.try_iter().count(), 0);
        let threads = supervisor.threads();
        assert_eq!(threads.len(), 1, "{threads:?}");
        assert_eq!(threads[0].name, "release");
        drop((wait, dropped));
        let ids: Vec<ThreadId> = ids.iter().collect();
        assert_eq!(ids.len(), 4);
        assert!(ids.iter().all(|id| *id == ids[0]), "one thread for all");
        assert_ne!(ids[0], thread::current().id());
    }
}
