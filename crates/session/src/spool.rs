//! The blocks of a record that are not stored yet, in a directory on the local disk.
//!
//! ```text
//! lock                      locked as long as a process owns the spool
//! position                  how far the record is stored
//! 0000000000000007-….key      block 7, the first of a group of samples
//! 0000000000000008-….samples  block 8, which depends on block 7
//! 0000000000000009-….text     block 9: a document, an autopsy or the end
//! summary.json              exists once the record has ended
//! ```
//!
//! The number after the dash is the time of the block's last sample, from which a restarted agent
//! continues to read the store.
//!
//! A block is synced before it counts as spooled. The position is synced after each stored block,
//! so that a restart continues where the last process ended. Of a full spool the oldest samples are
//! dropped, from a key block up to the next: what depends on a dropped block could not be decoded.
//! The oldest block is never dropped, because a request that sent it may still succeed.

use std::collections::VecDeque;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use pegel_metric::Millis;
use pegel_plain_file::{TEMPORARY_EXTENSION, write_durably};
use pegel_record::{RecordBlock, RecordBlockKind};
use serde::Serialize;

const LOCK_FILE: &str = "lock";
const POSITION_FILE: &str = "position";
const SUMMARY_FILE: &str = "summary.json";
/// Larger files are not blocks: text has at most 16 MiB, samples less.
const BLOCK_BYTES_MAX: u64 = 64 << 20;

/// A spool that its writer and its uploader share.
pub type SharedSpool = Arc<Mutex<RecordSpool>>;

/// How far a record is stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct UploadPosition {
    /// The number of the file, blob or object that the next block is appended to.
    pub part: u32,
    /// Its length, and the number of blocks in it.
    pub part_bytes: u64,
    pub part_blocks: u32,
    /// The number of the next block to store.
    pub sequence: u64,
    /// The time of the newest sample that is stored; 0 if there is none.
    pub samples_end: Millis,
}

/// The reason why a spool cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    #[error("another process writes the record in {}", .0.display())]
    Locked(PathBuf),
    #[error("the disk of the spool is full ({})", .0.display())]
    DiskFull(PathBuf),
    #[error("the spool has no room for a block of {0} bytes")]
    Full(u64),
    #[error("{}: {what}", path.display())]
    Malformed { path: PathBuf, what: &'static str },
    #[error("cannot use the spool {}", path.display())]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// The blocks of one record, owned by this process.
#[derive(Debug)]
pub struct RecordSpool {
    dir: PathBuf,
    bytes_max: u64,
    bytes: u64,
    blocks: VecDeque<SpooledBlock>,
    position: UploadPosition,
    dropped_blocks: u64,
    _lock: File,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct SpooledBlock {
    sequence: u64,
    role: BlockRole,
    /// The time of the last sample.
    end: Millis,
    bytes: u64,
}

/// The part that a block plays when samples are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum BlockRole {
    Key,
    Samples,
    Text,
}

impl BlockRole {
    const ALL: [BlockRole; 3] = [BlockRole::Key, BlockRole::Samples, BlockRole::Text];

    fn of(kind: RecordBlockKind) -> BlockRole {
        match kind {
            RecordBlockKind::Key => BlockRole::Key,
            RecordBlockKind::Samples => BlockRole::Samples,
            _ => BlockRole::Text,
        }
    }

    fn has_samples(self) -> bool {
        self != BlockRole::Text
    }

    fn extension(self) -> &'static str {
        match self {
            BlockRole::Key => "key",
            BlockRole::Samples => "samples",
            BlockRole::Text => "text",
        }
    }
}

impl SpooledBlock {
    fn file_name(&self) -> String {
        let (sequence, end) = (self.sequence, self.end as u64);
        format!("{sequence:016x}-{end:016x}.{}", self.role.extension())
    }

    fn parse(name: &str, bytes: u64) -> Option<SpooledBlock> {
        let (numbers, extension) = name.split_once('.')?;
        let (sequence, end) = numbers.split_once('-')?;
        let mut roles = BlockRole::ALL.into_iter();
        Some(SpooledBlock {
            sequence: u64::from_str_radix(sequence, 16).ok()?,
            role: roles.find(|role| role.extension() == extension)?,
            end: u64::from_str_radix(end, 16).ok()? as Millis,
            bytes,
        })
    }
}

