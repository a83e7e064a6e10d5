//! `pegel_job_info`: 1 while a job runs, for joins. It is not stored: `/metrics` and PromQL get the
//! jobs that run when they are asked, so that jobs add no series to the store. Ended jobs are left
//! out: every client that may read metrics sees this family, and only some see the jobs of others.

use std::sync::Arc;

use pegel_config::UserInfo;
use pegel_jobs::{JobInterval, Jobs};
use pegel_metric::{Family, MetricKind, Millis, Series};
use pegel_query::promql::{IntervalSource, LabelledInterval};

/// The most jobs of one response.
const JOBS_MAX: usize = 1_000;

/// The family, which is not among those of collectors: its series are not stored.
pub static JOB_INFO: Family = Family::new(
    "pegel_job_info",
    MetricKind::Gauge,
    "",
    0,
    "1 while a job runs on this node; the labels describe it.",
);

/// The jobs as a source of series.
#[derive(Debug)]
pub(crate) struct JobInfo(pub Jobs);

impl IntervalSource for JobInfo {
    fn family(&self) -> &'static Family {
        &JOB_INFO
    }

    fn intervals(&self, start: Millis, end: Millis) -> Vec<LabelledInterval> {
        let mut jobs = self.0.running();
        jobs.retain(|job| job.overlaps(start, end));
        jobs.truncate(JOBS_MAX);
        let mut users = JobUserNames::default();
        let interval = |job: &JobInterval| LabelledInterval {
            labels: job_labels(job, &mut users),
            begin: job.begin,
            end: job.end,
        };
        jobs.iter().map(interval).collect()
    }
}

/// Returns the series of the running jobs.
pub(crate) fn job_info_readings(jobs: &Jobs) -> Vec<(Arc<Series>, f64)> {
    let running = jobs.running();
    if running.is_empty() {
        return Vec::new();
    }
    let family = Arc::new(JOB_INFO.clone());
    let mut users = JobUserNames::default();
    let series = running.iter().take(JOBS_MAX).filter_map(|job| {
        let labels = job_labels(job, &mut users);
        let labels: Vec<(&str, &str)> = { labels.iter() }
            .map(|(key, value)| (*key, value.as_str()))
            .collect();
        Series::new(family.clone(), &labels).ok()
    });
    series.map(|series| (Arc::new(series), 1.0)).collect()
}

/// Labels that are unknown are left out.
fn job_labels(job: &JobInterval, users: &mut JobUserNames) -> Vec<(&'static str, String)> {
    let mut labels = vec![
        ("jobid", job.job.to_string()),
        ("scheduler", job.scheduler.to_string()),
    ];
    labels.extend(job.uid.map(|uid| ("user", users.name(uid))));
    labels.extend(job.cpus.as_ref().map(|cpus| ("cpus", cpus.to_string())));
    labels.extend(job.gpus.as_ref().map(|gpus| ("gpus", gpus.join(","))));
    if !job.cgroup.is_empty() {
        labels.push(("cgroup", job.cgroup.to_string()));
    }
    labels
}

/// The names of users, each looked up once per request.
#[derive(Debug, Default)]
pub(crate) struct JobUserNames(Vec<(u32, String)>);

impl JobUserNames {
    pub(crate) fn name(&mut self, uid: u32) -> String {
        if let Some((_, name)) = self.0.iter().find(|(known, _)| *known == uid) {
            return name.clone();
        }
        let info = UserInfo::lookup(uid);
        // Users of a directory service are known to the C library only.
        let other = || {
            nix::unistd::User::from_uid(uid.into())
                .ok()?
                .map(|user| user.name)
        };
        let name = info.name.clone().or_else(other);
        let name = name.unwrap_or_else(|| info.short_name());
        self.0.push((uid, name.clone()));
        name
    }
}

/// Returns the number of a user by name or number.
pub(crate) fn uid_of_user(user: &str) -> Option<u32> {
    let number = || user.parse().ok();
    let local = UserInfo::uid_of(user).or_else(number);
    local.or_else(|| Some(nix::unistd::User::from_name(user).ok()??.uid.as_raw()))
}
