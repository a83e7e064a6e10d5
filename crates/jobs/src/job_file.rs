//! `jobs.log`: the durable form of the job table.
//!
//! One line per change: the CRC-32 of the rest in hexadecimal, a blank, and a job as JSON with its
//! number. The last line of a number applies. Lines are written before readers see the change, and
//! synced within seconds. A line truncated by a crash is removed; a copy of a file with other
//! damage is kept in `aside/`. The file is rewritten when most of it is obsolete.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::interval::JobInterval;

const FILE_NAME: &str = "jobs.log";
const NEW_NAME: &str = "jobs.new";
/// The files of this crate in the directory of the store.
pub const JOB_FILES: [&str; 2] = [FILE_NAME, NEW_NAME];
/// Smaller files are not compacted.
const COMPACT_BYTES_MIN: u64 = 1 << 20;
/// What is read of a file at the start; the writer keeps it far below.
const FILE_BYTES_MAX: u64 = 256 << 20;
/// The most copies of damaged files.
const ASIDE_MAX: usize = 8;

/// The number of a job in the file.
pub(crate) type JobNumber = u64;
pub(crate) type NumberedJobs = BTreeMap<JobNumber, JobInterval>;

#[derive(Debug, Serialize, Deserialize)]
struct JobRecord<T> {
    number: JobNumber,
    #[serde(flatten)]
    job: T,
}

#[derive(Debug)]
pub(crate) struct JobLog {
    dir: PathBuf,
    handle: Option<fs::File>,
    /// The length of the complete lines.
    len: u64,
    /// Whether a write failed: the file is rewritten before the next line.
    is_broken: bool,
}

/// What a file contains.
#[derive(Debug, Default)]
pub(crate) struct FileContents {
    pub jobs: NumberedJobs,
    /// The length up to the end of the last line that is complete.
    pub whole_bytes: usize,
    /// The number of malformed lines before that.
    pub malformed: usize,
}

impl JobLog {
    /// Opens the file of a store and reads it.
    pub(crate) fn open(dir: &Path) -> io::Result<(JobLog, NumberedJobs)> {
        let mut file = JobLog {
            dir: dir.to_owned(),
            handle: None,
            len: 0,
            is_broken: false,
        };
        let bytes = match fs::File::open(file.path()) {
            Ok(found) => {
                let mut bytes = Vec::new();
                found.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
                bytes
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        let contents = parse_file(&bytes);
        file.len = bytes.len() as u64;
        if contents.malformed > 0 {
            let lines = contents.malformed;
            tracing::error!(path = %file.path().display(), lines, "malformed jobs skipped; a copy of the file is kept in aside/");
            file.set_aside()?;
        }
        file.is_broken = contents.malformed > 0 || contents.whole_bytes < bytes.len();
        Ok((file, contents.jobs))
    }

    fn path(&self) -> PathBuf {
        self.dir.join(FILE_NAME)
    }

    /// Appends lines. After an error the file needs a rewrite.
    pub(crate) fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        let written = self.handle().and_then(|file| file.write_all(lines));
        match &written {
            Ok(()) => self.len += lines.len() as u64,
            Err(_) => self.is_broken = true,
        }
        written
    }

    fn handle(&mut self) -> io::Result<&mut fs::File> {
        match &mut self.handle {
            Some(file) => Ok(file),
            none => {
                let mut options = fs::OpenOptions::new();
                options.mode(0o600).create(true).append(true);
                Ok(none.insert(options.open(self.dir.join(FILE_NAME))?))
            }
        }
    }

    /// Returns another handle of the file, to sync it without a lock.
    pub(crate) fn sync_handle(&self) -> Option<fs::File> {
        self.handle.as_ref()?.try_clone().ok()
    }

    /// Returns whether the file must be rewritten, given the bytes of its current jobs.
    pub(crate) fn needs_rewrite(&self, live_bytes: u64) -> bool {
        self.is_broken || self.len > COMPACT_BYTES_MIN && self.len > 2 * live_bytes
    }

    /// Replaces the file by one with only the given lines.
    pub(crate) fn rewrite(&mut self, lines: &[u8]) -> io::Result<()> {
        let new = self.dir.join(NEW_NAME);
        let mut options = fs::OpenOptions::new();
        options.mode(0o600).create(true).write(true).truncate(true);
        let mut file = options.open(&new)?;
        file.write_all(lines)?;
        file.sync_all()?;
        fs::rename(&new, self.path())?;
        fs::File::open(&self.dir)?.sync_all()?;
        self.handle = None;
        self.len = lines.len() as u64;
        self.is_broken = false;
        Ok(())
    }

    fn set_aside(&self) -> io::Result<()> {
        let aside = self.dir.join("aside");
        let made = fs::DirBuilder::new().mode(0o700).create(&aside);
        if let Err(error) = made
            && error.kind() != io::ErrorKind::AlreadyExists
        {
            return Err(error);
        }
        let mut free = (0..ASIDE_MAX).map(|number| aside.join(format!("{FILE_NAME}.{number}")));
        match free.find(|place| !place.exists()) {
            Some(place) => fs::copy(self.path(), place).map(drop),
            None => Ok(()),
        }
    }
}

/// Returns the line of a job.
pub(crate) fn to_line(number: JobNumber, job: &JobInterval) -> Vec<u8> {
    // Cannot fail: all keys are strings.
    let json = serde_json::to_vec(&JobRecord { number, job }).unwrap_or_default();
    let mut line = format!("{:08x} ", crc32fast::hash(&json)).into_bytes();
    line.extend(json);
    line.push(b'\n');
    line
}

/// Reads the lines of a file.
pub(crate) fn parse_file(bytes: &[u8]) -> FileContents {
    let last_end = bytes.iter().rposition(|byte| *byte == b'\n');
    let mut contents = FileContents {
        whole_bytes: last_end.map_or(0, |at| at + 1),
        ..FileContents::default()
    };
    let lines = bytes[..contents.whole_bytes].split(|byte| *byte == b'\n');
    for line in lines.filter(|line| !line.is_empty()) {
        match parse_line(line) {
            Some((number, job)) => drop(contents.jobs.insert(number, job)),
            None => contents.malformed += 1,
        }
    }
    contents
}

fn parse_line(line: &[u8]) -> Option<(JobNumber, JobInterval)> {
    let (sum, json) = line.split_at_checked(9)?;
    let sum = std::str::from_utf8(sum.strip_suffix(b" ")?).ok()?;
    if u32::from_str_radix(sum, 16).ok()? != crc32fast::hash(json) {
        return None;
    }
    let JobRecord { number, job } = serde_json::from_slice(json).ok()?;
    Some((number, job))
}

#[cfg(test)]
mod tests {
    use pegel_testkit::TempDir;

