//! Batches that wait on disk: one file each, named by order and number of values.
//!
//! A batch that was sent stays until [`Spool::confirm`]: carbon acknowledges nothing, and what is
//! in the buffers of a connection is lost with it. [`Spool::take_back`] makes it wait again.

use std::collections::VecDeque;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The batches of one server.
#[derive(Debug)]
pub(super) struct Spool {
    dir: PathBuf,
    bytes_max: u64,
    bytes: u64,
    /// Oldest first. The first `sent` of them were sent and are not confirmed.
    files: VecDeque<SpoolFile>,
    sent: usize,
}

/// The batch that is sent next.
#[derive(Debug)]
pub(super) struct WaitingBatch {
    pub values: u64,
    pub content: io::Result<Vec<u8>>,
}

/// A batch on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct SpoolFile {
    sequence: u64,
    values: u64,
    bytes: u64,
}

impl SpoolFile {
    fn name(&self) -> String {
        format!("{:016x}-{}", self.sequence, self.values)
    }

    fn parse(name: &str, bytes: u64) -> Option<SpoolFile> {
        let (sequence, values) = name.split_once('-')?;
        Some(SpoolFile {
            sequence: u64::from_str_radix(sequence, 16).ok()?,
            values: values.parse().ok()?,
            bytes,
        })
    }
}

impl Spool {
    /// Finds the batches that an earlier agent left. A directory that does not exist is empty; it
    /// is created with the first batch.
    pub(super) fn open(dir: PathBuf, bytes_max: u64) -> Spool {
        let mut files = Vec::new();
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let bytes = entry.metadata().map_or(0, |found| found.len());
            match name.to_str().and_then(|name| SpoolFile::parse(name, bytes)) {
                Some(file) => files.push(file),
                // The rest of a batch whose writing was interrupted.
                None => drop(fs::remove_file(entry.path())),
            }
        }
        files.sort_unstable();
        Spool {
            dir,
            bytes_max,
            bytes: files.iter().map(|file| file.bytes).sum(),
            files: files.into(),
            sent: 0,
        }
    }

    /// Returns whether no batch waits to be sent.
    pub(super) fn is_sent(&self) -> bool {
        self.files.len() == self.sent
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of the next batch.
    pub(super) fn next_sequence(&self) -> u64 {
        self.files.back().map_or(0, |file| file.sequence + 1)
    }

    /// Adds a batch. Returns the number of values that were dropped to make room, this batch
    /// included if it does not fit at all. Batches that were sent are not counted.
    pub(super) fn push(&mut self, sequence: u64, values: u64, bytes: &[u8]) -> io::Result<u64> {
        let file = SpoolFile {
            sequence,
            values,
            bytes: bytes.len() as u64,
        };
        if file.bytes > self.bytes_max {
            return Ok(values);
        }
        let mut dropped = 0;
        while self.bytes + file.bytes > self.bytes_max
            && let Some(oldest) = self.remove(0)
        {
            match self.sent {
                0 => dropped += oldest,
                _ => self.sent -= 1,
            }
        }
        self.write(&file, bytes)?;
        self.bytes += file.bytes;
        let position = self.files.partition_point(|one| one.sequence < sequence);
        self.files.insert(position, file);
        Ok(dropped)
    }

    fn write(&self, file: &SpoolFile, bytes: &[u8]) -> io::Result<()> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.dir)?;
        let path = self.dir.join(file.name());
        let temporary = path.with_extension("tmp");
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let written = options
            .open(&temporary)
            .and_then(|mut file| file.write_all(bytes))
            .and_then(|()| fs::rename(&temporary, &path));
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written
    }

    /// Reads the oldest batch that was not sent.
    pub(super) fn next(&self) -> Option<WaitingBatch> {
        let file = self.files.get(self.sent)?;
        Some(WaitingBatch {
            values: file.values,
            content: read(&self.dir.join(file.name()), file.bytes),
        })
    }

    /// Notes that the batch of [`Spool::next`] was sent.
    pub(super) fn mark_sent(&mut self) {
        self.sent = self.files.len().min(self.sent + 1);
    }

    /// Removes the batch of [`Spool::next`], which cannot be read.
    pub(super) fn remove_next(&mut self) {
        self.remove(self.sent);
    }

    /// Removes the batches that were sent.
    pub(super) fn confirm(&mut self) {
        for _ in 0..std::mem::take(&mut self.sent) {
            self.remove(0);
        }
    }

    /// Makes the batches that were sent wait again. Returns the number of their values.
    pub(super) fn take_back(&mut self) -> u64 {
        let sent = std::mem::take(&mut self.sent);
        self.files.iter().take(sent).map(|file| file.values).sum()
    }

    /// Removes a batch and returns its number of values.
    fn remove(&mut self, index: usize) -> Option<u64> {
        let file = self.files.remove(index)?;
        self.bytes -= file.bytes;
        let _ = fs::remove_file(self.dir.join(file.name()));
        Some(file.values)
    }
}

