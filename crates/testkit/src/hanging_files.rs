use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

use crate::hooked_files::{FileFailure, FileHook, FileOperation, HookedFiles};

/// A real directory on a disk that can hang. Clones share the disk.
pub type HangingFiles = HookedFiles<HangingDisk>;

/// The disk: works, hangs, or has failed for good.
#[derive(Debug, Default)]
pub struct HangingDisk {
    state: Mutex<DiskState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct DiskState {
    does_hang: bool,
    has_failed: bool,
    hanging: usize,
}

impl HangingFiles {
    /// From now on every operation waits, until [`HangingFiles::resume`] or [`HangingFiles::fail`].
    pub fn hang(&self) {
        self.set(true, false);
    }

    /// The disk works again, also for the operations that wait.
    pub fn resume(&self) {
        self.set(false, false);
    }

    /// Every operation fails, also those that wait: nothing reaches the disk any more.
    pub fn fail(&self) {
        self.set(false, true);
    }

    /// Whether an operation waits.
    pub fn is_hanging(&self) -> bool {
        self.hook.lock().hanging > 0
    }

    fn set(&self, does_hang: bool, has_failed: bool) {
        let mut state = self.hook.lock();
        state.does_hang = does_hang;
        state.has_failed = has_failed;
        drop(state);
        self.hook.changed.notify_all();
    }
}

impl HangingDisk {
    fn lock(&self) -> MutexGuard<'_, DiskState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FileHook for HangingDisk {
    fn before(&self, _: FileOperation) -> Result<(), FileFailure> {
        let mut state = self.lock();
        state.hanging += 1;
        let woken = self.changed.wait_while(state, |state| state.does_hang);
        state = woken.unwrap_or_else(PoisonError::into_inner);
        state.hanging -= 1;
        match state.has_failed {
            true => Err(FileFailure {
                error: Errno::IO,
                torn_bytes: 0,
            }),
            false => Ok(()),
        }
    }
}
