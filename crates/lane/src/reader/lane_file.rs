//! Opens the file of a lane safely and copies it. Nothing here blocks on the program that writes
//! it.

use std::fmt;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::layout::{HEADER_BYTES, LANE_BYTES_MAX, header, u64_at};
use crate::reader::directory::parse_id;
use crate::reader::header::published_length;
use crate::reader::{LaneError, LaneHeader, LaneView, MpiStateReader, ParsedLane, ProcessState};

/// The limits of a reader.
#[derive(Debug, Clone)]
pub struct LaneLimits {
    /// The largest file.
    pub bytes_max: usize,
    /// The most series in one lane.
    pub series_max: usize,
    /// Only lanes of these users; `None`: of any.
    pub owners: Option<Vec<u32>>,
}

impl Default for LaneLimits {
    fn default() -> LaneLimits {
        LaneLimits {
            bytes_max: LANE_BYTES_MAX,
            series_max: 20_000,
            owners: None,
        }
    }
}

/// The reason why a file is not read as a lane.
#[derive(Debug)]
#[non_exhaustive]
pub enum LaneOpenError {
    /// It was removed meanwhile, which is not a fault.
    NotFound,
    /// A symlink, a pipe, a directory, a device.
    NotRegularFile,
    /// It has further hard links, by which other users could keep or replace it.
    Linked(u64),
    /// It belongs to a user whose lanes are not read here.
    Owner(u32),
    /// Too small or too large.
    Size(u64),
    /// The name does not match the id in the header.
    Name,
    Lane(LaneError),
    Open(io::Error),
}

impl fmt::Display for LaneOpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LaneOpenError::NotFound => write!(f, "the file does not exist"),
            LaneOpenError::NotRegularFile => write!(f, "not a regular file"),
            LaneOpenError::Linked(links) => {
                write!(f, "the file has {links} hard links; a lane must have one")
            }
            LaneOpenError::Owner(uid) => write!(f, "the file belongs to user {uid}"),
            LaneOpenError::Size(bytes) => {
                write!(
                    f,
                    "the file has {bytes} bytes, which is not a valid size of a lane"
                )
            }
            LaneOpenError::Name => {
                write!(f, "the file's name does not match the id in its header")
            }
            LaneOpenError::Lane(_) => write!(f, "the file is not a valid lane"),
            LaneOpenError::Open(_) => write!(f, "cannot open the file"),
        }
    }
}

impl std::error::Error for LaneOpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            LaneOpenError::Lane(error) => Some(error),
            LaneOpenError::Open(error) => Some(error),
            _ => None,
        }
    }
}

impl From<Errno> for LaneOpenError {
    fn from(error: Errno) -> LaneOpenError {
        match error {
            Errno::NOENT => LaneOpenError::NotFound,
            // O_NOFOLLOW on a symlink, and open on a socket.
            Errno::LOOP | Errno::NXIO => LaneOpenError::NotRegularFile,
            error => LaneOpenError::Open(error.into()),
        }
    }
}

/// The file of a lane, open for reading. It caches what was parsed, so that reading again costs one
/// system call.
#[derive(Debug)]
pub struct LaneFile {
    pub(crate) fd: Arc<OwnedFd>,
    pub(crate) lane: ParsedLane,
    name: String,
    owner: u32,
    file_bytes: u64,
    series_max: usize,
    /// The position up to which points were taken from the ring.
    pub(crate) position: u64,
    /// The head of the ring in the last copy.
    pub(crate) head: u64,
    /// How many times in a row reading stopped at the same unfinished point.
    pub(crate) stalls: u32,
}

