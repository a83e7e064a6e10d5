//! Threads for calls that may hang, such as `statvfs` or the resolution of a name. Their callers
//! wait for a result with a timeout and then abandon the thread: it ends with the call.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::Builder;

/// The limit on the threads for one kind of call. A `static`, as it outlives every caller.
#[derive(Debug)]
pub struct AbandonableThreads {
    name: &'static str,
    max: usize,
    running: AtomicUsize,
}

impl AbandonableThreads {
    /// Permits `max` threads with this name, as the kernel shows it.
    pub const fn new(name: &'static str, max: usize) -> AbandonableThreads {
        AbandonableThreads {
            name,
            max,
            running: AtomicUsize::new(0),
        }
    }

    /// Runs `body` on a thread of its own. Fails at once if `max` calls have not returned yet.
    pub fn start(&'static self, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let place = self.place()?;
        let builder = Builder::new().name(self.name.to_owned());
        let started = builder.spawn(move || {
            let _place = place;
            body();
        });
        started.map(drop)
    }

    fn place(&'static self) -> io::Result<ThreadPlace> {
        let add = |running: usize| (running < self.max).then_some(running + 1);
        let added = self
            .running
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        match added {
            Ok(_) => Ok(ThreadPlace(self)),
            Err(running) => {
                let message = format!("{running} calls of {} have not returned yet", self.name);
                Err(io::Error::new(io::ErrorKind::ResourceBusy, message))
            }
        }
    }
}

/// The place of one thread; free again when dropped.
struct ThreadPlace(&'static AbandonableThreads);

impl Drop for ThreadPlace {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}
