//! Reads `/proc` relative to a descriptor of it that stays open: no path is resolved from the
//! root, and small files take one open, one read and one close.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, RawDir, SeekFrom, openat, seek};

use crate::{Words, parse_u64};

/// Processes beyond this number are ignored.
const PROCESSES_MAX: usize = 65_536;
/// Room for one `getdents64` call.
const LIST_BYTES: usize = 32 * 1024;

/// The directory `/proc`.
#[derive(Debug)]
pub struct ProcDir(OwnedFd);

/// The numbers in `/proc/loadavg` that change when a process starts or ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskCounts {
    threads: u64,
    last_pid: u64,
}

impl ProcDir {
    /// Opens `/proc`, or the directory of a fixture tree in its place.
    pub fn open(path: &Path) -> io::Result<ProcDir> {
        Ok(ProcDir(openat(
            CWD,
            path,
            directory_flags(),
            Mode::empty(),
        )?))
    }

    /// Lists the IDs of all processes into `pids`.
    pub fn list(&self, pids: &mut Vec<u32>) -> io::Result<()> {
        pids.clear();
        seek(&self.0, SeekFrom::Start(0))?;
        let mut buffer = [const { MaybeUninit::uninit() }; LIST_BYTES];
        let mut entries = RawDir::new(&self.0, &mut buffer);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let number = parse_u64(entry.file_name().to_bytes());
            if let Some(pid) = number.and_then(|number| u32::try_from(number).ok())
                && pids.len() < PROCESSES_MAX
            {
                pids.push(pid);
            }
        }
        Ok(())
    }

    /// Returns the counts of threads and forks; `None` if they cannot be read.
    pub fn task_counts(&self) -> Option<TaskCounts> {
        let mut text = [0; 128];
        let length = read_small(&self.0, "loadavg", &mut text).ok()?;
        let mut words = Words(text[..length].trim_ascii()).skip(3);
        let running = words.next()?;
        let slash = running.iter().position(|&byte| byte == b'/')?;
        Some(TaskCounts {
            threads: parse_u64(&running[slash + 1..])?,
            last_pid: parse_u64(words.next()?)?,
        })
    }

    /// Reads a file of a process, such as `stat`. Returns the number of bytes, at most the length
    /// of `buffer`.
    pub fn read(&self, pid: u32, name: &str, buffer: &mut [u8]) -> io::Result<usize> {
        read_small(&self.0, &format!("{pid}/{name}"), buffer)
    }

    /// Opens the directory of a process. Everything read through it belongs to this process: after
    /// its end reads fail, also if its ID is reused.
    pub fn process(&self, pid: u32) -> io::Result<OwnedFd> {
        let flags = directory_flags();
        Ok(openat(&self.0, pid.to_string(), flags, Mode::empty())?)
    }
}

/// Reads the beginning of a file with one call; the kernel fills the buffer if there is as much.
pub fn read_small(at: impl AsFd, name: &str, buffer: &mut [u8]) -> io::Result<usize> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = openat(at, name, flags, Mode::empty())?;
    Ok(rustix::io::read(&file, buffer)?)
}

fn directory_flags() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC
}
