use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::Arc;

use pegel_store::{DiskFiles, FileHandle, Files};
use rustix::io::Errno;

/// What can be done with files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    Create,
    Open,
    Rename,
    Remove,
    MakeDir,
    SyncDir,
    List,
    Length,
    Write,
    Read,
    Sync,
}

impl Operation {
    pub const ALL: [Operation; 11] = [
        Operation::Create,
        Operation::Open,
        Operation::Rename,
        Operation::Remove,
        Operation::MakeDir,
        Operation::SyncDir,
        Operation::List,
        Operation::Length,
        Operation::Write,
        Operation::Read,
        Operation::Sync,
    ];

    /// What a read-only file system refuses.
    pub const CHANGING: [Operation; 5] = [
        Operation::Create,
        Operation::Rename,
        Operation::Remove,
        Operation::MakeDir,
        Operation::Write,
    ];
}

/// How an operation fails.
#[derive(Debug, Clone, Copy)]
pub struct Failing {
    pub error: Errno,
    /// Before a write fails, this many of its bytes reach the file, as on a disk that fills up.
    pub torn_bytes: usize,
}

/// Is called before each operation: it may wait, or say that the operation fails.
pub trait Hook: Debug + Send + Sync + 'static {
    fn before(&self, operation: Operation) -> Result<(), Failing>;
}

/// A real directory with a hook before all that is done there. Clones share their hook.
#[derive(Debug, Default)]
pub struct HookedFiles<H> {
    pub(crate) hook: Arc<H>,
}

impl<H> Clone for HookedFiles<H> {
    fn clone(&self) -> HookedFiles<H> {
        HookedFiles {
            hook: self.hook.clone(),
        }
    }
}

impl<H: Hook> HookedFiles<H> {
    pub fn with(hook: Arc<H>) -> HookedFiles<H> {
        HookedFiles { hook }
    }

    fn check(&self, operation: Operation) -> io::Result<()> {
        let done = self.hook.before(operation);
        done.map_err(|failing| failing.error.into())
    }

    fn wrap(&self, file: Arc<dyn FileHandle>) -> Arc<dyn FileHandle> {
        Arc::new(HookedFile {
            files: self.clone(),
            file,
        })
    }
}

impl<H: Hook> Files for HookedFiles<H> {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn FileHandle>> {
        self.check(Operation::Create)?;
        Ok(self.wrap(DiskFiles.create(path)?))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn FileHandle>> {
        self.check(Operation::Open)?;
        Ok(self.wrap(DiskFiles.open(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.check(Operation::Rename)?;
        DiskFiles.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.check(Operation::Remove)?;
        DiskFiles.remove(path)
    }

    fn make_dir(&self, path: &Path) -> io::Result<()> {
        self.check(Operation::MakeDir)?;
        DiskFiles.make_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.check(Operation::SyncDir)?;
        DiskFiles.sync_dir(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        self.check(Operation::List)?;
        DiskFiles.list(path)
    }
}

#[derive(Debug)]
struct HookedFile<H> {
    files: HookedFiles<H>,
    file: Arc<dyn FileHandle>,
}

impl<H: Hook> FileHandle for HookedFile<H> {
    fn size(&self) -> io::Result<u64> {
        self.files.check(Operation::Length)?;
        self.file.size()
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        let Err(failing) = self.files.hook.before(Operation::Write) else {
            return self.file.write_at(bytes, at);
        };
        let torn = &bytes[..failing.torn_bytes.min(bytes.len())];
        if !torn.is_empty() {
            self.file.write_at(torn, at)?;
        }
        Err(failing.error.into())
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        self.files.check(Operation::Read)?;
        self.file.read_at(buffer, at)
    }

    fn sync(&self) -> io::Result<()> {
        self.files.check(Operation::Sync)?;
        self.file.sync()
    }

    fn is_at(&self, path: &Path) -> bool {
        self.file.is_at(path)
    }
}
