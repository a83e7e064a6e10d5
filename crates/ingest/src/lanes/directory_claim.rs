//! The claim of an agent on a directory of lanes. One agent at a time reads it: the one that has
//! locked `agent.claim` there.
//!
//! The file names that agent (pid, lane journal) and the lanes read so far, by this agent or by
//! earlier ones. An agent with another journal counts these lanes from its first reading on:
//! earlier counts are in the totals of the previous agent. The file is in memory beside the lanes,
//! so both are gone after a reboot.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use pegel_lane::reader::LaneDirectoryHandle;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::journal::LaneId;

pub(super) const CLAIM_NAME: &str = "agent.claim";
const FORMAT: &str = "pegel lanes 1";
/// When the file has more lines than this, the lines of removed lanes are deleted.
const LINES_MAX: usize = 1 << 18;
const BYTES_MAX: u64 = 64 << 20;

/// A lock on a directory of lanes, released when dropped.
#[derive(Debug)]
pub(super) struct DirectoryClaim {
    file: File,
    journal: PathBuf,
    bytes: u64,
    lines: usize,
    /// Lanes counted by an agent with another journal.
    counted_elsewhere: HashSet<LaneId>,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum ClaimError {
    #[error("another agent reads its lanes{}; they are read here once that agent stops", describe_holder(.0))]
    ClaimedByOther(Option<ClaimHolder>),
    #[error("cannot use {CLAIM_NAME}: {0}")]
    Io(#[from] io::Error),
}

/// The agent named in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClaimHolder {
    pid: u32,
    journal: PathBuf,
}

fn describe_holder(holder: &Option<ClaimHolder>) -> String {
    holder.as_ref().map_or_else(String::new, |holder| {
        let (pid, journal) = (holder.pid, holder.journal.display());
        format!(" (pid {pid}, journal {journal})")
    })
}

impl DirectoryClaim {
    /// Claims the directory for the agent with this journal. `is_new`: the journal did not exist
    /// before.
    pub(super) fn acquire(
        directory: &LaneDirectoryHandle,
        journal: &Path,
        is_new: bool,
    ) -> Result<DirectoryClaim, ClaimError> {
        let mut file = open(directory)?;
        let lock = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
        let (holder, lanes) = read(&mut file)?;
        match lock {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(ClaimError::ClaimedByOther(holder)),
            Err(error) => return Err(io::Error::from(error).into()),
        }
        let is_same = holder.is_some_and(|holder| holder.journal == journal);
        let mut claim = DirectoryClaim {
            file,
            journal: journal.to_owned(),
            bytes: 0,
            lines: 0,
            counted_elsewhere: HashSet::new(),
        };
        let lanes = claim.rewrite(directory, lanes)?;
        if !is_same || is_new {
            claim.counted_elsewhere = lanes;
        }
        Ok(claim)
    }

    /// Returns whether an agent with another journal has counted the lane.
    pub(super) fn is_counted_elsewhere(&self, id: &LaneId) -> bool {
        self.counted_elsewhere.contains(id)
    }

    /// Records that the lane is read.
    pub(super) fn add(&mut self, directory: &LaneDirectoryHandle, id: &LaneId) -> io::Result<()> {
        let line = format!("{}\n", hex(id));
        self.file.write_all_at(line.as_bytes(), self.bytes)?;
        self.bytes += line.len() as u64;
        self.lines += 1;
        if self.lines > LINES_MAX {
            let (_, lanes) = read(&mut self.file)?;
            self.rewrite(directory, lanes)?;
        }
        Ok(())
    }

