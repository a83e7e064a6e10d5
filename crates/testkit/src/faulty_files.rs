//! Injects errors into file operations.

use parking_lot::{Mutex, MutexGuard};
use rustix::io::Errno;

use crate::hooked_files::{FileFailure, FileHook, FileOperation, HookedFiles};

/// A fault: of the next operations of this kind, `skip` succeed, then `times` fail.
#[derive(Debug, Clone)]
pub struct FileFault {
    pub operation: FileOperation,
    pub error: Errno,
    pub skip: u64,
    pub times: u64,
    /// The number of bytes that a failing write still stores, as on a disk that becomes full.
    pub torn_bytes: usize,
}

impl FileFault {
    /// Fails every time until [`FaultyFiles::clear_faults`].
    pub fn always(operation: FileOperation, error: Errno) -> FileFault {
        FileFault {
            operation,
            error,
            skip: 0,
            times: u64::MAX,
            torn_bytes: 0,
        }
    }

    /// Fails once, after `skip` successful operations.
    pub fn once(operation: FileOperation, error: Errno, skip: u64) -> FileFault {
        FileFault {
            operation,
            error,
            skip,
            times: 1,
            torn_bytes: 0,
        }
    }
}

/// A real directory in which selected operations fail. Clones share their faults.
pub type FaultyFiles = HookedFiles<FaultHook>;

/// The faults to inject.
#[derive(Debug, Default)]
pub struct FaultHook {
    plan: Mutex<FaultPlan>,
}

#[derive(Debug, Default)]
struct FaultPlan {
    faults: Vec<FileFault>,
    operations: u64,
    failures: u64,
}

impl FaultyFiles {
    pub fn new() -> FaultyFiles {
        FaultyFiles::default()
    }

    pub fn inject(&self, fault: FileFault) {
        self.plan().faults.push(fault);
    }

    /// Simulates a full disk: operations that need space fail until [`FaultyFiles::clear_faults`].
    pub fn fill_up(&self) {
        for operation in [
            FileOperation::Create,
            FileOperation::MakeDir,
            FileOperation::Write,
        ] {
            self.inject(FileFault::always(operation, Errno::NOSPC));
        }
    }

    /// Simulates a read-only file system until [`FaultyFiles::clear_faults`].
    pub fn make_read_only(&self) {
        for operation in FileOperation::CHANGING {
            self.inject(FileFault::always(operation, Errno::ROFS));
        }
    }

    /// Removes all faults: every operation succeeds from now on.
    pub fn clear_faults(&self) {
        self.plan().faults.clear();
    }

    /// Returns the number of operations, including failed ones.
    pub fn operations(&self) -> u64 {
        self.plan().operations
    }

    pub fn failures(&self) -> u64 {
        self.plan().failures
    }

    fn plan(&self) -> MutexGuard<'_, FaultPlan> {
        self.hook.plan()
    }
}

impl FaultHook {
    fn plan(&self) -> MutexGuard<'_, FaultPlan> {
        self.plan.lock()
    }
}

impl FileHook for FaultHook {
    fn before(&self, operation: FileOperation) -> Result<(), FileFailure> {
        let mut plan = self.plan();
        plan.operations += 1;
        let mut hit = None;
        for fault in plan
            .faults
            .iter_mut()
            .filter(|fault| fault.operation == operation)
        {
            if fault.skip > 0 {
                fault.skip -= 1;
            } else if fault.times > 0 && hit.is_none() {
                fault.times = fault.times.saturating_sub(1);
                hit = Some(FileFailure {
                    error: fault.error,
                    torn_bytes: fault.torn_bytes,
                });
            }
        }
        plan.failures += u64::from(hit.is_some());
        hit.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use pegel_store::Files;

    use super::*;
    use crate::TempDir;

    #[test]
    fn fails_the_chosen_write_and_only_that() {
        let dir = TempDir::new();
        let files = FaultyFiles::new();
        let file = files.create(&dir.join("a")).expect("no fault yet");
        files.inject(FileFault {
            torn_bytes: 2,
            ..FileFault::once(FileOperation::Write, Errno::IO, 1)
        });
        assert_eq!(file.write_at(b"one", 0).expect("skipped"), 3);
        let error = file
            .write_at(b"two", 3)
            .expect_err("the second write fails");
        assert_eq!(error.raw_os_error(), Some(Errno::IO.raw_os_error()));
        assert_eq!(
            file.size().expect("no fault"),
            5,
            "the torn bytes are in the file"
        );
        assert_eq!(file.write_at(b"two", 3).expect("healed by itself"), 3);
        assert_eq!(files.failures(), 1);
    }

    #[test]
    fn a_full_disk_still_reads_and_heals() {
        let dir = TempDir::new();
        let files = FaultyFiles::new();
        let file = files.create(&dir.join("a")).expect("no fault yet");
        file.write_at(b"abc", 0).expect("room");
        files.fill_up();
        let error = file.write_at(b"d", 3).expect_err("full");
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(files.create(&dir.join("b")).is_err());
        let mut buffer = [0; 3];
        assert_eq!(
            file.read_at(&mut buffer, 0).expect("reading needs no room"),
            3
        );
        files.clear_faults();
        assert_eq!(file.write_at(b"d", 3).expect("room again"), 1);
    }
}
