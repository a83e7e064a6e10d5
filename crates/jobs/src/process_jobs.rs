//! Jobs that programs name: the job of their lanes, or of `pegel run -j`. Such a job lasts as long
//! as one of its processes. A job that has a cgroup of the scheduler is not recorded twice.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use pegel_metric::Millis;
use pegel_plain_file::read_plain;

use crate::cgroup_processes::ProcFiles;
use crate::cpu_ranges::CpuRanges;
use crate::interval::{JobInterval, JobOrigin, usable_name};
use crate::job_end::JobEnd;
use crate::job_file::JobNumber;
use crate::jobs::{JobReport, JobReportError, JobState};
use crate::table::is_other_user;

/// The scheduler of jobs that programs name.
const SCHEDULER: &str = "pegel";
/// The most processes of one job, and of all jobs of a user other than the agent's and root.
const MEMBERS_MAX: usize = 4_096;
/// A process that is not visible, in another pid namespace, counts as ended after this long
/// without a report.
const UNSEEN_MS: Millis = 24 * 3_600_000;

/// The processes with lanes of one job and user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneJob {
    pub job: String,
    pub uid: u32,
    pub pids: Vec<u32>,
}

/// The running jobs that programs name, by name and user.
#[derive(Debug, Default)]
pub(crate) struct ProcessJobs {
    jobs: HashMap<(Box<str>, u32), ProcessJob>,
    /// Jobs that ended before their lanes: they do not begin again while these exist.
    closed: HashSet<(Box<str>, u32)>,
}

#[derive(Debug)]
struct ProcessJob {
    number: JobNumber,
    members: BTreeMap<u32, Member>,
    /// As reported by `pegel run`; the first failure counts.
    ended: Option<JobEnd>,
}

/// A process of a job.
#[derive(Debug, Default)]
struct Member {
    /// Tells the process from a later one with its number; `None` if it was never visible.
    start_ticks: Option<u64>,
    added: Millis,
    /// Whether a lane of it exists: the lanes tell whether it runs, in any pid namespace.
    has_lane: bool,
    is_gone: bool,
    cpu_seconds: f64,
    resident_bytes: u64,
    /// Whether `pegel run` reported its end, and the figures of its program.
    is_reported: bool,
    peak_bytes: u64,
}

impl ProcessJob {
    fn add(&mut self, pid: u32, now: Millis) -> Option<&mut Member> {
        let is_full = self.members.len() >= MEMBERS_MAX && !self.members.contains_key(&pid);
        let new_member = || Member {
            added: now,
            ..Member::default()
        };
        (!is_full).then(|| self.members.entry(pid).or_insert_with(new_member))
    }

    /// Takes over which processes have lanes. Those whose lane ended have ended.
    fn set_lanes(&mut self, pids: &[u32], now: Millis) {
        for (pid, member) in &mut self.members {
            if member.has_lane && !pids.contains(pid) {
                member.end();
            }
        }
        for pid in pids {
            if let Some(member) = self.add(*pid, now) {
                member.has_lane = true;
                member.is_gone = false;
            }
        }
    }

    fn is_over(&self) -> bool {
        self.members.values().all(|member| member.is_gone)
    }

    /// Updates the figures of the job from those of its processes.
    fn write_figures(&self, job: &mut JobInterval) {
        let has_reports = self.members.values().any(|member| member.is_reported);
        let members = self.members.values();
        // `pegel run` reports its program as a whole, including the processes with lanes.
        let members = members.filter(|member| member.is_reported || !has_reports);
        let seconds: f64 = members.clone().map(|member| member.cpu_seconds).sum();
        let resident: u64 = members.clone().map(|member| member.resident_bytes).sum();
        let reported: u64 = members.map(|member| member.peak_bytes).sum();
        let peak = resident.max(reported).max(job.memory_peak.unwrap_or(0));
        job.memory_peak = (peak > 0).then_some(peak);
        job.cpu_seconds = Some(seconds);
    }
}

