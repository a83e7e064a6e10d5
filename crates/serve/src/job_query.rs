//! Queries with `job=ID`: finds the job, and restricts a source of series to its interval and to
//! the CPUs and devices that it held, on every node.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use pegel_jobs::{JobInterval, JobOrigin, JobScope};
use pegel_metric::{Millis, Selector, Series};
use pegel_query::promql::{
    LabelSet, PromqlError, SampleColumns, SelectedSamples, Selection, SeriesSampleVisitor,
    SeriesSource,
};
use pegel_query::{LatestVisitor, SampleReader};
use pegel_store::{QueryError, RangeQuery, SeriesVisitor};

use crate::api_error::ApiError;
use crate::guard::JobVisibility;
use crate::server_context::ServerContext;
use crate::tree::{HOST, JobRequest, NodeChoice, NodeJob, TreeAccess, jobs_of_nodes};

/// How long the nodes may take to return a job.
const JOB_TIME: Duration = Duration::from_secs(5);
/// The intervals of one id that are looked at, on each node.
const INTERVALS_MAX: usize = 100;

/// A job, and what it held on each of its nodes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct JobOnNodes {
    /// By node; with an empty name on an agent without a tree.
    scopes: BTreeMap<String, JobScope>,
    pub begin: Millis,
    pub end: Millis,
}

impl JobOnNodes {
    /// Finds the job with this id among those that a client may see. Blocks.
    pub(crate) fn find(
        context: &ServerContext,
        tree: Option<&TreeAccess>,
        visible: JobVisibility,
        id: &str,
    ) -> Result<JobOnNodes, ApiError> {
        let request = JobRequest {
            id: Some(id.to_owned()),
            steps: id.contains('.'),
            limit: INTERVALS_MAX,
            ..JobRequest::default()
        };
        let own = &context.agent.jobs;
        let found = match tree {
            None => {
                let (jobs, _) = request.own_jobs(own);
                let host = String::new();
                let on_node = |job| NodeJob {
                    host: host.clone(),
                    job,
                };
                jobs.into_iter().map(on_node).collect()
            }
            Some(tree) => {
                let deadline = Instant::now() + JOB_TIME;
                jobs_of_nodes(own, &tree.all_nodes(), &request, deadline)?.jobs
            }
        };
        let found = found.into_iter();
        let found = found.filter(|found| visible.includes(found.job.uid) && found.job.has_id(id));
        JobOnNodes::of(found, context.agent.clock.utc()).ok_or_else(|| unknown_job(id))
    }

    /// Merges the intervals of one id. Of several on one node the newest counts; names that
    /// programs gave count only if no scheduler knows the job.
    fn of(found: impl Iterator<Item = NodeJob>, now: Millis) -> Option<JobOnNodes> {
        let mut newest: BTreeMap<String, JobInterval> = BTreeMap::new();
        let order = |job: &JobInterval| (job.origin == JobOrigin::Cgroup, job.begin);
        for NodeJob { host, job } in found {
            match newest.get(&host) {
                Some(known) if order(known) >= order(&job) => {}
                _ => drop(newest.insert(host, job)),
            }
        }
        let scopes: BTreeMap<String, JobScope> = { newest.iter() }
            .map(|(host, job)| (host.clone(), JobScope::new(job, now)))
            .collect();
        Some(JobOnNodes {
            begin: scopes.values().map(|scope| scope.begin).min()?,
            end: scopes.values().map(|scope| scope.end).max()?,
            scopes,
        })
    }

    /// Returns the nodes of the job.
    pub(crate) fn nodes(&self) -> NodeChoice {
        NodeChoice::named(self.scopes.keys().cloned())
    }

    /// Returns the part of a range of time in which the job ran; `None` if it did not.
    pub(crate) fn clamp(&self, start: Millis, end: Millis) -> Option<(Millis, Millis)> {
        let clamped = (start.max(self.begin), end.min(self.end));
        (clamped.0 <= clamped.1).then_some(clamped)
    }

    /// Returns the scope of a series, if it belongs to the job.
    fn scope_of<'l>(
        &self,
        labels: impl Iterator<Item = (&'l str, Cow<'l, str>)> + Clone,
    ) -> Option<&JobScope> {
        let mut hosts = labels.clone();
        let host = hosts.find(|(key, _)| *key == HOST).map(|(_, value)| value);
        // Without a tree, a label `host` is the program's own.
        let scope = match self.scopes.get("") {
            Some(scope) => scope,
            None => self.scopes.get(&*host?)?,
        };
        scope.accepts(labels).then_some(scope)
    }
}