    /// Rewrites the file without lanes whose files are gone. Returns the lanes that are left.
    fn rewrite(
        &mut self,
        directory: &LaneDirectoryHandle,
        mut lanes: HashSet<LaneId>,
    ) -> io::Result<HashSet<LaneId>> {
        lanes.retain(|id| directory.owner_of(&file_name(id)).is_ok());
        let mut text = format!("{FORMAT}\n{}\n", std::process::id()).into_bytes();
        text.extend(self.journal.as_os_str().as_bytes());
        text.push(b'\n');
        for id in &lanes {
            text.extend(hex(id).as_bytes());
            text.push(b'\n');
        }
        self.file.write_all_at(&text, 0)?;
        self.file.set_len(text.len() as u64)?;
        self.bytes = text.len() as u64;
        self.lines = lanes.len();
        Ok(lanes)
    }
}

impl Drop for DirectoryClaim {
    fn drop(&mut self) {
        // Unlocked explicitly: a child forked a moment ago may hold the same open file.
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}

/// Returns the name of a lane's file.
pub(super) fn file_name(id: &LaneId) -> String {
    format!("{}.lane", hex(id))
}

fn hex(id: &LaneId) -> String {
    format!("{:032x}", u128::from_be_bytes(*id))
}

/// Opens or creates the file. In a directory where all users can create files, it may be another
/// user's or a symlink: that is removed first, which the directory's owner may do. Agents of root
/// and of the directory's owner accept each other's file.
fn open(directory: &LaneDirectoryHandle) -> io::Result<File> {
    if let Some(file) = try_open(directory)? {
        return Ok(file);
    }
    let foreign = || io::Error::other("it belongs to another user or is not a regular file");
    if directory.owner_of(CLAIM_NAME)? == 0 && !rustix::process::geteuid().is_root() {
        return Err(foreign());
    }
    remove_foreign(directory)?;
    try_open(directory)?.ok_or_else(foreign)
}

/// Removes what is in place of the claim; a directory that is not empty is renamed.
fn remove_foreign(directory: &LaneDirectoryHandle) -> rustix::io::Result<()> {
    let remove = |flags| rustix::fs::unlinkat(directory, CLAIM_NAME, flags);
    match remove(AtFlags::empty()) {
        Err(Errno::ISDIR) => remove(AtFlags::REMOVEDIR).or_else(|_| {
            let time = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
            let aside = format!("{CLAIM_NAME}.{}", time.as_nanos());
            rustix::fs::renameat(directory, CLAIM_NAME, directory, aside)
        }),
        done => done,
    }
}

fn try_open(directory: &LaneDirectoryHandle) -> io::Result<Option<File>> {
    let flags =
        OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    let file = match rustix::fs::openat(directory, CLAIM_NAME, flags, mode) {
        Ok(file) => File::from(file),
        Err(Errno::LOOP | Errno::ACCESS | Errno::ISDIR | Errno::NXIO) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let found = file.metadata()?;
    let owners = [
        rustix::process::geteuid().as_raw(),
        rustix::fs::fstat(directory)?.st_uid,
    ];
    let is_usable = found.is_file() && owners.contains(&found.uid()) && found.nlink() == 1;
    Ok(is_usable.then_some(file))
}

fn read(file: &mut File) -> io::Result<(Option<ClaimHolder>, HashSet<LaneId>)> {
    let mut text = Vec::new();
    io::Seek::rewind(file)?;
    file.take(BYTES_MAX).read_to_end(&mut text)?;
    Ok(parse(&text))
}

fn parse(text: &[u8]) -> (Option<ClaimHolder>, HashSet<LaneId>) {
    let mut lines = text.split(|byte| *byte == b'\n');
    if lines.next() != Some(FORMAT.as_bytes()) {
        return (None, HashSet::new());
    }
    let pid = lines
        .next()
        .and_then(|line| str::from_utf8(line).ok()?.parse().ok());
    let journal = lines
        .next()
        .map(|line| PathBuf::from(OsStr::from_bytes(line)));
    let holder = pid
        .zip(journal)
        .map(|(pid, journal)| ClaimHolder { pid, journal });
    let id = |line: &[u8]| {
        let digits = str::from_utf8(line).ok().filter(|line| line.len() == 32)?;
        Some(u128::from_str_radix(digits, 16).ok()?.to_be_bytes())
    };
    (holder, lines.filter_map(id).collect())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use pegel_testkit::TempDir;

    use super::*;

    const ONE: LaneId = [1; 16];
    const TWO: LaneId = [2; 16];

    #[test]
    fn one_agent_at_a_time_and_the_next_one_knows_what_was_counted() {
        let dir = TempDir::new();
        let directory = LaneDirectoryHandle::open(dir.path()).expect("opened");
        for id in [&ONE, &TWO] {
            fs::write(dir.join(file_name(id)), "").expect("written");
        }
        let take =
            |journal: &str, is_new| DirectoryClaim::acquire(&directory, Path::new(journal), is_new);
        let mut first = take("/a/lanes.journal", true).expect("free");
        first.add(&directory, &ONE).expect("written");
        let held = take("/b/lanes.journal", true)
            .expect_err("held")
            .to_string();
        let pid = std::process::id();
        let expected = format!(
            "another agent reads its lanes (pid {pid}, journal /a/lanes.journal); they are read here once that agent stops"
        );
        assert_eq!(held, expected);
        drop(first);
        let again = take("/a/lanes.journal", false).expect("free");
        assert!(!again.is_counted_elsewhere(&ONE), "by itself");
        drop(again);
        let emptied = take("/a/lanes.journal", true).expect("free");
        assert!(emptied.is_counted_elsewhere(&ONE), "by the previous agent");
        drop(emptied);
        let second = take("/b/lanes.journal", true).expect("free");
        assert!(second.is_counted_elsewhere(&ONE) && !second.is_counted_elsewhere(&TWO));
        drop(second);
        fs::remove_file(dir.join(file_name(&ONE))).expect("removed");
        let third = take("/c/lanes.journal", true).expect("free");
        assert!(!third.is_counted_elsewhere(&ONE), "its file is gone");
    }

    #[test]
    fn a_symlink_in_place_of_the_claim_is_replaced() {
        let dir = TempDir::new();
        let directory = LaneDirectoryHandle::open(dir.path()).expect("opened");
        fs::write(dir.join("target"), "kept").expect("written");
        std::os::unix::fs::symlink("target", dir.join(CLAIM_NAME)).expect("linked");
        DirectoryClaim::acquire(&directory, Path::new("/a"), true).expect("taken");
        let text = fs::read_to_string(dir.join("target")).expect("readable");
        assert_eq!(text, "kept");
    }

    #[test]
    fn a_directory_in_place_of_the_claim_is_replaced() {
        for has_files in [false, true] {
            let dir = TempDir::new();
            let directory = LaneDirectoryHandle::open(dir.path()).expect("opened");
            fs::create_dir(dir.join(CLAIM_NAME)).expect("made");
            if has_files {
                fs::write(dir.join(CLAIM_NAME).join("file"), "kept").expect("written");
            }
            DirectoryClaim::acquire(&directory, Path::new("/a"), true).expect("taken");
            assert!(dir.join(CLAIM_NAME).is_file());
        }
    }
}
