//! Resource usage of the agent's own process, from `/proc/self`. Part of the collector `agent`.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use pegel_machine::{ProcessStat, boot_time_seconds};
use pegel_metric::SampleGroup;
use rustix::fs::{Mode, OFlags, RawDir, SeekFrom};

use super::agent::{CPU, FDS, RESIDENT, START, THREADS};
use crate::proc_file::{ProcFile, ReadMode};
use crate::proc_parse::{ProcParseError, non_empty_lines};
use crate::unlabelled_series::UnlabelledSeries;
use crate::{CollectError, CollectorOpenError, Context};

#[derive(Debug)]
pub(super) struct AgentProcessUsage {
    stat: ProcFile,
    fds: Option<FdDirectory>,
    user_hz: f64,
    page_bytes: f64,
    /// Seconds since the Unix epoch; `None` if `/proc/stat` does not have it.
    boot_time: Option<u64>,
    cpu: UnlabelledSeries,
    resident: UnlabelledSeries,
    open_fds: UnlabelledSeries,
    threads: UnlabelledSeries,
    start: UnlabelledSeries,
}

impl AgentProcessUsage {
    pub(super) fn open(context: &Context) -> Result<Option<AgentProcessUsage>, CollectorOpenError> {
        let folder = context.host.proc.join("self");
        let Some(stat) = ProcFile::open(folder.join("stat"), ReadMode::SingleRead)? else {
            return Ok(None);
        };
        let kernel = ProcFile::open(context.host.proc.join("stat"), ReadMode::SingleRead)?;
        Ok(Some(AgentProcessUsage {
            stat,
            fds: FdDirectory::open(folder.join("fd"))?,
            user_hz: context.host.user_hz as f64,
            page_bytes: context.host.page_bytes as f64,
            boot_time: kernel.and_then(|mut file| boot_time_seconds(file.read().ok()?)),
            cpu: UnlabelledSeries::new(&CPU),
            resident: UnlabelledSeries::new(&RESIDENT),
            open_fds: UnlabelledSeries::new(&FDS),
            threads: UnlabelledSeries::new(&THREADS),
            start: UnlabelledSeries::new(&START),
        }))
    }

    pub(super) fn update(&mut self, out: &mut SampleGroup) -> Result<(), CollectError> {
        let stat = parse(self.stat.read()?).map_err(|fault| fault.at_path(self.stat.path()))?;
        let fds = self.fds.as_mut().map(FdDirectory::count).transpose()?;
        self.set(stat, fds, out)
            .map_err(|fault| fault.at_path(self.stat.path()))
    }

    fn set(
        &mut self,
        [cpu_ticks, pages, threads, start_ticks]: [f64; 4],
        fds: Option<u64>,
        out: &mut SampleGroup,
    ) -> Result<(), ProcParseError> {
        self.cpu.set(out, cpu_ticks / self.user_hz)?;
        self.resident.set(out, pages * self.page_bytes)?;
        self.threads.set(out, threads)?;
        if let Some(booted) = self.boot_time {
            self.start
                .set(out, booted as f64 + start_ticks / self.user_hz)?;
        }
        if let Some(fds) = fds {
            self.open_fds.set(out, fds as f64)?;
        }
        Ok(())
    }
}

/// Returns CPU time in ticks, resident pages, threads, and start time in ticks.
fn parse(text: &[u8]) -> Result<[f64; 4], ProcParseError> {
    non_empty_lines(text)?;
    let malformed = ProcParseError::at_line(1, "expected a process status line");
    let stat = ProcessStat::parse(text).ok_or(malformed)?;
    let numbers = [
        stat.cpu_ticks(),
        stat.resident_pages,
        stat.threads,
        stat.start_ticks,
    ];
    Ok(numbers.map(|number| number as f64))
}

/// The directory `/proc/self/fd`.
#[derive(Debug)]
struct FdDirectory {
    path: PathBuf,
    folder: OwnedFd,
    /// True since Linux 6.2, where `st_size` of the directory is the number of descriptors.
    size_is_count: bool,
}

impl FdDirectory {
    fn open(path: PathBuf) -> Result<Option<FdDirectory>, CollectorOpenError> {
        /// `f_type` of procfs.
        const PROC_MAGIC: u64 = 0x9fa0;
        let open = || -> io::Result<FdDirectory> {
            let folder: OwnedFd = File::from(rustix::fs::open(
                &path,
                OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
                Mode::empty(),
            )?)
            .into();
            let is_proc = rustix::fs::fstatfs(&folder)?.f_type as u64 == PROC_MAGIC;
            let size_is_count = is_proc && rustix::fs::fstat(&folder)?.st_size > 0;
            Ok(FdDirectory {
                path: path.clone(),
                folder,
                size_is_count,
            })
        };
        match open() {
            Ok(fds) => Ok(Some(fds)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(CollectorOpenError::Io { path, source }),
        }
    }

    fn count(&mut self) -> Result<u64, CollectError> {
        let count = if self.size_is_count {
            self.count_from_size()
        } else {
            self.count_entries()
        };
        count.map_err(|error| CollectError::Read {
            path: self.path.clone(),
            source: error.into(),
        })
    }

    fn count_from_size(&self) -> rustix::io::Result<u64> {
        Ok(u64::try_from(rustix::fs::fstat(&self.folder)?.st_size).unwrap_or(0))
    }

    fn count_entries(&self) -> rustix::io::Result<u64> {
        rustix::fs::seek(&self.folder, SeekFrom::Start(0))?;
        let mut buffer = [MaybeUninit::<u8>::uninit(); 4096];
        let mut entries = RawDir::new(&self.folder, &mut buffer);
        let mut count = 0;
        while let Some(entry) = entries.next() {
            count += u64::from(entry?.file_name().to_bytes()[0].is_ascii_digit());
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectors::testing::update_fails;

    #[test]
    fn malformed_input_is_rejected() {
        let what = "expected a process status line";
        update_fails(
            |text| parse(text).map(|_| ()),
            &[
                ("", 0, "empty file"),
                ("1 (a) S 1 2", 1, "the last line is cut off"),
                ("1 (a) S 1 2\n", 1, what),
                ("1 a S 1 2\n", 1, what),
                (
                    "1 (a) S 1 2 3 4 5 6 7 8 9 10 18446744073709551615 1 1 1 1 1 1 1 1 1 1\n",
                    1,
                    what,
                ),
            ],
        );
    }

    #[test]
    fn both_ways_of_counting_descriptors_agree() {
        let mut fds = FdDirectory::open("/proc/thread-self/fd".into())
            .expect("open")
            .expect("there");
        let open: Vec<File> = (0..5)
            .map(|_| File::open("/dev/null").expect("open"))
            .collect();
        let listed = fds.count_entries().expect("list");
        assert!(listed > 5, "{listed}");
        if fds.size_is_count {
            // Other tests open files at the same time, so the counts may differ a little.
            let counted = fds.count().expect("count");
            assert!(counted.abs_diff(listed) < 64, "{counted} and {listed}");
        }
        drop(open);
    }
}
