//! What a query with `job=ID` reads: the time of the job, and the series of the CPUs and devices
//! that it held.

use std::borrow::Cow;

use pegel_metric::Millis;

use crate::cpu_ranges::CpuRanges;
use crate::interval::JobInterval;

/// The part of a node's data that belongs to a job.
#[derive(Debug, Clone, PartialEq)]
pub struct JobScope {
    pub begin: Millis,
    pub end: Millis,
    job: Box<str>,
    cgroup: Box<str>,
    cpus: Option<CpuRanges>,
    gpus: Option<Box<[Box<str>]>>,
}

impl JobScope {
    /// Returns the scope of a job; that of a running one ends at `now`.
    pub fn new(interval: &JobInterval, now: Millis) -> JobScope {
        JobScope {
            begin: interval.begin,
            end: interval.end.unwrap_or(now).max(interval.begin),
            job: interval.job.clone(),
            cgroup: interval.cgroup.clone(),
            cpus: interval.cpus.clone(),
            gpus: interval.gpus.clone(),
        }
    }

    /// Returns whether a series belongs to the job: none of its labels names a CPU or a GPU that
    /// the job did not hold, another job, or a cgroup outside of the job's.
    pub fn accepts<'l>(&self, labels: impl Iterator<Item = (&'l str, Cow<'l, str>)>) -> bool {
        let mut labels = labels;
        labels.all(|(key, value)| match key {
            "cpu" => self.holds_cpu(&value),
            "gpu" => {
                let gpus = self.gpus.as_ref();
                gpus.is_none_or(|gpus| gpus.iter().any(|gpu| **gpu == *value))
            }
            "jobid" => *self.job == *value,
            "cgroup" => self.cgroup.is_empty() || is_at_or_below(&value, &self.cgroup),
            _ => true,
        })
    }

    /// Values that are not numbers (`all`, `total`) name no CPU.
    fn holds_cpu(&self, value: &str) -> bool {
        let number = value.strip_prefix("cpu").unwrap_or(value).parse();
        match (&self.cpus, number) {
            (Some(cpus), Ok(number)) => cpus.contains(number),
            _ => true,
        }
    }
}

fn is_at_or_below(path: &str, group: &str) -> bool {
    let rest = path.strip_prefix(group);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interval::JobOrigin;

    #[test]
    fn series_of_other_cpus_gpus_and_jobs_are_left_out() {
        let mut job = JobInterval::new("17", "slurm", JobOrigin::Cgroup, 1_000);
        job.cgroup = "/system.slice/slurmstepd.scope/job_17".into();
        job.cpus = CpuRanges::parse("2-3");
        job.gpus = Some(["1".into()].into());
        let scope = JobScope::new(&job, 9_000);
        assert_eq!((scope.begin, scope.end), (1_000, 9_000));
        let accepts = |key: &str, value: &str| scope.accepts([(key, value.into())].into_iter());
        for (key, value, expected) in [
            ("cpu", "2", true),
            ("cpu", "4", false),
            ("cpu", "cpu3", true),
            ("cpu", "all", true),
            ("gpu", "1", true),
            ("gpu", "0", false),
            ("jobid", "17", true),
            ("jobid", "18", false),
            (
                "cgroup",
                "/system.slice/slurmstepd.scope/job_17/step_0",
                true,
            ),
            ("cgroup", "/system.slice/slurmstepd.scope/job_170", false),
            ("device", "eth0", true),
        ] {
            assert_eq!(accepts(key, value), expected, "{key}={value}");
        }
        job.cpus = None;
        job.gpus = None;
        let scope = JobScope::new(&job, 9_000);
        assert!(scope.accepts([("cpu", "9".into()), ("gpu", "9".into())].into_iter()));
    }
}
