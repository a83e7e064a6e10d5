//! The jobs in memory: running ones by number, ended ones in the order of their ends.

use std::collections::{BTreeMap, VecDeque};

use pegel_metric::Millis;
use rustix::process::geteuid;

use crate::interval::{JobInterval, JobOrigin};
use crate::job_file::{JobNumber, NumberedJobs};

/// The most jobs and steps that run at a time; more are counted and not kept.
pub(crate) const RUNNING_MAX: usize = 4_096;
/// The part of the table that jobs named by programs may fill: their names are claims of users.
const CLAIMED_PART: usize = 4;
/// The most running jobs that programs name.
pub(crate) const CLAIMED_RUNNING_MAX: usize = RUNNING_MAX / CLAIMED_PART;
/// The most of them that belong to users other than the agent's and root.
const OTHERS_RUNNING_MAX: usize = CLAIMED_RUNNING_MAX / 4 * 3;
/// The most of them that belong to one such user.
const USER_RUNNING_MAX: usize = CLAIMED_RUNNING_MAX / 4;

/// Which jobs a reader wants.
#[derive(Debug, Clone, Default)]
pub struct JobFilter {
    /// Jobs that ran at this time or later.
    pub since: Millis,
    /// Only jobs of this user.
    pub uid: Option<u32>,
    /// Only the job with this id, or with `JOB.STEP` a step of it.
    pub id: Option<String>,
    /// Whether steps are listed too.
    pub steps: bool,
    /// The most jobs, the newest ones.
    pub limit: usize,
}

impl JobFilter {
    fn accepts(&self, job: &JobInterval) -> bool {
        let is_of_user = self.uid.is_none_or(|uid| job.uid == Some(uid));
        let is_meant = match &self.id {
            Some(id) => job.has_id(id) || self.steps && job.is_of_job(id),
            None => self.steps || job.step.is_none(),
        };
        is_of_user && is_meant && job.overlaps(self.since, Millis::MAX)
    }
}

/// All jobs that are kept.
#[derive(Debug)]
pub(crate) struct JobTable {
    running: BTreeMap<JobNumber, JobInterval>,
    ended: VecDeque<(JobNumber, JobInterval)>,
    claimed: usize,
    next_number: JobNumber,
    count_max: usize,
    keep: Millis,
}

impl JobTable {
    /// Creates a table with the jobs of a file.
    pub(crate) fn new(jobs: NumberedJobs, count_max: usize, keep: Millis) -> JobTable {
        let next_number = jobs.keys().next_back().map_or(1, |last| last + 1);
        let (running, mut ended): (BTreeMap<_, _>, Vec<_>) = {
            let (running, ended): (Vec<_>, Vec<_>) =
                jobs.into_iter().partition(|(_, job)| job.is_running());
            (running.into_iter().collect(), ended)
        };
        ended.sort_by_key(|(number, job)| (job.end, *number));
        let claimed = ended.iter().filter(|(_, job)| is_claimed(job)).count();
        JobTable {
            running,
            ended: ended.into(),
            claimed,
            next_number,
            count_max,
            keep,
        }
    }

    pub(crate) fn running(&self) -> impl Iterator<Item = (JobNumber, &JobInterval)> {
        self.running.iter().map(|(number, job)| (*number, job))
    }

    pub(crate) fn running_len(&self) -> usize {
        self.running.len()
    }