impl ProcessJobs {
    /// Returns the running job of a name and user, which is begun if there is none.
    fn begin(
        &mut self,
        state: &mut JobState,
        name: &str,
        uid: u32,
        now: Millis,
    ) -> Option<&mut ProcessJob> {
        let key = (Box::from(name), uid);
        if !self.jobs.contains_key(&key) {
            let number = match running_job(state, name, uid) {
                // An earlier agent began it.
                Some(number) => number,
                None => {
                    let mut job = JobInterval::new(name, SCHEDULER, JobOrigin::Process, now);
                    job.uid = Some(uid);
                    state.begin(job)?
                }
            };
            let job = ProcessJob {
                number,
                members: BTreeMap::new(),
                ended: None,
            };
            self.jobs.insert(key.clone(), job);
        }
        self.jobs.get_mut(&key)
    }

    /// Returns whether a user has reported as many processes as it may, and this is not one of
    /// them. A process that is not visible is kept for long.
    fn is_full(&self, report: &JobReport, uid: u32) -> bool {
        let its = || self.jobs.iter().filter(|((_, owner), _)| *owner == uid);
        let members = its().map(|(_, job)| job.members.len()).sum::<usize>();
        let is_known = |((name, _), job): (&(Box<str>, u32), &ProcessJob)| {
            **name == *report.job && job.members.contains_key(&report.pid)
        };
        is_other_user(Some(uid)) && members >= MEMBERS_MAX && !its().any(is_known)
    }

    /// Ends jobs of an earlier agent that have not been continued: their processes are not known
    /// any more.
    pub(crate) fn end_unknown(state: &mut JobState) {
        let known = std::mem::take(&mut state.process_jobs);
        let is_known = |number: JobNumber| known.jobs.values().any(|job| job.number == number);
        let unknown = state.running(|number, job| {
            let is_unknown = job.origin == JobOrigin::Process && !is_known(number);
            is_unknown.then_some((number, job.seen))
        });
        for (number, seen) in unknown {
            state.end(number, seen, JobEnd::Lost);
        }
        state.process_jobs = known;
    }

    /// Ends all jobs that programs named, because the agent ends with its job.
    pub(crate) fn end_all(state: &mut JobState, now: Millis) {
        let own = std::mem::take(&mut state.process_jobs);
        let running =
            state.running(|number, job| (job.origin == JobOrigin::Process).then_some(number));
        for number in running {
            let known = own.jobs.values().find(|job| job.number == number);
            let ended = known.and_then(|job| job.ended);
            state.end(number, now, ended.unwrap_or(JobEnd::Ended));
        }
    }

    /// Adds the jobs of lanes, reads the processes of all jobs, and ends jobs without processes.
    pub(crate) fn update(
        state: &mut JobState,
        lanes: &[LaneJob],
        files: &ProcFiles,
        page_bytes: u64,
        now: Millis,
    ) {
        let mut own = std::mem::take(&mut state.process_jobs);
        own.closed.retain(|(name, uid)| {
            let mut lanes = lanes.iter();
            lanes.any(|lane| *lane.job == **name && lane.uid == *uid)
        });
        for lane in lanes {
            if own.closed.contains(&(Box::from(&*lane.job), lane.uid)) {
                continue;
            }
            if usable_name(&lane.job).is_some() && !has_cgroup(state, &lane.job, lane.uid) {
                own.begin(state, &lane.job, lane.uid, now);
            }
        }
        own.jobs.retain(|(name, uid), job| {
            let lanes = { lanes.iter() }.find(|lane| *lane.job == **name && lane.uid == *uid);
            job.set_lanes(lanes.map_or(&[], |lane| &lane.pids), now);
            for (pid, member) in job.members.iter_mut().filter(|(_, member)| !member.is_gone) {
                member.read(*pid, *uid, files, page_bytes, now);
            }
            let Some(interval) = state.job(job.number) else {
                return false;
            };
            let cpus = { interval.cpus }
                .or_else(|| allowed_cpus(&files.proc, job.members.keys().copied()));
            state.change(job.number, |interval| {
                interval.seen = now;
                interval.cpus = cpus;
                job.write_figures(interval);
            });
            let is_over = job.is_over();
            if is_over {
                state.end(job.number, now, job.ended.unwrap_or(JobEnd::Ended));
            }
            !is_over
        });
        state.process_jobs = own;
    }
}

/// Returns the number of a running job that a program of a user named.
fn running_job(state: &JobState, name: &str, uid: u32) -> Option<JobNumber> {
    let table = state.table();
    let found = table.running().find(|(_, job)| {
        job.origin == JobOrigin::Process && *job.job == *name && job.uid == Some(uid)
    });
    found.map(|(number, _)| number)
}

