//! Records in a local or shared directory.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use pegel_plain_file::create_dirs;
use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
use rustix::io::Errno;

use super::{
    AppendOutcome, PartConflict, PartLimits, RecordStorage, SUMMARY_NAME, StorageProblem,
    StorageProblemKind, part_name,
};

/// Records contain what their user may see: others may not read them.
const RECORD_MODE: u32 = 0o600;
const FOLDER_MODE: u32 = 0o700;
/// Folders above records and public files: only their owner may add to them.
pub(super) const PARENT_MODE: u32 = 0o755;
/// Workflow, task and attempt.
const FOLDER_DEPTH: usize = 3;
/// A symbolic link or a FIFO of another user could lead anywhere or block.
const OPEN_FLAGS: i32 = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).bits() as i32;
/// The most bytes of one file. Other storage has limits of the same order.
const PART_BYTES_MAX: u64 = 1 << 37;

/// The folder of one record in a file system.
#[derive(Debug)]
pub struct FileStorage {
    dir: PathBuf,
    /// The directory that the folder may not leave.
    root: Option<PathBuf>,
}

/// A folder, and the path by which its files are opened.
struct RecordFolder {
    path: PathBuf,
    /// Keeps `path` valid if it names a descriptor.
    _descriptor: Option<OwnedFd>,
}

impl FileStorage {
    pub fn new(dir: PathBuf) -> FileStorage {
        FileStorage { dir, root: None }
    }

    /// Opens a folder of a user other than the agent's. No symbolic link between `root` and the
    /// folder is followed, even if it appears while the folder is used: the agent may have access
    /// where the user has none.
    pub fn below(root: PathBuf, dir: PathBuf) -> FileStorage {
        let root = Some(root);
        FileStorage { dir, root }
    }

    /// Returns the folder of the record; with `creates`, creates what is missing.
    fn folder(&self, creates: bool) -> io::Result<RecordFolder> {
        if let Some(root) = &self.root {
            let descriptor = self.open_below(root, creates)?;
            return Ok(RecordFolder {
                path: format!("/proc/self/fd/{}", descriptor.as_raw_fd()).into(),
                _descriptor: Some(descriptor),
            });
        }
        if creates {
            self.create_folder()?;
        }
        self.check_folder()?;
        Ok(RecordFolder {
            path: self.dir.clone(),
            _descriptor: None,
        })
    }

    /// Opens each folder from `root` on relative to the one before. The root itself may be a link.
    fn open_below(&self, root: &Path, creates: bool) -> io::Result<OwnedFd> {
        let outside = || {
            let text = format!("{} is not below {}", self.dir.display(), root.display());
            io::Error::other(text)
        };
        if creates {
            create_dirs(root, PARENT_MODE)?;
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut folder = openat(CWD, root, flags, Mode::empty())?;
        let mut path = root.to_owned();
        let below = self.dir.strip_prefix(root).map_err(|_| outside())?;
        let mut names = below.components().peekable();
        while let Some(component) = names.next() {
            let Component::Normal(name) = component else {
                return Err(outside());
            };
            path.push(name);
            if creates {
                let mode = match names.peek() {
                    Some(_) => PARENT_MODE,
                    None => FOLDER_MODE,
                };
                match mkdirat(&folder, name, Mode::from_raw_mode(mode)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            folder = match openat(&folder, name, flags | OFlags::NOFOLLOW, Mode::empty()) {
                Err(Errno::NOTDIR | Errno::LOOP) => {
                    let text = format!("{} is a symbolic link or no directory", path.display());
                    return Err(io::Error::other(text));
                }
                opened => opened?,
            };
        }
        Ok(folder)
    }

    fn create_folder(&self) -> io::Result<()> {
        if let Some(parent) = self.dir.parent() {
            create_dirs(parent, PARENT_MODE)?;
        }
        match DirBuilder::new().mode(FOLDER_MODE).create(&self.dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        }
    }

    /// Refuses a folder of a record that a symbolic link leads to. The place itself may be one.
    fn check_folder(&self) -> io::Result<()> {
        for folder in self.dir.ancestors().take(FOLDER_DEPTH) {
            if fs::symlink_metadata(folder)?.is_symlink() {
                let text = format!("{} is a symbolic link", folder.display());
                return Err(io::Error::other(text));
            }
        }
        Ok(())
    }

    fn append_to(&self, part: u32, position: u64, block: &[u8]) -> io::Result<AppendOutcome> {
        let folder = self.folder(position == 0)?;
        let path = folder.path.join(part_name(part));
        let is_new = position == 0 && !path.exists();
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(RECORD_MODE);
        options.custom_flags(OPEN_FLAGS);
        let mut file = options.create(is_new).truncate(false).open(path)?;
        let found = file.metadata()?;
        if !found.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        let bytes = found.len();
        let other = AppendOutcome::Conflict(PartConflict::OtherContent { bytes });
        // A write that was interrupted left the start of this block, or all of it.
        let Some(written) = bytes.checked_sub(position) else {
            return Ok(other);
        };
        let Some(start) = block.get(..written as usize) else {
            return Ok(other);
        };
        let mut found = vec![0; start.len()];
        file.seek(SeekFrom::Start(position))?;
        file.read_exact(&mut found)?;
        if found != start {
            return Ok(other);
        }
        file.write_all(&block[start.len()..])?;
        file.sync_all()?;
        if is_new {
            File::open(&folder.path)?.sync_all()?;
        }
        Ok(AppendOutcome::Stored)
    }
}

/// Returns the problem that an error of a local or shared file means.
pub(super) fn file_problem(path: &Path, error: &io::Error) -> StorageProblem {
    use io::ErrorKind::{NotFound, PermissionDenied, QuotaExceeded, StorageFull};
    let kind = match error.kind() {
        PermissionDenied => StorageProblemKind::Credentials,
        StorageFull | QuotaExceeded => StorageProblemKind::DiskFull,
        // A part that was removed, or a file system that is not mounted.
        NotFound => StorageProblemKind::MissingContainer,
        // A file system that hangs or is disconnected may become available again.
        _ => StorageProblemKind::Unreachable,
    };
    StorageProblem::new(kind, format!("{}: {error}", path.display()))
}

/// Writes a file with this mode completely or not at all.
pub(super) fn replace_file(dir: &Path, name: &str, mode: u32, bytes: &[u8]) -> io::Result<()> {
    let temporary = dir.join(format!(".{name}.tmp"));
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(mode);
    let mut file = options.custom_flags(OPEN_FLAGS).open(&temporary)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let written = file
        .write_all(bytes)
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&temporary, dir.join(name)));
    if written.is_err() {
        // What is left would take space on a disk that is full.
        let _ = fs::remove_file(&temporary);
    }
    written
}

impl RecordStorage for FileStorage {
    fn part_limits(&self) -> PartLimits {
        PartLimits {
            bytes: PART_BYTES_MAX,
            blocks: u32::MAX,
        }
    }

    fn append(
        &mut self,
        part: u32,
        position: u64,
        block: &[u8],
    ) -> Result<AppendOutcome, StorageProblem> {
        let appended = self.append_to(part, position, block);
        appended.map_err(|error| file_problem(&self.dir, &error))
    }

    fn finish(&mut self, _: u32, summary: &str) -> Result<(), StorageProblem> {
        let written = self.folder(false).and_then(|folder| {
            replace_file(&folder.path, SUMMARY_NAME, RECORD_MODE, summary.as_bytes())
        });
        written.map_err(|error| file_problem(&self.dir, &error))
    }
}