impl LaneFile {
    pub(crate) fn open(
        dir: BorrowedFd<'_>,
        name: &str,
        limits: &LaneLimits,
    ) -> Result<LaneFile, LaneOpenError> {
        // Non-blocking: do not wait for a pipe's writer, or for the holder of a lease on the file.
        let flags =
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        let fd = rustix::fs::openat(dir, name, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&fd)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(LaneOpenError::NotRegularFile);
        }
        if stat.st_nlink != 1 {
            return Err(LaneOpenError::Linked(stat.st_nlink as u64));
        }
        let is_accepted = |owners: &Vec<u32>| owners.contains(&stat.st_uid);
        if !limits.owners.as_ref().is_none_or(is_accepted) {
            return Err(LaneOpenError::Owner(stat.st_uid));
        }
        let file_bytes = stat.st_size as u64;
        if !(HEADER_BYTES as u64..=limits.bytes_max.min(LANE_BYTES_MAX) as u64)
            .contains(&file_bytes)
        {
            return Err(LaneOpenError::Size(file_bytes));
        }
        let mut start = [0; HEADER_BYTES];
        read_exactly(&fd, &mut start, 0).map_err(LaneOpenError::Lane)?;
        let lane = ParsedLane::parse_header_only(&start).map_err(LaneOpenError::Lane)?;
        if lane.header().file_bytes as u64 != file_bytes {
            return Err(LaneOpenError::Lane(LaneError::Header("file length")));
        }
        let digits = name.split('.').next().and_then(parse_id);
        if digits != Some(lane.header().id) {
            return Err(LaneOpenError::Name);
        }
        Ok(LaneFile {
            fd: Arc::new(fd),
            lane,
            name: name.to_owned(),
            owner: stat.st_uid,
            file_bytes,
            series_max: limits.series_max,
            position: 0,
            head: 0,
            stalls: 0,
        })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn header(&self) -> &LaneHeader {
        self.lane.header()
    }

    /// Returns the owner of the file, from the kernel.
    pub fn owner(&self) -> u32 {
        self.owner
    }

    /// Returns the memory that the file takes.
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Copies the published part into `buffer` and returns its series. An error is permanent: the
    /// lane is invalid and should not be read again.
    pub fn read<'a>(&'a mut self, buffer: &'a mut Vec<u8>) -> Result<LaneView<'a>, LaneError> {
        let known = self.lane.published();
        buffer.resize(known, 0);
        read_exactly(&self.fd, buffer, 0)?;
        let published = published_length(buffer)?;
        let end = self.lane.check_published(published)?;
        if end > known {
            // New series are read after the length that publishes them.
            buffer.resize(end, 0);
            let more = buffer.get_mut(known..).unwrap_or_default();
            read_exactly(&self.fd, more, known as u64)?;
            self.lane.extend(buffer, published, self.series_max)?;
        }
        self.head = u64_at(buffer, header::RING_HEAD).unwrap_or(0);
        Ok(self.lane.view(buffer))
    }

    /// Returns whether no process writes to the lane any more: its process ended, or runs another
    /// program now.
    ///
    /// Two readers that ask at the same moment may block each other: then it returns false. Whether
    /// the pid of a dead process was reused is for [`LaneFile::process`] to determine.
    pub fn is_ended(&self) -> io::Result<bool> {
        match rustix::fs::flock(&self.fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                rustix::fs::flock(&self.fd, FlockOperation::Unlock)?;
                Ok(true)
            }
            Err(Errno::WOULDBLOCK) => Ok(ProcessState::has_no_process(self.header())),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the state of the process that created the lane.
    pub fn process(&self) -> ProcessState {
        ProcessState::of(self.header())
    }

    /// Returns a reader of the MPI state; `None` if the lane has none. It keeps the file open.
    pub fn mpi_state(&self) -> Option<MpiStateReader> {
        let offset = self.header().mpi_state_offset?;
        Some(MpiStateReader::new(self.fd.clone(), offset as u64))
    }

    /// Returns whether its name was removed from the directory.
    pub fn is_removed(&self) -> io::Result<bool> {
        Ok(rustix::fs::fstat(&self.fd)?.st_nlink == 0)
    }
}

/// Fills `buffer`; the error holds how many bytes there were.
pub(crate) fn read_exactly(fd: &OwnedFd, buffer: &mut [u8], from: u64) -> Result<(), LaneError> {
    let wanted = buffer.len();
    let mut found = 0;
    while let Some(rest) = buffer.get_mut(found..).filter(|rest| !rest.is_empty()) {
        match rustix::io::pread(fd, &mut *rest, from + found as u64) {
            Ok(0) => return Err(LaneError::Truncated { wanted, found }),
            Ok(more) => found += more,
            Err(Errno::INTR) => {}
            Err(error) => return Err(LaneError::Read(error.into())),
        }
    }
    Ok(())
}