fn unknown_job(id: &str) -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, format!("no job {id}"))
        .hint("`pegel jobs` lists the jobs that you may see; steps are named JOB.STEP")
}

/// The part of a source that belongs to a job.
#[derive(Debug)]
pub(crate) struct JobSamples {
    pub source: Arc<dyn SampleReader>,
    pub job: Arc<JobOnNodes>,
}

impl JobSamples {
    fn clamped(&self, query: &RangeQuery) -> Option<RangeQuery> {
        let (start, end) = self.job.clamp(query.start, query.end)?;
        Some(RangeQuery {
            start,
            end,
            ..query.clone()
        })
    }
}

impl SampleReader for JobSamples {
    fn latest(
        &self,
        deadline: Instant,
        selector: &Selector,
        visit: &mut LatestVisitor<'_>,
    ) -> Result<(), QueryError> {
        self.source
            .latest(deadline, selector, &mut |series, latest| {
                let scope = self.job.scope_of(series.labels());
                if scope.is_some_and(|scope| latest.last_sampled >= scope.begin) {
                    visit(series, latest);
                }
            })
    }

    fn series(
        &self,
        query: &RangeQuery,
        visit: &mut dyn FnMut(&Arc<Series>),
    ) -> Result<(), QueryError> {
        let Some(query) = self.clamped(query) else {
            return Ok(());
        };
        self.source.series(&query, &mut |series| {
            if self.job.scope_of(series.labels()).is_some() {
                visit(series);
            }
        })
    }

    fn query_range(
        &self,
        query: &RangeQuery,
        visit: &mut SeriesVisitor<'_>,
    ) -> Result<(), QueryError> {
        let Some(query) = self.clamped(query) else {
            return Ok(());
        };
        self.source.query_range(&query, &mut |series, points| {
            let Some(scope) = self.job.scope_of(series.labels()) else {
                return;
            };
            // The value of a step has the time of its start, which may precede the job.
            let from = scope.begin - query.step.map_or(0, |step| step.millis - 1);
            let first = points.partition_point(|(time, _)| *time < from);
            let last = points.partition_point(|(time, _)| *time <= scope.end);
            if first < last {
                visit(series, &points[first..last]);
            }
        })
    }

    fn time_bounds(&self) -> (Option<Millis>, Option<Millis>) {
        self.source.time_bounds()
    }

    fn is_distributed(&self) -> bool {
        self.source.is_distributed()
    }
}

/// The part of PromQL's series that belongs to a job.
#[derive(Debug)]
pub(crate) struct JobSeries<S> {
    pub source: S,
    pub job: Arc<JobOnNodes>,
}

impl<S: SeriesSource> SeriesSource for JobSeries<S> {
    fn select(
        &self,
        selection: &Selection<'_>,
        visit: &mut SeriesSampleVisitor<'_>,
    ) -> Result<(), PromqlError> {
        let Some((start, end)) = self.job.clamp(selection.start, selection.end) else {
            return Ok(());
        };
        let selection = Selection {
            matchers: selection.matchers,
            input: selection.input,
            start,
            end,
            bytes_max: selection.bytes_max,
            deadline: selection.deadline,
            cancellation: selection.cancellation.clone(),
        };
        self.source.select(&selection, &mut |labels, samples| {
            let Some(scope) = self.job.scope_of(label_pairs(&labels)) else {
                return Ok(());
            };
            let first = samples.times.partition_point(|time| *time < scope.begin);
            let last = samples.times.partition_point(|time| *time <= scope.end);
            if first == 0 && last == samples.times.len() {
                return visit(labels, samples);
            }
            visit_part(labels, samples, first..last, visit)
        })
    }
}

fn label_pairs(labels: &LabelSet) -> impl Iterator<Item = (&str, Cow<'_, str>)> + Clone {
    labels
        .iter()
        .map(|(key, value)| (key, Cow::Borrowed(value)))
}

/// Visits a series with a part of its samples, if there are any.
fn visit_part(
    labels: LabelSet,
    samples: SelectedSamples<'_>,
    part: std::ops::Range<usize>,
    visit: &mut SeriesSampleVisitor<'_>,
) -> Result<(), PromqlError> {
    if part.is_empty() {
        return Ok(());
    }
    let times = samples.times[part.clone()].iter().copied();
    let points: Vec<(Millis, f64)> = times.zip(samples.values[part].iter().copied()).collect();
    visit(labels, SampleColumns::new(&points).samples())
}