    use super::*;
    use crate::interval::JobOrigin;

    fn job(number: u64) -> JobInterval {
        JobInterval::new(&number.to_string(), "slurm", JobOrigin::Cgroup, 1_000)
    }

    fn write(dir: &TempDir, numbers: &[u64]) -> Vec<u8> {
        let (mut file, _) = JobLog::open(dir.path()).expect("opens");
        for number in numbers {
            file.append(&to_line(*number, &job(*number)))
                .expect("written");
        }
        fs::read(dir.join(FILE_NAME)).expect("read")
    }

    fn numbers(dir: &TempDir) -> (JobLog, Vec<u64>) {
        let (file, jobs) = JobLog::open(dir.path()).expect("opens");
        (file, jobs.into_keys().collect())
    }

    #[test]
    fn a_file_cut_at_any_byte_keeps_its_whole_lines() {
        let dir = TempDir::new();
        let whole = write(&dir, &[1, 2, 3]);
        for len in 0..=whole.len() {
            fs::write(dir.join(FILE_NAME), &whole[..len]).expect("cut");
            let lines = whole[..len].iter().filter(|byte| **byte == b'\n').count();
            let (file, found) = numbers(&dir);
            assert_eq!(
                found,
                (1..=lines as u64).collect::<Vec<_>>(),
                "cut at {len}"
            );
            let is_torn = len > 0 && whole[len - 1] != b'\n';
            assert_eq!(file.needs_rewrite(0), is_torn, "cut at {len}");
        }
        assert!(!dir.join("aside").exists(), "a torn tail is no damage");
    }

    #[test]
    fn a_changed_byte_costs_one_job_and_a_copy_is_kept() {
        let dir = TempDir::new();
        let whole = write(&dir, &[1, 2, 3]);
        let line = whole.len() / 3;
        for at in line..2 * line - 1 {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x01;
            let contents = parse_file(&bytes);
            assert_eq!(
                contents.jobs.into_keys().collect::<Vec<_>>(),
                [1, 3],
                "byte {at}"
            );
            assert!(contents.malformed > 0);
        }
        let mut bytes = whole;
        bytes[line + 20] ^= 0x01;
        fs::write(dir.join(FILE_NAME), &bytes).expect("spoilt");
        let (file, found) = numbers(&dir);
        assert_eq!(found, [1, 3]);
        assert!(file.needs_rewrite(0));
        assert_eq!(fs::read(dir.join("aside/jobs.log.0")).expect("kept"), bytes);
    }

    #[test]
    fn a_rewritten_file_is_continued() {
        let dir = TempDir::new();
        write(&dir, &[1, 2]);
        let (mut file, jobs) = JobLog::open(dir.path()).expect("opens");
        file.rewrite(&to_line(2, &jobs[&2])).expect("rewritten");
        file.append(&to_line(3, &job(3))).expect("written");
        assert_eq!(numbers(&dir).1, [2, 3]);
    }
}
