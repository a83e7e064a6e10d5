//! The syncer: a thread that syncs the log at most a second after it was written, so that it
//! survives a power failure. It has its own thread because a sync may take long; neither the writer
//! nor readers wait for it. It reports failures to the writer, which then abandons the segment.

use std::time::{Duration, Instant};

use crate::context::StoreContext;

/// The time frames accumulate before they are synced; the rest of the second is for the sync
/// itself.
const GATHER: Duration = Duration::from_millis(700);

pub(crate) fn run(shared: &StoreContext) {
    loop {
        let mut work = shared.background_work();
        while work.unsynced.is_empty() && !work.stop {
            shared.wake_syncer.wait(&mut work);
        }
        if !work.stop {
            shared
                .wake_syncer
                .wait_while_for(&mut work, |work| !work.stop, GATHER);
        }
        if work.stop {
            // The rest is synced when the store is closed.
            return;
        }
        let files = std::mem::take(&mut work.unsynced);
        let sync_dir = std::mem::take(&mut work.unsynced_dir);
        work.sync_began = Some(Instant::now());
        drop(work);

        let synced = files.iter().try_for_each(|file| file.sync());
        let synced = synced.and_then(|()| {
            if sync_dir {
                shared.options.files.sync_dir(&shared.log_dir())
            } else {
                Ok(())
            }
        });
        let mut work = shared.background_work();
        work.sync_began = None;
        if let Err(error) = synced {
            work.sync_failed = Some(format!("sync of the log: {error}"));
        }
    }
}
