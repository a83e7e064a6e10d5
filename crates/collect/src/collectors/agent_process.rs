//! Resource usage of the agent's own process, from `/proc/self`. Part of the collector `agent`.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use pegel_metric::{Family, MetricKind, SampleGroup};
use rustix::fs::{Mode, OFlags, RawDir, SeekFrom};

use super::stat::boot_time;
use crate::proc_file::{ProcFile, ReadMode};
use crate::proc_parse::{ProcParseError, Words, non_empty_lines, parse_u64};
use crate::unlabelled_series::UnlabelledSeries;
use crate::{CollectError, CollectorOpenError, Context};

pub(super) static CPU: Family = Family::new(
    "pegel_cpu_seconds_total",
    MetricKind::Counter,
    "seconds",
    0,
    "Total CPU time used by the agent, in seconds.",
);
pub(super) static RESIDENT: Family = Family::new(
    "pegel_resident_memory_bytes",
    MetricKind::Gauge,
    "bytes",
    0,
    "Resident memory of the agent, in bytes.",
);
pub(super) static FDS: Family = Family::new(
    "pegel_open_fds",
    MetricKind::Gauge,
    "",
    0,
    "Number of open file descriptors of the agent.",
);
pub(super) static THREADS: Family = Family::new(
    "pegel_threads",
    MetricKind::Gauge,
    "",
    0,
    "Number of threads of the agent.",
);
pub(super) static START: Family = Family::new(
    "pegel_start_time_seconds",
    MetricKind::Gauge,
    "seconds",
    0,
    "Start time of the agent, in seconds since the Unix epoch.",
);

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

/// The columns of `/proc/<pid>/stat` that are used.
#[derive(Debug, PartialEq, Eq)]
struct AgentProcessStat {
    cpu_ticks: u64,
    threads: u64,
    start_ticks: u64,
    resident_pages: u64,
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
            boot_time: kernel.and_then(|mut file| boot_time(file.read().ok()?)),
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
        self.set(&stat, fds, out)
            .map_err(|fault| fault.at_path(self.stat.path()))
    }

    fn set(
        &mut self,
        stat: &AgentProcessStat,
        fds: Option<u64>,
        out: &mut SampleGroup,
    ) -> Result<(), ProcParseError> {
        self.cpu.set(out, stat.cpu_ticks as f64 / self.user_hz)?;
        self.resident
            .set(out, stat.resident_pages as f64 * self.page_bytes)?;
        self.threads.set(out, stat.threads as f64)?;
        if let Some(booted) = self.boot_time {
            self.start
                .set(out, booted as f64 + stat.start_ticks as f64 / self.user_hz)?;
        }
        if let Some(fds) = fds {
            self.open_fds.set(out, fds as f64)?;
        }
        Ok(())
    }
}

/// Parses `/proc/<pid>/stat`. The second column is the program's name in parentheses. The name may contain spaces and
/// parentheses, so it ends at the last `)`.
fn parse(text: &[u8]) -> Result<AgentProcessStat, ProcParseError> {
    non_empty_lines(text)?;
    let parse = || {
        let end = text.iter().rposition(|&byte| byte == b')')?;
        let line = text[end + 1..].strip_suffix(b"\n")?;
        // The first word here is column 3 of the file.
        let mut words = Words(line);
        let mut column = |skipped: usize| words.nth(skipped).and_then(parse_u64);
        Some(AgentProcessStat {
            cpu_ticks: column(14 - 3)?.checked_add(column(0)?)?,
            threads: column(20 - 16)?,
            start_ticks: column(22 - 21)?,
            resident_pages: column(24 - 23)?,
        })
    };
    parse().ok_or(ProcParseError::Malformed {
        line: 1,
        what: "expected a process status line",
    })
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
    fn a_program_name_may_contain_parentheses_and_spaces() {
        let text = b"1 (a) R 2) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22\n";
        let expected = AgentProcessStat {
            cpu_ticks: 11 + 12,
            threads: 17,
            start_ticks: 19,
            resident_pages: 21,
        };
        assert_eq!(parse(text), Ok(expected));
    }

    #[test]
    fn malformed_input_is_rejected() {
        let what = "expected a process status line";
        update_fails(
            |text| parse(text).map(|_| ()),
            &[
                ("", 0, "the file is empty"),
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
