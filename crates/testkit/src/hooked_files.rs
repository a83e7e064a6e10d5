//! A real directory with a hook before every file operation.

use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::Arc;

use pegel_store::{DiskFiles, FileHandle, Files};
use rustix::io::Errno;

/// The kind of a file operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileOperation {
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

impl FileOperation {
    pub const ALL: [FileOperation; 11] = [
        FileOperation::Create,
        FileOperation::Open,
        FileOperation::Rename,
        FileOperation::Remove,
        FileOperation::MakeDir,
        FileOperation::SyncDir,
        FileOperation::List,
        FileOperation::Length,
        FileOperation::Write,
        FileOperation::Read,
        FileOperation::Sync,
    ];

    /// The operations that fail on a read-only file system.
    pub const CHANGING: [FileOperation; 5] = [
        FileOperation::Create,
        FileOperation::Rename,
        FileOperation::Remove,
        FileOperation::MakeDir,
        FileOperation::Write,
    ];
}

/// How an operation fails.
#[derive(Debug, Clone, Copy)]
pub struct FileFailure {
    pub error: Errno,
    /// The number of bytes that a failing write still stores, as on a disk that becomes full.
    pub torn_bytes: usize,
}

/// Called before each operation; may block, or let the operation fail.
pub trait FileHook: Debug + Send + Sync + 'static {
    fn before(&self, operation: FileOperation) -> Result<(), FileFailure>;
}

/// A real directory with a hook before every operation. Clones share their hook.
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

impl<H: FileHook> HookedFiles<H> {
    pub fn with(hook: Arc<H>) -> HookedFiles<H> {
        HookedFiles { hook }
    }

    fn check(&self, operation: FileOperation) -> io::Result<()> {
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

impl<H: FileHook> Files for HookedFiles<H> {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn FileHandle>> {
        self.check(FileOperation::Create)?;
        Ok(self.wrap(DiskFiles.create(path)?))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn FileHandle>> {
        self.check(FileOperation::Open)?;
        Ok(self.wrap(DiskFiles.open(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.check(FileOperation::Rename)?;
        DiskFiles.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.check(FileOperation::Remove)?;
        DiskFiles.remove(path)
    }

    fn make_dir(&self, path: &Path) -> io::Result<()> {
        self.check(FileOperation::MakeDir)?;
        DiskFiles.make_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.check(FileOperation::SyncDir)?;
        DiskFiles.sync_dir(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        self.check(FileOperation::List)?;
        DiskFiles.list(path)
    }
}

#[derive(Debug)]
struct HookedFile<H> {
    files: HookedFiles<H>,
    file: Arc<dyn FileHandle>,
}

impl<H: FileHook> FileHandle for HookedFile<H> {
    fn size(&self) -> io::Result<u64> {
        self.files.check(FileOperation::Length)?;
        self.file.size()
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        let Err(failing) = self.files.hook.before(FileOperation::Write) else {
            return self.file.write_at(bytes, at);
        };
        let torn = &bytes[..failing.torn_bytes.min(bytes.len())];
        if !torn.is_empty() {
            self.file.write_at(torn, at)?;
        }
        Err(failing.error.into())
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        self.files.check(FileOperation::Read)?;
        self.file.read_at(buffer, at)
    }

    fn sync(&self) -> io::Result<()> {
        self.files.check(FileOperation::Sync)?;
        self.file.sync()
    }

    fn is_at(&self, path: &Path) -> bool {
        self.file.is_at(path)
    }
}
