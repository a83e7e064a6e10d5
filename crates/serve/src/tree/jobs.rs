//! The jobs of all nodes, for readers.

use std::time::{Duration, Instant};

use pegel_jobs::{JobFilter, JobInterval, Jobs};
use pegel_metric::Millis;
use pegel_store::QueryError;
use serde::{Deserialize, Serialize};

use super::chosen_nodes::{ChosenNodes, FanOutLimits};

/// The request for jobs; only through the tree.
pub(crate) const JOBS_TARGET: &str = "/tree/jobs";

/// The jobs of all nodes together.
const JOBS_BYTES_MAX: usize = 32 << 20;
const JOBS_TIME: Duration = Duration::from_secs(5);

/// A request as it is sent to nodes.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct JobRequest {
    #[serde(default)]
    pub since: Millis,
    /// Only jobs of this user.
    #[serde(default)]
    pub uid: Option<u32>,
    /// Only the job, or step, with this id.
    #[serde(default)]
    pub id: Option<String>,
    #[serde(default)]
    pub steps: bool,
    pub limit: usize,
    /// Only these nodes; none: all nodes.
    #[serde(default)]
    pub nodes: Vec<String>,
}

impl JobRequest {
    /// Returns the jobs of this agent, and the number of those that exceed the limit.
    pub(crate) fn own_jobs(&self, jobs: &Jobs) -> (Vec<JobInterval>, usize) {
        jobs.list(&JobFilter {
            since: self.since,
            uid: self.uid,
            id: self.id.clone(),
            steps: self.steps,
            limit: self.limit,
        })
    }
}

/// A job and its node.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct NodeJob {
    /// Set by parents, never taken from a node itself.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub host: String,
    pub job: JobInterval,
}

/// The response to a parent.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct NodeJobs {
    pub jobs: Vec<NodeJob>,
    /// The number of jobs that exceed the limit.
    #[serde(default)]
    pub left_out: usize,
    /// Nodes below that did not answer.
    #[serde(default)]
    pub late: Vec<String>,
}

/// Returns the jobs of the chosen nodes, this agent included. Blocks.
pub(crate) fn jobs_of_nodes(
    own: &Jobs,
    nodes: &ChosenNodes,
    request: &JobRequest,
    deadline: Instant,
) -> Result<NodeJobs, QueryError> {
    let limits = FanOutLimits {
        deadline: deadline.min(Instant::now() + JOBS_TIME),
        bytes_max: JOBS_BYTES_MAX,
        cancellation: Default::default(),
    };
    let mut found = NodeJobs::default();
    if nodes.includes_own() {
        let (jobs, left_out) = request.own_jobs(own);
        let host = nodes.index.own.to_string();
        let jobs = jobs.into_iter().map(|job| NodeJob {
            host: host.clone(),
            job,
        });
        found.jobs.extend(jobs);
        found.left_out += left_out;
    }
    let any = |_: &str| true;
    let answers = nodes.ask(&any, &limits, |names| {
        let request = JobRequest {
            nodes: names.to_vec(),
            ..request.clone()
        };
        let body = serde_json::to_vec(&request).unwrap_or_default();
        (JOBS_TARGET.to_owned(), body.into())
    })?;
    for answer in answers {
        let Ok(list) = serde_json::from_slice::<NodeJobs>(&answer.body) else {
            tracing::warn!(child = answer.child, "malformed jobs of a node");
            nodes.miss_child(&answer.child, &any);
            continue;
        };
        nodes.miss(&answer.child, list.late.iter().map(String::as_str), &any);
        found.left_out += list.left_out;
        for NodeJob { host, job } in list.jobs {
            let host = nodes.checked_host(&answer, host, &any);
            found.jobs.extend(host.map(|host| NodeJob { host, job }));
        }
    }
    Ok(found)
}