    pub(crate) fn len(&self) -> usize {
        self.running.len() + self.ended.len()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (JobNumber, &JobInterval)> {
        let ended = self.ended.iter().map(|(number, job)| (*number, job));
        ended.chain(self.running())
    }

    /// Returns a running job.
    pub(crate) fn get(&self, number: JobNumber) -> Option<&JobInterval> {
        self.running.get(&number)
    }

    pub(crate) fn get_mut(&mut self, number: JobNumber) -> Option<&mut JobInterval> {
        self.running.get_mut(&number)
    }

    /// Returns the number that the job would have; `None` if too many run.
    pub(crate) fn free_number(&self, job: &JobInterval) -> Option<JobNumber> {
        let has_room = !is_claimed(job) || self.has_room_for_claim(job.uid);
        (has_room && self.running.len() < RUNNING_MAX).then_some(self.next_number)
    }

    /// Adds a running job; `None` if too many run.
    pub(crate) fn begin(&mut self, job: JobInterval) -> Option<JobNumber> {
        let number = self.free_number(&job)?;
        self.next_number += 1;
        self.running.insert(number, job);
        Some(number)
    }

    /// Returns whether one more job that a program of a user named may run. However many names
    /// users claim, most of the table is left to jobs of schedulers, and a quarter of the rest to
    /// the agent's user and root.
    fn has_room_for_claim(&self, uid: Option<u32>) -> bool {
        let claimed = || self.running.values().filter(|job| is_claimed(job));
        let others = || claimed().filter(|job| is_other_user(job.uid));
        let is_own_free = !is_other_user(uid)
            || others().count() < OTHERS_RUNNING_MAX
                && others().filter(|job| job.uid == uid).count() < USER_RUNNING_MAX;
        claimed().count() < CLAIMED_RUNNING_MAX && is_own_free
    }

    /// Moves a job whose end is set to the ended ones.
    pub(crate) fn end(&mut self, number: JobNumber) {
        let Some(job) = self.running.remove(&number) else {
            return;
        };
        self.claimed += usize::from(is_claimed(&job));
        self.ended.push_back((number, job));
    }

    /// Removes jobs that are too old or too many. Returns their number.
    pub(crate) fn expire(&mut self, now: Millis) -> usize {
        let before = self.ended.len();
        let oldest = now.saturating_sub(self.keep);
        while let Some((_, job)) = self.ended.front()
            && (self.len() > self.count_max && self.claimed <= self.claimed_max()
                || job.end.is_some_and(|end| end < oldest))
        {
            self.claimed -= usize::from(is_claimed(job));
            self.ended.pop_front();
        }
        while self.claimed > self.claimed_max() {
            let first = self.ended.iter().position(|(_, job)| is_claimed(job));
            first.map(|at| self.ended.remove(at));
            self.claimed -= 1;
        }
        while self.len() > self.count_max && !self.ended.is_empty() {
            self.claimed -= usize::from(self.ended.front().is_some_and(|(_, job)| is_claimed(job)));
            self.ended.pop_front();
        }
        before - self.ended.len()
    }

    fn claimed_max(&self) -> usize {
        self.count_max.div_ceil(CLAIMED_PART)
    }

    /// Returns the jobs of a filter, the newest first, and the number of those that exceed its
    /// limit.
    pub(crate) fn list(&self, filter: &JobFilter) -> (Vec<JobInterval>, usize) {
        let mut found: Vec<&JobInterval> = { self.all().map(|(_, job)| job) }
            .filter(|job| filter.accepts(job))
            .collect();
        found.sort_by_key(|job| std::cmp::Reverse(job.begin));
        let left_out = found.len().saturating_sub(filter.limit);
        found.truncate(filter.limit);
        (found.into_iter().cloned().collect(), left_out)
    }
}

fn is_claimed(job: &JobInterval) -> bool {
    job.origin == JobOrigin::Process
}

/// Returns whether a user is neither the agent's nor root.
pub(crate) fn is_other_user(uid: Option<u32>) -> bool {
    uid.is_none_or(|uid| uid != 0 && uid != geteuid().as_raw())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job_end::JobEnd;

    fn table(count_max: usize) -> JobTable {
        JobTable::new(NumberedJobs::new(), count_max, 10_000)
    }

    fn add(table: &mut JobTable, id: &str, origin: JobOrigin, (begin, end): (Millis, Millis)) {
        let job = JobInterval::new(id, "slurm", origin, begin);
        let number = table.begin(job).expect("room");
        let job = table.get_mut(number).expect("running");
        (job.end, job.ended) = (Some(end), Some(JobEnd::Ended));
        table.end(number);
    }

    fn ids(table: &JobTable) -> Vec<String> {
        let filter = JobFilter {
            limit: 100,
            ..JobFilter::default()
        };
        let (jobs, _) = table.list(&filter);
        jobs.iter().map(|job| job.job.to_string()).collect()
    }

    #[test]
    fn the_oldest_jobs_are_removed_by_age_and_count() {
        let mut table = table(3);
        for (number, id) in ["a", "b", "c", "d"].iter().enumerate() {
            let begin = number as Millis * 1_000;
            add(&mut table, id, JobOrigin::Cgroup, (begin, begin + 500));
        }
        assert_eq!(table.expire(4_000), 1);
        assert_eq!(ids(&table), ["d", "c", "b"]);
        assert_eq!(table.expire(12_000), 1);
        assert_eq!(ids(&table), ["d", "c"]);
    }

    #[test]
    fn names_that_programs_claim_cannot_displace_jobs_of_schedulers() {
        let mut table = table(8);
        for id in ["a", "b", "c"] {
            add(&mut table, id, JobOrigin::Cgroup, (0, 1));
        }
        for number in 0..20 {
            add(&mut table, &number.to_string(), JobOrigin::Process, (2, 3));
            table.expire(4);
        }
        let mut found = ids(&table);
        found.sort_unstable();
        assert_eq!(found, ["18", "19", "a", "b", "c"]);
    }

    #[test]
    fn running_jobs_are_bounded() {
        let mut table = table(10);
        for _ in 0..RUNNING_MAX {
            let job = JobInterval::new("x", "slurm", JobOrigin::Cgroup, 0);
            assert!(table.begin(job).is_some());
        }
        let job = JobInterval::new("x", "slurm", JobOrigin::Cgroup, 0);
        assert_eq!(table.begin(job), None);
        assert_eq!(table.expire(1), 0, "running jobs stay");
    }

    #[test]
    fn names_that_programs_claim_leave_room_for_running_jobs_of_schedulers() {
        let mut table = table(10);
        let mut fill = |uid: u32| {
            let claim = || {
                let mut job = JobInterval::new("x", "pegel", JobOrigin::Process, 0);
                job.uid = Some(uid);
                job
            };
            (0..RUNNING_MAX)
                .take_while(|_| table.begin(claim()).is_some())
                .count()
        };
        let users: Vec<usize> = (1..=5).map(|user| fill(4_000_000_000 + user)).collect();
        assert_eq!(users, [256, 256, 256, 0, 0]);
        assert_eq!(fill(0), 256, "reserved for the agent's user and root");
        assert_eq!(fill(geteuid().as_raw()), 0);
        for _ in CLAIMED_RUNNING_MAX..RUNNING_MAX {
            let job = JobInterval::new("1", "slurm", JobOrigin::Cgroup, 0);
            assert!(table.begin(job).is_some());
        }
    }

    #[test]
    fn jobs_are_listed_by_id_user_and_time() {
        let mut table = table(10);
        add(&mut table, "7", JobOrigin::Cgroup, (0, 100));
        add(&mut table, "8", JobOrigin::Cgroup, (50, 200));
        let mut step = JobInterval::new("8", "slurm", JobOrigin::Cgroup, 60);
        step.step = Some("0".into());
        step.uid = Some(7);
        table.begin(step);
        let list = |filter: JobFilter| {
            let (jobs, left_out) = table.list(&JobFilter { limit: 2, ..filter });
            let name = |job: &JobInterval| match &job.step {
                Some(step) => format!("{}.{step}", job.job),
                None => job.job.to_string(),
            };
            (jobs.iter().map(name).collect::<Vec<_>>(), left_out)
        };
        let all = JobFilter::default();
        assert_eq!(list(all.clone()), (vec!["8".into(), "7".into()], 0));
        let steps = JobFilter {
            steps: true,
            ..all.clone()
        };
        assert_eq!(list(steps.clone()), (vec!["8.0".into(), "8".into()], 1));
        let late = JobFilter {
            since: 150,
            ..all.clone()
        };
        assert_eq!(list(late), (vec!["8".into()], 0));
        let of_user = JobFilter {
            uid: Some(7),
            ..steps
        };
        assert_eq!(list(of_user), (vec!["8.0".into()], 0));
        let by_id = |id: &str| JobFilter {
            id: Some(id.to_owned()),
            ..all.clone()
        };
        assert_eq!(list(by_id("8.0")), (vec!["8.0".into()], 0));
        assert_eq!(list(by_id("8")), (vec!["8".into()], 0));
        assert_eq!(list(by_id("9")), (vec![], 0));
    }
}
