//! The handle of the job table, shared by the worker and by readers.
//!
//! The table is locked only while memory is read or changed: readers wait neither for the file nor
//! for the figures of processes. Changes are serialized by a lock of their own, which is held until
//! their lines are written; then readers see them.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use pegel_metric::Millis;
use serde::Deserialize;

use crate::interval::{JobInterval, usable_name};
use crate::job_end::JobEnd;
use crate::job_file::{JobLog, JobNumber, NumberedJobs, to_line};
use crate::process_jobs::{ProcessJobs, Reporter};
use crate::settings::JobsSettings;
use crate::table::{JobFilter, JobTable};

/// The average bytes of a line, to decide whether a file is mostly obsolete.
const LINE_BYTES: u64 = 400;

/// The jobs of this node. Clones share one table.
#[derive(Debug, Clone)]
pub struct Jobs {
    /// Readers lock it. Changed only while `state` is locked.
    table: Arc<RwLock<JobTable>>,
    /// Locked during a change, while the file is written and processes are read.
    state: Arc<Mutex<JobState>>,
    counts: Arc<AtomicCounts>,
}

/// What changes need: the table, its file, and the jobs that programs named.
#[derive(Debug)]
pub(crate) struct JobState {
    table: Arc<RwLock<JobTable>>,
    /// `None` if it cannot be opened: jobs are then kept in memory only.
    file: Option<JobLog>,
    pub(crate) process_jobs: ProcessJobs,
    counts: Arc<AtomicCounts>,
    is_dirty: bool,
}

#[derive(Debug, Default)]
struct AtomicCounts {
    running: AtomicU64,
    kept: AtomicU64,
    begun: AtomicU64,
    removed: AtomicU64,
    refused: AtomicU64,
    overflows: AtomicU64,
    write_errors: AtomicU64,
}

/// Counters of the job table since the start of the agent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JobCounts {
    /// Jobs and steps that run.
    pub running: u64,
    /// Jobs and steps in the table.
    pub kept: u64,
    /// Jobs and steps that began.
    pub begun: u64,
    /// Jobs and steps that were removed because of their age or number.
    pub removed: u64,
    /// Jobs and steps that were not kept because too many ran.
    pub refused: u64,
    /// How often changes of cgroups were lost; the directories were then listed.
    pub overflows: u64,
    /// Failed writes of the file.
    pub write_errors: u64,
}

/// A message of a program about its job.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobReport {
    pub job: String,
    /// The process that runs the program.
    pub pid: u32,
    /// Whether the program ended; else it begins.
    #[serde(default)]
    pub end: bool,
    /// Whether the job ended with the program, whatever other processes of it do.
    #[serde(default)]
    pub is_last: bool,
    #[serde(default)]
    pub exit: Option<i32>,
    #[serde(default)]
    pub signal: Option<i32>,
    #[serde(default)]
    pub cpu_seconds: Option<f64>,
    #[serde(default)]
    pub memory_peak: Option<u64>,
}

/// Why a report is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobReportError {
    /// The name of the job is malformed.
    Name,
    /// A figure is not usable.
    Value(&'static str),
    /// Too many jobs run.
    Full,
}

impl std::fmt::Display for JobReportError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            JobReportError::Name => {
                f.write_str("job: expected a name of 1 to 256 bytes without control characters")
            }
            JobReportError::Value(key) => write!(f, "{key}: not a finite number from 0 on"),
            JobReportError::Full => f.write_str("too many jobs run on this node"),
        }
    }
}

impl std::error::Error for JobReportError {}

impl Jobs {
    /// Opens the jobs of a store's directory. A file that cannot be read is reported, and jobs are
    /// kept in memory only.
    pub fn open(dir: &Path, settings: &JobsSettings) -> Jobs {
        let opened = JobLog::open(dir).inspect_err(|error| {
            tracing::error!(%error, dir = %dir.display(), "cannot read jobs.log; jobs are kept in memory only");
        });
        match opened {
            Ok((file, jobs)) => Jobs::new(Some(file), jobs, settings),
            Err(_) => Jobs::in_memory(settings),
        }
    }

    /// Creates an empty table without a file.
    pub fn in_memory(settings: &JobsSettings) -> Jobs {
        Jobs::new(None, NumberedJobs::new(), settings)
    }

    fn new(file: Option<JobLog>, jobs: NumberedJobs, settings: &JobsSettings) -> Jobs {
        let keep = Millis::try_from(settings.keep.duration().as_millis()).unwrap_or(Millis::MAX);
        let counts = Arc::new(AtomicCounts::default());
        let table = JobTable::new(jobs, settings.count.get() as usize, keep);
        let table = Arc::new(RwLock::new(table));
        let mut state = JobState {
            table: table.clone(),
            file,
            process_jobs: ProcessJobs::default(),
            counts: counts.clone(),
            is_dirty: false,
        };
        state.compact();
        state.publish_counts();
        Jobs {
            table,
            state: Arc::new(Mutex::new(state)),
            counts,
        }
    }

