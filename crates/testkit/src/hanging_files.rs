//! A file system that can hang.

use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::io::Errno;

use crate::hooked_files::{FileFailure, FileHook, FileOperation, HookedFiles};

/// A real directory on a disk that can hang. Clones share the disk.
pub type HangingFiles = HookedFiles<HangingDisk>;

/// The disk: it works, hangs, or has failed permanently.
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
    /// Blocks every operation until [`HangingFiles::resume`] or [`HangingFiles::fail`].
    pub fn hang(&self) {
        self.set(true, false);
    }

    /// Lets all operations proceed, including blocked ones.
    pub fn resume(&self) {
        self.set(false, false);
    }

    /// Lets every operation fail, including blocked ones.
    pub fn fail(&self) {
        self.set(false, true);
    }

    /// Returns whether an operation is blocked.
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
        self.state.lock()
    }
}

impl FileHook for HangingDisk {
    fn before(&self, _: FileOperation) -> Result<(), FileFailure> {
        let mut state = self.lock();
        state.hanging += 1;
        self.changed.wait_while(&mut state, |state| state.does_hang);
        state.hanging -= 1;
        if state.has_failed {
            return Err(FileFailure {
                error: Errno::IO,
                torn_bytes: 0,
            });
        }
        Ok(())
    }
}
