//! The thread that keeps the job table up to date.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pegel_machine::boot_time_seconds;
use pegel_metric::{Clock, Millis};
use pegel_plain_file::read_plain;
use pegel_supervisor::{RestartedThread, Supervisor};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::cgroup_jobs::CgroupJobs;
use crate::cgroup_processes::ProcFiles;
use crate::jobs::Jobs;
use crate::process_jobs::{LaneJob, ProcessJobs};

/// How often processes and cgroups are read, and the file is synced.
const TICK: Duration = Duration::from_secs(1);
/// How often all directories are listed, in case that events were missed.
const RESCAN_INTERVAL: Duration = Duration::from_secs(30);
/// How long jobs of lanes may take to be found again after a restart.
const RESUME_TIME: Duration = Duration::from_secs(10);
const PROC_STAT_BYTES_MAX: u64 = 4 << 20;

type ReadGpuSeconds = dyn Fn(&[Box<str>], Millis, Millis) -> Option<f64> + Send + Sync;

/// Returns how long some GPUs, by the value of their label `gpu`, were busy in a range of time.
#[derive(Clone)]
pub struct GpuSeconds(pub Arc<ReadGpuSeconds>);

impl fmt::Debug for GpuSeconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GpuSeconds")
    }
}

/// What the worker reads.
#[derive(Clone)]
pub struct JobWorkerOptions {
    /// `/sys/fs/cgroup`, or that of a simulated machine.
    pub cgroup_mount: PathBuf,
    pub proc: PathBuf,
    pub user_hz: u64,
    pub page_bytes: u64,
    pub clock: Arc<dyn Clock>,
    /// Returns the jobs of running programs with lanes.
    pub lane_jobs: Arc<dyn Fn() -> Vec<LaneJob> + Send + Sync>,
    pub gpu_seconds: GpuSeconds,
    /// The agent ends with its job: the jobs that programs named end when the worker does.
    pub ends_jobs: bool,
}

impl fmt::Debug for JobWorkerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobWorkerOptions")
            .field("cgroup_mount", &self.cgroup_mount)
            .finish_non_exhaustive()
    }
}

/// The handle of the thread. It ends when this is dropped.
#[derive(Debug)]
pub struct JobWorker {
    thread: Option<RestartedThread>,
    stop: Arc<JobWorkerStop>,
}

#[derive(Debug)]
struct JobWorkerStop {
    is_set: AtomicBool,
    event: OwnedFd,
}

impl JobWorker {
    /// Starts the thread.
    pub fn start(
        jobs: &Jobs,
        options: JobWorkerOptions,
        supervisor: &Supervisor,
    ) -> io::Result<JobWorker> {
        let stop = Arc::new(JobWorkerStop {
            is_set: AtomicBool::new(false),
            event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        });
        let (jobs, for_thread) = (jobs.clone(), stop.clone());
        let body = move || run(&jobs, &options, &for_thread);
        let thread = supervisor.thread("jobs").restarted(body)?;
        Ok(JobWorker {
            thread: Some(thread),
            stop,
        })
    }
}

impl Drop for JobWorker {
    fn drop(&mut self) {
        self.stop.is_set.store(true, Ordering::Release);
        // Fails only if the counter is at its maximum: then the thread wakes up as well.
        let _ = rustix::io::write(&self.stop.event, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
    }
}

fn run(jobs: &Jobs, options: &JobWorkerOptions, stop: &JobWorkerStop) {
    let stat = read_plain(&options.proc.join("stat"), PROC_STAT_BYTES_MAX).unwrap_or_default();
    let boot = boot_time_seconds(&stat).and_then(|seconds| Millis::try_from(seconds).ok());
    let files = ProcFiles {
        proc: options.proc.clone(),
        user_hz: options.user_hz,
        boot: boot.and_then(|seconds| seconds.checked_mul(1000)),
    };
    let clock = &options.clock;
    let (mount, gpus) = (options.cgroup_mount.clone(), options.gpu_seconds.clone());
    let mut cgroups = CgroupJobs::open(mount, files.clone(), gpus, jobs, clock.utc());
    let started = Instant::now();
    let (mut next_tick, mut next_scan) = (started, started + RESCAN_INTERVAL);
    while !stop.is_set.load(Ordering::Acquire) {
        let early = { cgroups.next_early_read(clock.utc()) }
            .map(|due| Duration::from_millis((due - clock.utc()).max(1).unsigned_abs()));
        let tick = next_tick.saturating_duration_since(Instant::now());
        wait(&cgroups, stop, early.map_or(tick, |early| early.min(tick)));
        cgroups.apply_events(jobs, clock.utc());
        if early.is_some() {
            cgroups.poll(jobs, clock.utc());
        }
        let now = Instant::now();
        if now < next_tick {
            continue;
        }
        next_tick = now + TICK;
        if now >= next_scan || cgroups.watcher.descriptor().is_none() {
            next_scan = now + RESCAN_INTERVAL;
            cgroups.rescan(jobs, clock.utc());
        }
        cgroups.poll(jobs, clock.utc());
        let lanes = (options.lane_jobs)();
        jobs.update(|state| {
            ProcessJobs::update(state, &lanes, &files, options.page_bytes, clock.utc());
            if started.elapsed() > RESUME_TIME {
                ProcessJobs::end_unknown(state);
            }
            state.expire(clock.utc());
            state.compact();
        });
        jobs.sync();
    }
    cgroups.flush(jobs, clock.utc());
    if options.ends_jobs {
        jobs.update(|state| ProcessJobs::end_all(state, clock.utc()));
    }
    jobs.sync();
}

/// Waits for an event, for the end of the agent, or for a time.
fn wait(cgroups: &CgroupJobs, stop: &JobWorkerStop, time: Duration) {
    let mut descriptors = vec![PollFd::from_borrowed_fd(stop.event.as_fd(), PollFlags::IN)];
    let events = cgroups.watcher.descriptor();
    descriptors.extend(events.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
    let timeout = Timespec::try_from(time).unwrap_or(Timespec {
        tv_sec: 1,
        tv_nsec: 0,
    });
    // EINTR is treated as a timeout.
    let _ = poll(&mut descriptors, Some(&timeout));
}