    pub(crate) fn update<T>(&self, change: impl FnOnce(&mut JobState) -> T) -> T {
        let mut state = self.state.lock();
        let changed = change(&mut state);
        state.publish_counts();
        changed
    }

    /// Returns the jobs of a filter, the newest first, and the number of those that exceed its
    /// limit.
    pub fn list(&self, filter: &JobFilter) -> (Vec<JobInterval>, usize) {
        self.table.read().list(filter)
    }

    /// Returns the running jobs, without their steps.
    pub fn running(&self) -> Vec<JobInterval> {
        let table = self.table.read();
        let jobs = table.running().map(|(_, job)| job);
        jobs.filter(|job| job.step.is_none()).cloned().collect()
    }

    /// Returns a running job or step.
    pub(crate) fn job(&self, number: JobNumber) -> Option<JobInterval> {
        self.table.read().get(number).cloned()
    }

    /// Records what a program of a user reports about its job.
    pub fn report(&self, uid: u32, report: &JobReport, now: Millis) -> Result<(), JobReportError> {
        usable_name(&report.job).ok_or(JobReportError::Name)?;
        if report
            .cpu_seconds
            .is_some_and(|seconds| !(0.0..1e15).contains(&seconds))
        {
            return Err(JobReportError::Value("cpu_seconds"));
        }
        let ended = match (report.signal, report.exit) {
            (Some(signal), _) => Some(JobEnd::Signal(signal)),
            (None, Some(code)) => Some(JobEnd::Exit(code)),
            (None, None) => None,
        };
        let reporter = Reporter { uid, report, ended };
        self.update(|state| reporter.apply(state, now))
    }

    /// Ends all jobs that are recorded as running, at the time when they were last seen: they are
    /// those of another agent, which has ended.
    pub fn end_all_as_lost(&self) {
        self.update(|state| {
            let running = state.running(|number, job| Some((number, job.seen)));
            for (number, seen) in running {
                state.end(number, seen, JobEnd::Lost);
            }
        });
    }

    pub fn counts(&self) -> JobCounts {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        JobCounts {
            running: of(&self.counts.running),
            kept: of(&self.counts.kept),
            begun: of(&self.counts.begun),
            removed: of(&self.counts.removed),
            refused: of(&self.counts.refused),
            overflows: of(&self.counts.overflows),
            write_errors: of(&self.counts.write_errors),
        }
    }

    /// Writes the file to the disk. Waits for the disk, without a lock.
    pub(crate) fn sync(&self) {
        let handle = {
            let mut state = self.state.lock();
            if !std::mem::take(&mut state.is_dirty) {
                return;
            }
            state.file.as_ref().and_then(JobLog::sync_handle)
        };
        if let Some(Err(error)) = handle.map(|file| file.sync_data()) {
            self.counts.write_errors.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(%error, "cannot sync jobs.log");
        }
    }
}