impl RecordSpool {
    /// Opens or creates a spool. Fails with [`SpoolError::Locked`] if another process owns it.
    pub fn open(dir: &Path, bytes_max: u64) -> Result<RecordSpool, SpoolError> {
        let failed = |source| spool_error(dir, source);
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(dir).map_err(failed)?;
        let lock = private_file(&dir.join(LOCK_FILE)).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(SpoolError::Locked(dir.to_owned())),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let position = read_position(&dir.join(POSITION_FILE))?;
        let blocks = read_blocks(dir, position.sequence).map_err(failed)?;
        Ok(RecordSpool {
            dir: dir.to_owned(),
            bytes_max,
            bytes: blocks.iter().map(|block| block.bytes).sum(),
            blocks,
            position,
            dropped_blocks: 0,
            _lock: lock,
        })
    }

    pub fn into_shared(self) -> SharedSpool {
        Arc::new(Mutex::new(self))
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the number of the next block of the record.
    pub fn next_sequence(&self) -> u64 {
        let next = self.blocks.back().map_or(0, |block| block.sequence + 1);
        next.max(self.position.sequence)
    }

    /// Returns the time of the newest sample in the record; `None` if it has none.
    pub fn samples_end(&self) -> Option<Millis> {
        let samples = self.blocks.iter().filter(|block| block.role.has_samples());
        let newest = samples.map(|block| block.end).max().unwrap_or_default();
        Some(newest.max(self.position.samples_end)).filter(|end| *end > 0)
    }

    pub fn position(&self) -> UploadPosition {
        self.position
    }

    /// Returns the number of bytes that wait to be stored.
    pub fn waiting_bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of blocks that wait to be stored.
    pub fn waiting_blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Returns the number of blocks that were dropped from the full spool since it was opened.
    pub fn dropped_blocks(&self) -> u64 {
        self.dropped_blocks
    }

    /// Adds a block, durably. Drops the oldest samples if there is no room; fails with
    /// [`SpoolError::Full`] if only those are left that the block depends on. Text may use as
    /// much space again: it is small, and samples without it are of little use.
    pub fn push(&mut self, block: &RecordBlock) -> Result<(), SpoolError> {
        let added = SpooledBlock {
            sequence: block.header.sequence,
            role: BlockRole::of(block.header.kind),
            end: block.header.end,
            bytes: block.bytes.len() as u64,
        };
        let bytes_max = match added.role {
            BlockRole::Text => self.bytes_max.saturating_mul(2),
            _ => self.bytes_max,
        };
        while self.bytes + added.bytes > bytes_max {
            if !self.drop_oldest_samples(added.role)? {
                return Err(SpoolError::Full(added.bytes));
            }
        }
        self.write_durably(&added.file_name(), &block.bytes)?;
        self.bytes += added.bytes;
        self.blocks.push_back(added);
        Ok(())
    }

    /// Drops the oldest blocks of samples that no later block depends on. Returns `false` if there
    /// are none.
    fn drop_oldest_samples(&mut self, added: BlockRole) -> Result<bool, SpoolError> {
        let is_samples = |block: &SpooledBlock| block.role.has_samples();
        let mut blocks = self.blocks.iter().enumerate().skip(1);
        let Some((start, _)) = blocks.find(|(_, block)| is_samples(block)) else {
            return Ok(false);
        };
        let end = match blocks.find(|(_, block)| block.role == BlockRole::Key) {
            Some((end, _)) => end,
            None if added == BlockRole::Key => self.blocks.len(),
            None => return Ok(false),
        };
        for at in (start..end).rev() {
            let Some(block) = self.blocks.get(at).copied().filter(is_samples) else {
                continue;
            };
            self.remove_file(&block.file_name())?;
            self.blocks.remove(at);
            self.bytes -= block.bytes;
            self.dropped_blocks += 1;
        }
        Ok(true)
    }

    /// Reads the oldest block. One whose file was removed or replaced counts as dropped.
    pub fn oldest(&mut self) -> Result<Option<Vec<u8>>, SpoolError> {
        while let Some(block) = self.blocks.front().copied() {
            let path = self.dir.join(block.file_name());
            match fs::metadata(&path) {
                Ok(found) if found.len() == block.bytes && block.bytes <= BLOCK_BYTES_MAX => {
                    let bytes = fs::read(&path).map_err(|source| spool_error(&path, source))?;
                    return Ok(Some(bytes));
                }
                Ok(_) => self.remove_file(&block.file_name())?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(spool_error(&path, error)),
            }
            self.blocks.pop_front();
            self.bytes -= block.bytes;
            self.dropped_blocks += 1;
        }
        Ok(None)
    }

    /// Records that the oldest block is stored, and removes it.
    pub(crate) fn confirm_oldest(&mut self) -> Result<(), SpoolError> {
        let Some(block) = self.blocks.front().copied() else {
            return Ok(());
        };
        let samples_end = match block.role.has_samples() {
            true => block.end.max(self.position.samples_end),
            false => self.position.samples_end,
        };
        self.set_position(UploadPosition {
            samples_end,
            part_bytes: self.position.part_bytes + block.bytes,
            part_blocks: self.position.part_blocks + 1,
            sequence: block.sequence + 1,
            ..self.position
        })?;
        self.blocks.pop_front();
        self.bytes -= block.bytes;
        self.remove_file(&block.file_name())
    }

    /// Records that the next block starts a new part.
    pub(crate) fn begin_part(&mut self) -> Result<(), SpoolError> {
        self.set_position(UploadPosition {
            part: self.position.part + 1,
            part_bytes: 0,
            part_blocks: 0,
            ..self.position
        })
    }

    fn set_position(&mut self, position: UploadPosition) -> Result<(), SpoolError> {
        let UploadPosition {
            part,
            part_bytes,
            part_blocks,
            sequence,
            samples_end,
        } = position;
        let text = format!("{part} {part_bytes} {part_blocks} {sequence} {samples_end}\n");
        self.write_durably(POSITION_FILE, text.as_bytes())?;
        self.position = position;
        Ok(())
    }

    /// Records the end of the record. The uploader stores the summary after the last block.
    pub(crate) fn set_summary(&self, summary: &str) -> Result<(), SpoolError> {
        self.write_durably(SUMMARY_FILE, summary.as_bytes())
    }

    /// Returns the summary of a record that has ended.
    pub fn summary(&self) -> Result<Option<String>, SpoolError> {
        let path = self.dir.join(SUMMARY_FILE);
        match fs::read_to_string(&path) {
            Ok(summary) => Ok(Some(summary)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(spool_error(&path, error)),
        }
    }

    /// Writes a file next to the blocks, durably and with mode 0600.
    pub fn write_durably(&self, name: &str, bytes: &[u8]) -> Result<(), SpoolError> {
        let path = self.dir.join(name);
        let written = write_durably(&self.dir, name, bytes);
        written.map_err(|source| spool_error(&path, source))
    }

    fn remove_file(&self, name: &str) -> Result<(), SpoolError> {
        let path = self.dir.join(name);
        fs::remove_file(&path).map_err(|source| spool_error(&path, source))
    }
}

fn spool_error(path: &Path, source: io::Error) -> SpoolError {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    let path = path.to_owned();
    match source.kind() {
        StorageFull | QuotaExceeded => SpoolError::DiskFull(path),
        _ => SpoolError::Io { path, source },
    }
}

fn private_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    let no_follow = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
    options.custom_flags(no_follow).open(path)
}

/// Returns the blocks from `next_sequence` on. Removes what a killed process left behind: stored
/// blocks and temporary files.
fn read_blocks(dir: &Path, next_sequence: u64) -> io::Result<VecDeque<SpooledBlock>> {
    let mut blocks = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        match SpooledBlock::parse(&name, entry.metadata()?.len()) {
            Some(block) if block.sequence >= next_sequence => blocks.push(block),
            Some(_) => fs::remove_file(entry.path())?,
            None if name.ends_with(TEMPORARY_EXTENSION) => fs::remove_file(entry.path())?,
            None => {}
        }
    }
    blocks.sort_unstable();
    Ok(blocks.into())
}

fn read_position(path: &Path) -> Result<UploadPosition, SpoolError> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(UploadPosition::default());
        }
        Err(error) => return Err(spool_error(path, error)),
    };
    let words = text.split_whitespace().map(str::parse);
    let numbers: Vec<i64> = words.collect::<Result<_, _>>().unwrap_or_default();
    let malformed = || SpoolError::Malformed {
        path: path.to_owned(),
        what: "not five numbers",
    };
    let [part, part_bytes, part_blocks, sequence, samples_end] = numbers[..] else {
        return Err(malformed());
    };
    let (Ok(part), Ok(part_blocks)) = (u32::try_from(part), u32::try_from(part_blocks)) else {
        return Err(malformed());
    };
    let (Ok(part_bytes), Ok(sequence)) = (u64::try_from(part_bytes), u64::try_from(sequence))
    else {
        return Err(malformed());
    };
    Ok(UploadPosition {
        part,
        part_bytes,
        part_blocks,
        sequence,
        samples_end,
    })
}

#[cfg(test)]
mod tests;