fn read(path: &Path, bytes: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    File::open(path)?.take(bytes).read_to_end(&mut content)?;
    Ok(content)
}

#[cfg(test)]
mod tests {
    use pegel_testkit::TempDir;

    use super::*;

    fn next(spool: &Spool) -> Option<(String, u64)> {
        let next = spool.next()?;
        let content = next.content.expect("readable");
        Some((String::from_utf8(content).expect("text"), next.values))
    }

    #[test]
    fn batches_are_kept_in_order_and_the_oldest_make_room() {
        let dir = TempDir::new();
        let mut spool = Spool::open(dir.join("spool"), 8);
        assert_eq!(spool.push(1, 2, b"bbb").expect("written"), 0);
        assert_eq!(spool.push(0, 1, b"aaa").expect("written"), 0);
        assert_eq!(next(&spool), Some(("aaa".to_owned(), 1)));
        assert_eq!(spool.push(2, 4, b"ccc").expect("written"), 1);
        assert_eq!(next(&spool), Some(("bbb".to_owned(), 2)));
        assert_eq!(spool.push(3, 8, b"too large").expect("not tried"), 8);
        drop(spool);
        fs::write(dir.join("spool/rest.tmp"), "half").expect("written");
        let mut spool = Spool::open(dir.join("spool"), 8);
        assert_eq!((spool.bytes(), spool.next_sequence()), (6, 3));
        spool.mark_sent();
        assert_eq!(next(&spool), Some(("ccc".to_owned(), 4)));
        spool.mark_sent();
        assert!(spool.is_sent());
        spool.confirm();
        assert!(spool.is_sent() && spool.bytes() == 0 && spool.next().is_none());
        assert_eq!(fs::read_dir(dir.join("spool")).expect("there").count(), 0);
    }

    #[test]
    fn batches_that_were_sent_stay_until_they_are_confirmed() {
        let dir = TempDir::new();
        let mut spool = Spool::open(dir.join("spool"), 9);
        for (sequence, content) in [b"aaa", b"bbb", b"ccc"].iter().enumerate() {
            let pushed = spool.push(sequence as u64, 1 << sequence, *content);
            assert_eq!(pushed.expect("written"), 0);
        }
        spool.mark_sent();
        spool.mark_sent();
        assert_eq!(
            (next(&spool), spool.bytes()),
            (Some(("ccc".to_owned(), 4)), 9)
        );
        // The connection broke: both are sent again, in order.
        assert_eq!(spool.take_back(), 3);
        assert_eq!(next(&spool), Some(("aaa".to_owned(), 1)));
        spool.mark_sent();
        // One that was sent makes room without a loss.
        assert_eq!(spool.push(3, 8, b"ddd").expect("written"), 0);
        assert_eq!(next(&spool), Some(("bbb".to_owned(), 2)));
        fs::remove_file(dir.join("spool/0000000000000001-2")).expect("there");
        assert!(spool.next().is_some_and(|next| next.content.is_err()));
        spool.remove_next();
        assert_eq!(next(&spool), Some(("ccc".to_owned(), 4)));
        spool.mark_sent();
        spool.confirm();
        assert_eq!(
            (next(&spool), spool.bytes()),
            (Some(("ddd".to_owned(), 8)), 3)
        );
        assert_eq!(spool.take_back(), 0);
    }
}