impl JobState {
    pub(crate) fn table(&self) -> RwLockReadGuard<'_, JobTable> {
        self.table.read()
    }

    /// Returns what `select` returns for the running jobs.
    pub(crate) fn running<T>(
        &self,
        mut select: impl FnMut(JobNumber, &JobInterval) -> Option<T>,
    ) -> Vec<T> {
        let table = self.table();
        let selected = table
            .running()
            .filter_map(|(number, job)| select(number, job));
        selected.collect()
    }

    /// Returns a running job.
    pub(crate) fn job(&self, number: JobNumber) -> Option<JobInterval> {
        self.table().get(number).cloned()
    }

    /// Changes a running job, in memory only: `change` must not wait.
    pub(crate) fn change(&self, number: JobNumber, change: impl FnOnce(&mut JobInterval)) {
        if let Some(job) = self.table.write().get_mut(number) {
            change(job);
        }
    }

    /// Replaces a running job, in the file too.
    pub(crate) fn replace(&mut self, number: JobNumber, job: JobInterval) {
        if self.table().get(number).is_some() {
            self.write(number, &job);
            self.change(number, |known| *known = job);
        }
    }

    /// Adds a running job; `None` if too many run.
    pub(crate) fn begin(&mut self, job: JobInterval) -> Option<JobNumber> {
        let Some(number) = self.table().free_number(&job) else {
            self.counts.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        self.counts.begun.fetch_add(1, Ordering::Relaxed);
        self.write(number, &job);
        self.table.write().begin(job)
    }

    /// Ends a running job.
    pub(crate) fn end(&mut self, number: JobNumber, end: Millis, how: JobEnd) {
        let Some(mut job) = self.job(number) else {
            return;
        };
        job.end = Some(end.max(job.begin));
        job.ended = Some(how);
        self.write(number, &job);
        let mut table = self.table.write();
        if let Some(known) = table.get_mut(number) {
            *known = job;
        }
        table.end(number);
    }

    /// Writes a job to the file. Waits for the disk.
    fn write(&mut self, number: JobNumber, job: &JobInterval) {
        if let Some(file) = &mut self.file {
            self.is_dirty = true;
            if let Err(error) = file.append(&to_line(number, job)) {
                self.count_error(&error);
            }
        }
    }

    /// Removes jobs that are too old or too many.
    pub(crate) fn expire(&mut self, now: Millis) {
        let removed = self.table.write().expire(now);
        self.counts
            .removed
            .fetch_add(removed as u64, Ordering::Relaxed);
    }

    /// Rewrites the file if most of it is obsolete, or if a write failed.
    pub(crate) fn compact(&mut self) {
        let table = self.table.read();
        let live_bytes = table.len() as u64 * LINE_BYTES;
        let Some(file) = self
            .file
            .as_mut()
            .filter(|file| file.needs_rewrite(live_bytes))
        else {
            return;
        };
        let lines: Vec<u8> = { table.all() }
            .flat_map(|(number, job)| to_line(number, job))
            .collect();
        drop(table);
        if let Err(error) = file.rewrite(&lines) {
            self.count_error(&error);
        }
    }

    pub(crate) fn count_overflow(&self) {
        self.counts.overflows.fetch_add(1, Ordering::Relaxed);
    }

    fn count_error(&self, error: &io::Error) {
        // The first error of a series is logged: a full disk must not fill the log.
        if self.counts.write_errors.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::error!(%error, "cannot write jobs.log; jobs are kept in memory, and writing is retried");
        }
    }

    fn publish_counts(&self) {
        let table = self.table();
        let (running, kept) = (table.running_len(), table.len());
        self.counts.running.store(running as u64, Ordering::Relaxed);
        self.counts.kept.store(kept as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use pegel_testkit::{BlockedFile, TempDir, eventually};

    use super::*;

    fn report(job: &str) -> JobReport {
        JobReport {
            job: job.to_owned(),
            pid: 1,
            end: false,
            is_last: false,
            exit: None,
            signal: None,
            cpu_seconds: None,
            memory_peak: None,
        }
    }

    fn all() -> JobFilter {
        JobFilter {
            limit: 10,
            ..JobFilter::default()
        }
    }

    /// Requires that readers answer while a change hangs in the file.
    fn assert_readable_during(
        jobs: &Jobs,
        mut file: BlockedFile,
        known: usize,
        change: impl FnOnce(&Jobs) + Send + 'static,
    ) {
        let writer = {
            let jobs = jobs.clone();
            thread::spawn(move || change(&jobs))
        };
        eventually("a change is written", || {
            jobs.state.is_locked().then_some(()).ok_or("not yet")
        });
        let (read, answered) = mpsc::channel();
        let reader = {
            let jobs = jobs.clone();
            thread::spawn(move || {
                let listed = jobs.list(&all()).0.len();
                let _ = read.send((jobs.running().len(), listed, jobs.counts().running));
            })
        };
        let seen = answered.recv_timeout(Duration::from_secs(20));
        file.resume();
        writer.join().expect("no panic");
        reader.join().expect("no panic");
        let expected = (known, known, known as u64);
        assert_eq!(seen, Ok(expected), "a reader waited, or saw too much");
    }

    #[test]
    fn readers_do_not_wait_while_a_line_is_written() {
        let dir = TempDir::new();
        let jobs = Jobs::open(dir.path(), &JobsSettings::default());
        let file = BlockedFile::replace(dir.join("jobs.log"));
        assert_readable_during(&jobs, file, 0, |jobs| {
            jobs.report(7, &report("solver"), 5_000).expect("begun");
        });
        assert_eq!(jobs.running().len(), 1, "seen once its line is written");
    }

    #[test]
    fn readers_do_not_wait_while_the_file_is_rewritten() {
        let dir = TempDir::new();
        let jobs = Jobs::open(dir.path(), &JobsSettings::default());
        jobs.report(7, &report("solver"), 5_000).expect("begun");
        drop(jobs);
        // A torn line makes the file need a rewrite.
        let path = dir.join("jobs.log");
        let mut bytes = std::fs::read(&path).expect("read");
        bytes.extend(b"torn");
        let (log, known) = {
            std::fs::write(&path, bytes).expect("written");
            JobLog::open(dir.path()).expect("opens")
        };
        let jobs = Jobs::in_memory(&JobsSettings::default());
        jobs.update(|state| {
            state.file = Some(log);
            for job in known.into_values() {
                state.table.write().begin(job);
            }
        });
        let file = BlockedFile::replace(dir.join("jobs.new"));
        assert_readable_during(&jobs, file, 1, |jobs| jobs.update(JobState::compact));
    }
}