/// Returns whether a scheduler's job of this id runs, and is not another user's.
fn has_cgroup(state: &JobState, id: &str, uid: u32) -> bool {
    let table = state.table();
    table.running().any(|(_, job)| {
        let is_of_user = job.uid.is_none_or(|owner| owner == uid);
        job.origin == JobOrigin::Cgroup && job.has_id(id) && is_of_user
    })
}

impl Member {
    /// Reads what the process uses, and ends it if it is gone: its number belongs to no process, or
    /// to another one.
    fn read(&mut self, pid: u32, uid: u32, files: &ProcFiles, page_bytes: u64, now: Millis) {
        let owner = fs::metadata(files.proc.join(pid.to_string())).map(|found| found.uid());
        let read = files.stat(pid, |stat| {
            let is_same = self
                .start_ticks
                .is_none_or(|ticks| ticks == stat.start_ticks);
            let is_alive = is_same && !matches!(stat.state, b'Z' | b'X');
            is_alive.then(|| (stat.start_ticks, stat.cpu_ticks(), stat.resident_pages))
        });
        match read
            .flatten()
            .filter(|_| owner.is_ok_and(|owner| owner == uid))
        {
            Some((start_ticks, cpu_ticks, pages)) => {
                self.start_ticks = Some(start_ticks);
                self.cpu_seconds = cpu_ticks as f64 / files.user_hz.max(1) as f64;
                self.resident_bytes = pages.saturating_mul(page_bytes);
            }
            None if self.has_lane => {}
            None if self.start_ticks.is_none() && now - self.added < UNSEEN_MS => {}
            None => self.end(),
        }
    }

    fn end(&mut self) {
        self.is_gone = true;
        self.resident_bytes = 0;
    }
}

/// Returns the CPUs on which any of some processes may run.
fn allowed_cpus(proc: &Path, pids: impl Iterator<Item = u32>) -> Option<CpuRanges> {
    let of_process = |pid: u32| {
        let status = read_plain(&proc.join(format!("{pid}/status")), 16 << 10).ok()?;
        let text = String::from_utf8_lossy(&status);
        let mut lines = text.lines();
        let list = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        CpuRanges::parse(list)
    };
    pids.filter_map(of_process)
        .reduce(|all, cpus| all.union(&cpus))
}

/// A report of `pegel run`, and the user that sent it.
pub(crate) struct Reporter<'a> {
    pub uid: u32,
    pub report: &'a JobReport,
    pub ended: Option<JobEnd>,
}

impl Reporter<'_> {
    pub(crate) fn apply(&self, state: &mut JobState, now: Millis) -> Result<(), JobReportError> {
        if has_cgroup(state, &self.report.job, self.uid) {
            return Ok(());
        }
        let mut own = std::mem::take(&mut state.process_jobs);
        let result = self.apply_to(&mut own, state, now);
        state.process_jobs = own;
        result
    }

    fn apply_to(
        &self,
        own: &mut ProcessJobs,
        state: &mut JobState,
        now: Millis,
    ) -> Result<(), JobReportError> {
        let report = self.report;
        if own.is_full(report, self.uid) {
            return Err(JobReportError::Full);
        }
        own.closed.remove(&(Box::from(&*report.job), self.uid));
        let job = own.begin(state, &report.job, self.uid, now);
        let job = job.ok_or(JobReportError::Full)?;
        let member = job.add(report.pid, now).ok_or(JobReportError::Full)?;
        if !report.end {
            return Ok(());
        }
        member.end();
        member.is_reported = true;
        member.cpu_seconds = report.cpu_seconds.unwrap_or(member.cpu_seconds);
        member.peak_bytes = report.memory_peak.unwrap_or(0);
        // The first failure counts.
        if job.ended.is_none_or(|ended| ended == JobEnd::Exit(0)) {
            job.ended = self.ended.or(job.ended);
        }
        let (number, is_over) = (job.number, report.is_last || job.is_over());
        let ended = job.ended.unwrap_or(JobEnd::Ended);
        state.change(number, |interval| {
            interval.seen = now;
            job.write_figures(interval);
        });
        if is_over {
            let key = (Box::from(&*report.job), self.uid);
            own.jobs.remove(&key);
            if report.is_last {
                own.closed.insert(key);
            }
            state.end(number, now, ended);
        }
        Ok(())
    }
}
