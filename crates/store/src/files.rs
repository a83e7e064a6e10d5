//! The file operations of the store, behind a trait so that tests can make each of them fail.
//! [`DiskFiles`] is the real implementation.

use std::fmt::Debug;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

/// Modes of files and directories that the store creates: private to its user, whatever the umask.
pub(crate) const FILE_MODE: u32 = 0o600;
pub(crate) const DIR_MODE: u32 = 0o700;

/// A directory tree. All paths are absolute.
pub trait Files: Debug + Send + Sync {
    /// Creates an empty file; truncates an existing one.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn FileHandle>>;
    /// Opens an existing file for reading.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn FileHandle>>;
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Creates a directory if it does not exist; its parent must exist.
    fn make_dir(&self, path: &Path) -> io::Result<()>;
    /// Syncs the directory: names created or removed in it then survive a power failure.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// Returns the names of the regular files in a directory, sorted; none if the directory does
    /// not exist.
    fn list(&self, path: &Path) -> io::Result<Vec<String>>;
}

/// An open file. Reads and writes carry their own positions.
pub trait FileHandle: Debug + Send + Sync {
    fn size(&self) -> io::Result<u64>;
    /// Writes at a position; may write less than all, like `write(2)`.
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize>;
    /// Reads until the buffer is full or the file ends.
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize>;
    /// Syncs the file: everything written then survives a power failure.
    fn sync(&self) -> io::Result<()>;
    /// Returns whether the path still refers to this file.
    fn is_at(&self, path: &Path) -> bool;
}

/// Writes all of `bytes`, continuing after short writes and EINTR.
pub fn write_all_at(file: &dyn FileHandle, mut bytes: &[u8], mut at: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write_at(bytes, at) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                bytes = &bytes[written..];
                at += written as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads exactly `len` bytes; fails with `UnexpectedEof` if the file is shorter.
pub(crate) fn read_exact_at(file: &dyn FileHandle, at: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; len];
    let read = file.read_at(&mut buffer, at)?;
    if read < len {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(buffer)
}

/// The file system of the operating system.
#[derive(Debug, Clone, Copy)]
pub struct DiskFiles;

#[derive(Debug)]
struct DiskFile(fs::File);

impl Files for DiskFiles {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn FileHandle>> {
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .mode(FILE_MODE)
            .open(path)?;
        Ok(Arc::new(DiskFile(file)))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn FileHandle>> {
        Ok(Arc::new(DiskFile(fs::File::open(path)?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn make_dir(&self, path: &Path) -> io::Result<()> {
        match fs::DirBuilder::new().mode(DIR_MODE).create(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            made => made,
        }
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        fs::File::open(path)?.sync_all()
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        let entries = match fs::read_dir(path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(names),
            Err(error) => return Err(error),
        };
        for entry in entries {
            let entry = entry?;
            if entry.file_type()?.is_file()
                && let Ok(name) = entry.file_name().into_string()
            {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }
}

impl FileHandle for DiskFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        self.0.write_at(bytes, at)
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.0.read_at(&mut buffer[filled..], at + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn is_at(&self, path: &Path) -> bool {
        let identity =
            |found: io::Result<fs::Metadata>| found.map(|found| (found.dev(), found.ino()));
        let ours = identity(self.0.metadata());
        ours.is_ok_and(|ours| identity(fs::symlink_metadata(path)).is_ok_and(|found| found == ours))
    }
}
