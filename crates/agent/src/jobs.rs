//! Connects the jobs to the agent: the worker's sources, and the metrics.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pegel_collect::SelfMetrics;
use pegel_ingest::Ingest;
use pegel_jobs::{GpuSeconds, JobCounts, JobWorker, JobWorkerOptions, Jobs, LaneJob};
use pegel_metric::{Family, MetricKind, Millis, Selector};
use pegel_store::{QueryStep, RangeQuery, StepAggregation, Store};

use crate::agent_settings::AgentSettings;

/// The share of time in which a GPU was busy.
const GPU_RATIOS: [&str; 2] = ["node_nvidia_gpu_utilization_ratio", "node_gpu_busy_ratio"];
/// The time and memory for reading them; without them the time of the GPUs stays unknown.
const GPU_QUERY_TIME: Duration = Duration::from_secs(2);
const GPU_QUERY_BYTES: usize = 4 << 20;
/// The steps of a reading; the mean over each is the same as over all samples.
const GPU_STEPS: Millis = 500;

/// Starts the thread that finds jobs; none if the agent only serves what another one stored.
pub(crate) fn start_jobs(
    plan: &AgentSettings,
    jobs: &Jobs,
    store: &Store,
    ingest: &Arc<Ingest>,
) -> io::Result<Option<JobWorker>> {
    if plan.serves_stored_only {
        jobs.end_all_as_lost();
        return Ok(None);
    }
    let for_gpus = store.clone();
    let ingest = Arc::downgrade(ingest);
    let lane_jobs = move || {
        let found = ingest.upgrade().map(|ingest| ingest.lane_jobs());
        let found = found.unwrap_or_default().into_iter();
        let job = |((job, uid), pids)| LaneJob { job, uid, pids };
        found.map(job).collect()
    };
    let options = JobWorkerOptions {
        cgroup_mount: plan.host.sys.join("fs/cgroup"),
        proc: plan.host.proc.clone(),
        user_hz: plan.host.user_hz,
        page_bytes: plan.host.page_bytes,
        clock: plan.store.clock.clone(),
        lane_jobs: Arc::new(lane_jobs),
        gpu_seconds: GpuSeconds(Arc::new(move |gpus, begin, end| {
            gpu_seconds(&for_gpus, gpus, begin, end)
        })),
        ends_jobs: plan.ends_jobs,
    };
    JobWorker::start(jobs, options, store.supervisor()).map(Some)
}

/// Returns how long GPUs were busy: the mean share of each, times the length of the interval.
fn gpu_seconds(store: &Store, gpus: &[Box<str>], begin: Millis, end: Millis) -> Option<f64> {
    let held = gpus.to_vec();
    let selector = Selector::filter(move |series| {
        GPU_RATIOS.contains(&series.name())
            && series
                .label("gpu")
                .is_some_and(|gpu| held.iter().any(|held| **held == *gpu))
    });
    let step = QueryStep {
        millis: ((end - begin) / GPU_STEPS).max(1_000),
        aggregation: Some(StepAggregation::Avg),
    };
    let query = RangeQuery {
        bytes_max: GPU_QUERY_BYTES,
        deadline: Instant::now() + GPU_QUERY_TIME,
        ..RangeQuery::new(selector, begin, end, Some(step))
    };
    let mut means = Vec::new();
    let read = store.query_range(&query, &mut |_, points| {
        let values = points.iter().map(|(_, value)| *value);
        let values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
        if !values.is_empty() {
            means.push(values.iter().sum::<f64>() / values.len() as f64);
        }
    });
    read.ok()?;
    let seconds = (end - begin) as f64 / 1000.0;
    (!means.is_empty()).then(|| means.iter().sum::<f64>() * seconds)
}

/// Returns the figures of the job table, for `/status`.
pub(crate) fn status_json_of_jobs(jobs: &Jobs) -> serde_json::Value {
    let counts = jobs.counts();
    serde_json::json!({
        "running": counts.running,
        "kept": counts.kept,
        "begun": counts.begun,
        "removed": counts.removed,
        "refused": counts.refused,
        "overflows": counts.overflows,
        "write_errors": counts.write_errors,
    })
}

/// A family, and the figure that it shows.
type JobMetric = (Family, fn(&JobCounts) -> u64);

const fn counter(name: &'static str, help: &'static str) -> Family {
    Family::new(name, MetricKind::Counter, "", 0, help)
}

const fn gauge(name: &'static str, help: &'static str) -> Family {
    Family::new(name, MetricKind::Gauge, "", 0, help)
}

static METRICS: [JobMetric; 7] = [
    (
        gauge(
            "pegel_jobs_running",
            "Number of jobs and job steps that run.",
        ),
        |counts| counts.running,
    ),
    (
        gauge(
            "pegel_jobs_kept",
            "Number of jobs and job steps in the job table.",
        ),
        |counts| counts.kept,
    ),
    (
        counter(
            "pegel_jobs_begun_total",
            "Total number of jobs and job steps that began.",
        ),
        |counts| counts.begun,
    ),
    (
        counter(
            "pegel_jobs_removed_total",
            "Total number of jobs and job steps that were removed because of their age or number.",
        ),
        |counts| counts.removed,
    ),
    (
        counter(
            "pegel_jobs_refused_total",
            "Total number of jobs and job steps that were not kept because too many ran.",
        ),
        |counts| counts.refused,
    ),
    (
        counter(
            "pegel_jobs_overflows_total",
            "Total number of times that changes of cgroups were lost; short jobs can be missing.",
        ),
        |counts| counts.overflows,
    ),
    (
        counter(
            "pegel_jobs_write_errors_total",
            "Total number of failed writes of the job table.",
        ),
        |counts| counts.write_errors,
    ),
];

/// The families of the metrics of jobs.
pub(crate) fn families() -> impl Iterator<Item = &'static Family> {
    METRICS.iter().map(|(family, _)| family)
}

/// Publishes the figures of the job table.
#[derive(Debug)]
pub(crate) struct JobMetrics {
    jobs: Jobs,
    families: Vec<Arc<Family>>,
}

impl JobMetrics {
    pub(crate) fn new(jobs: &Jobs) -> Arc<JobMetrics> {
        Arc::new(JobMetrics {
            jobs: jobs.clone(),
            families: families().cloned().map(Arc::new).collect(),
        })
    }
}

impl SelfMetrics for JobMetrics {
    fn readings(&self, put: &mut dyn FnMut(&Arc<Family>, &[(&str, &str)], f64)) {
        // Atomic counters: the sampler never waits for the table.
        let counts = self.jobs.counts();
        for (family, (_, read)) in self.families.iter().zip(&METRICS) {
            put(family, &[], read(&counts) as f64);
        }
    }
}
