//! `/api/v1/jobs`: the jobs of this node or, on a parent, of all nodes, merged by their ids; and
//! reports of programs about their jobs (POST).
//!
//! Users see their own jobs, operators and the agent's user all: see `Guard::visible_jobs`.

use std::collections::BTreeMap;
use std::time::Instant;

use axum::extract::Extension;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use bytes::Bytes;
use pegel_jobs::{JobEnd, JobInterval, JobReport, JobReportError};
use pegel_metric::Millis;
use serde::Serialize;
use serde_json::json;

use super::node_values::NODE_VALUES_TIME;
use super::nodes_parameter::NodesParameter;
use super::{HandlerResult, SharedContext};
use crate::api_error::ApiError;
use crate::guard::{AccessRights, Caller, JobVisibility, PeerIdentity};
use crate::job_info::{JobUserNames, uid_of_user};
use crate::json_response::{JSON, json_response};
use crate::query_parameters::QueryParameters;
use crate::time_parameters::parse_time;
use crate::tree::{JobRequest, NodeJob, NodeJobs, RequestTree, jobs_of_nodes};

const LIMIT_DEFAULT: usize = 1_000;
const LIMIT_MAX: usize = 20_000;

/// Lists jobs that ran since a time, the newest first.
pub(super) async fn list(
    Extension(context): SharedContext,
    Extension(caller): Extension<Caller>,
    RequestTree(tree): RequestTree,
    uri: Uri,
    headers: HeaderMap,
) -> HandlerResult {
    let accepted = ["since", "user", "job", "steps", "limit", "nodes"];
    let parameters = QueryParameters::parse(&uri, &accepted)?;
    let now = context.agent.clock.utc();
    let nodes = NodesParameter::parse(&parameters)?;
    let visible = context.guard.visible_jobs(&caller);
    let mut request = parse_request(&parameters, now)?;
    if visible == JobVisibility::None {
        return Err(hidden());
    }
    let user = parameters.single("user")?.map(str::to_owned);
    let own = context.agent.clone();
    let write =
        move |found: NodeJobs, buffer: &mut crate::finished_response::ResponseBuffer, limit| {
            let jobs = found.jobs.into_iter();
            let jobs = jobs.filter(|found| visible.includes(found.job.uid));
            buffer.json(&job_list(jobs, found.left_out, limit, now))
        };
    let limit = request.limit;
    context
        .respond_query(&caller, &headers, move |buffer| {
            request.uid = match (&user, visible) {
                (Some(user), _) => Some(uid_of_user(user).ok_or_else(|| unknown_user(user))?),
                (None, JobVisibility::OwnedBy(uid)) => Some(uid),
                (None, _) => None,
            };
            let found = match tree {
                Some(tree) => {
                    let nodes = tree.nodes(nodes.choice())?;
                    let deadline = Instant::now() + NODE_VALUES_TIME;
                    jobs_of_nodes(&own.jobs, &nodes, &request, deadline)?
                }
                None => {
                    nodes.check_single(&own.node)?;
                    let (jobs, left_out) = request.own_jobs(&own.jobs);
                    let host = own.node.clone();
                    let jobs = jobs.into_iter().map(|job| NodeJob {
                        host: host.clone(),
                        job,
                    });
                    NodeJobs {
                        jobs: jobs.collect(),
                        left_out,
                        late: Vec::new(),
                    }
                }
            };
            write(found, buffer, limit)
        })
        .await
}

fn parse_request(parameters: &QueryParameters, now: Millis) -> Result<JobRequest, ApiError> {
    let since = parse_time("since", parameters.single("since")?.unwrap_or("-1d"), now)?;
    let limit = match parameters.single("limit")? {
        None => LIMIT_DEFAULT,
        Some(text) => match text.parse() {
            Ok(limit @ 1..=LIMIT_MAX) => limit,
            _ => {
                return Err(ApiError::bad_request(format!("limit={text}"))
                    .hint(format!("a whole number from 1 to {LIMIT_MAX}")));
            }
        },
    };
    let steps = match parameters.single("steps")? {
        None | Some("0") => false,
        Some("1") => true,
        Some(other) => {
            return Err(ApiError::bad_request(format!("steps={other}")).hint("0 or 1"));
        }
    };
    Ok(JobRequest {
        since,
        uid: None,
        id: parameters.single("job")?.map(str::to_owned),
        steps,
        limit,
        nodes: Vec::new(),
    })
}

fn hidden() -> ApiError {
    let message = "jobs are shown to local users, their own, and to clients with the token";
    ApiError::new(StatusCode::FORBIDDEN, message)
        .hint("use the UNIX socket or loopback; on a parent, /api/v1/jobs?nodes=NAME")
}

fn unknown_user(user: &str) -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, format!("no user {user}"))
        .hint("a name or a number of this machine's users")
}

/// Records what a program reports about its job.
pub(super) async fn report(
    Extension(context): SharedContext,
    Extension(caller): Extension<Caller>,
    body: Bytes,
) -> HandlerResult {
    let PeerIdentity::User(uid) = caller.peer else {
        let message = "jobs are reported on the node itself, by a local user";
        return Err(ApiError::new(StatusCode::FORBIDDEN, message));
    };
    let report: JobReport = serde_json::from_slice(&body)
        .map_err(|error| ApiError::bad_request(format!("malformed report: {error}")))?;
    let sender = caller.peer.sender_name();
    let bytes = body.len() as u64;
    if caller.rights != AccessRights::Owner && !(context.agent.charge_bytes)(&sender, bytes) {
        let message = "too many bytes written by this user";
        return Err(ApiError::new(StatusCode::TOO_MANY_REQUESTS, message).hint("retry later"));
    }
    let now = context.agent.clock.utc();
    let jobs = context.agent.jobs.clone();
    let work = move || jobs.report(uid, &report, now).map_err(refused_report);
    context.executor.change(caller.rights, work).await?;
    Ok(accepted())
}

fn accepted() -> Response {
    json_response(StatusCode::OK, JSON, json!({"accepted": true}).to_string())
}

fn refused_report(error: JobReportError) -> ApiError {
    let status = match error {
        JobReportError::Name | JobReportError::Value(_) => StatusCode::BAD_REQUEST,
        JobReportError::Full => StatusCode::SERVICE_UNAVAILABLE,
    };
    ApiError::new(status, error.to_string())
}

/// The response.
#[derive(Debug, Serialize)]
struct JobList {
    jobs: Vec<ListedJob>,
    /// The number of older jobs that exceed the limit; on a parent, of each node.
    left_out: usize,
}

#[derive(Debug, Serialize)]
struct ListedJob {
    job: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sluid: Option<String>,
    scheduler: String,
    /// Null if unknown.
    user: Option<String>,
    uid: Option<u32>,
    nodes: Vec<String>,
    begin: Millis,
    /// Null while it runs.
    end: Option<Millis>,
    /// In seconds.
    duration: f64,
    /// `running`, or how it ended.
    state: String,
    /// The number of CPUs that it holds on all nodes; null if unknown.
    cpus: Option<u32>,
    cpu_seconds: Option<f64>,
    /// CPU time used, of what it held: 0 to 1.
    cpu_ratio: Option<f64>,
    gpus: Option<usize>,
    gpu_seconds: Option<f64>,
    gpu_ratio: Option<f64>,
    /// The highest of all nodes, in bytes.
    memory_peak: Option<u64>,
    /// The lowest of all nodes, in bytes; null if there is none.
    memory_limit: Option<u64>,
    on_nodes: Vec<JobOnNode>,
}

/// The part of a job on one node.
#[derive(Debug, Serialize)]
struct JobOnNode {
    node: String,
    #[serde(flatten)]
    part: JobPart,
}

#[derive(Debug, Serialize)]
struct JobPart {
    begin: Millis,
    end: Option<Millis>,
    state: String,
    cpus: Option<String>,
    gpus: Option<Vec<String>>,
    cgroup: Option<String>,
    memory_peak: Option<u64>,
    memory_limit: Option<u64>,
    cpu_seconds: Option<f64>,
    gpu_seconds: Option<f64>,
}

/// Merges the jobs of nodes by id, step and user.
fn job_list(
    found: impl Iterator<Item = NodeJob>,
    left_out: usize,
    limit: usize,
    now: Millis,
) -> JobList {
    type JobKey = (Box<str>, Option<Box<str>>, Option<u32>, u32);
    type HostJobKey = (Box<str>, Option<Box<str>>, Option<u32>, String);
    let mut merged: BTreeMap<JobKey, Vec<NodeJob>> = BTreeMap::new();
    // An id may return on a node, as that of a requeued job does: the nth one there belongs to
    // the nth one of other nodes.
    let mut seen: BTreeMap<HostJobKey, u32> = BTreeMap::new();
    for one in found {
        let id = (one.job.job.clone(), one.job.step.clone(), one.job.uid);
        let count = { seen.entry((id.0.clone(), id.1.clone(), id.2, one.host.clone())) }
            .and_modify(|count| *count += 1)
            .or_insert(0);
        let key = (id.0, id.1, id.2, *count);
        merged.entry(key).or_default().push(one);
    }
    let mut users = JobUserNames::default();
    let mut jobs: Vec<ListedJob> = { merged.into_values() }
        .filter_map(|parts| listed_job(parts, &mut users, now))
        .collect();
    jobs.sort_by(|a, b| (b.begin, &b.job).cmp(&(a.begin, &a.job)));
    let more = jobs.len().saturating_sub(limit);
    jobs.truncate(limit);
    JobList {
        jobs,
        left_out: left_out + more,
    }
}

/// Sums what is known of all parts; `None` if it is unknown for one of them.
fn sum_known<T: std::iter::Sum>(values: impl Iterator<Item = Option<T>>) -> Option<T> {
    values.sum()
}

fn listed_job(parts: Vec<NodeJob>, users: &mut JobUserNames, now: Millis) -> Option<ListedJob> {
    let first = parts.first()?.job.clone();
    let jobs = || parts.iter().map(|part| &part.job);
    let begin = jobs().map(|job| job.begin).min()?;
    let end = match jobs().any(JobInterval::is_running) {
        true => None,
        false => jobs().filter_map(|job| job.end).max(),
    };
    let cpu_seconds = sum_known(jobs().map(|job| job.cpu_seconds));
    let held = |count: &dyn Fn(&JobInterval) -> Option<usize>| {
        sum_known(jobs().map(|job| Some(count(job)? as f64 * job.seconds(now))))
    };
    let cpus_held = held(&|job| Some(job.cpus.as_ref()?.count() as usize));
    let gpus_held = held(&|job| Some(job.gpus.as_ref()?.len()));
    let gpu_seconds = sum_known(jobs().map(|job| job.gpu_seconds));
    let ratio = |used: Option<f64>, held: Option<f64>| {
        let ratio = used? / held.filter(|held| *held > 0.0)?;
        Some(rounded(ratio.min(1.0)))
    };
    Some(ListedJob {
        state: worst_state(jobs()),
        cpus: sum_known(jobs().map(|job| Some(job.cpus.as_ref()?.count()))),
        gpus: sum_known(jobs().map(|job| Some(job.gpus.as_ref()?.len()))),
        cpu_ratio: ratio(cpu_seconds, cpus_held),
        gpu_ratio: ratio(gpu_seconds, gpus_held),
        cpu_seconds: cpu_seconds.map(rounded),
        gpu_seconds: gpu_seconds.map(rounded),
        memory_peak: jobs().filter_map(|job| job.memory_peak).max(),
        memory_limit: jobs().filter_map(|job| job.memory_limit).min(),
        duration: (end.unwrap_or(now) - begin).max(0) as f64 / 1000.0,
        begin,
        end,
        user: first.uid.map(|uid| users.name(uid)),
        uid: first.uid,
        job: first.job.into(),
        step: first.step.map(Into::into),
        sluid: first.sluid.map(Into::into),
        scheduler: first.scheduler.into(),
        nodes: {
            let mut nodes: Vec<String> = parts.iter().map(|part| part.host.clone()).collect();
            nodes.sort_unstable();
            nodes.dedup();
            nodes
        },
        on_nodes: parts.into_iter().map(job_on_node).collect(),
    })
}

/// Returns `running` if the job runs on any node, else the end that says most: a failure before a
/// success, and any known end before an unknown one.
fn worst_state<'a>(jobs: impl Iterator<Item = &'a JobInterval> + Clone) -> String {
    if jobs.clone().any(JobInterval::is_running) {
        return "running".to_owned();
    }
    let rank = |end: &JobEnd| match end {
        JobEnd::OutOfMemory => 5,
        JobEnd::Signal(_) => 4,
        JobEnd::Exit(0) => 1,
        JobEnd::Exit(_) => 3,
        JobEnd::Lost => 2,
        JobEnd::Ended => 0,
    };
    let worst = jobs.filter_map(|job| job.ended).max_by_key(rank);
    worst.unwrap_or(JobEnd::Ended).to_string()
}

fn job_on_node(NodeJob { host, job }: NodeJob) -> JobOnNode {
    let gpus = job
        .gpus
        .map(|gpus| gpus.iter().map(|gpu| gpu.to_string()).collect());
    JobOnNode {
        node: host,
        part: JobPart {
            begin: job.begin,
            end: job.end,
            state: { job.ended }.map_or_else(|| "running".to_owned(), |end| end.to_string()),
            cpus: job.cpus.map(|cpus| cpus.to_string()),
            gpus,
            cgroup: (!job.cgroup.is_empty()).then(|| job.cgroup.into()),
            memory_peak: job.memory_peak,
            memory_limit: job.memory_limit,
            cpu_seconds: job.cpu_seconds.map(rounded),
            gpu_seconds: job.gpu_seconds.map(rounded),
        },
    }
}

/// Rounds to what was measured.
fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn job(host: &str, json: Value) -> NodeJob {
        let mut base = json!({
            "job": "17", "scheduler": "slurm", "origin": "cgroup", "uid": 0, "begin": 1_000,
            "end": 11_000, "ended": "ended", "seen": 1_000, "cpus": "0-3", "cpu_seconds": 20.0,
            "memory_peak": 100,
        });
        base.as_object_mut()
            .expect("an object")
            .extend(json.as_object().expect("one").clone());
        NodeJob {
            host: host.to_owned(),
            job: serde_json::from_value(base).expect("a job"),
        }
    }

    fn listed(parts: Vec<NodeJob>) -> Value {
        let list = job_list(parts.into_iter(), 0, 10, 21_000);
        serde_json::to_value(list).expect("JSON")["jobs"].take()
    }

    #[test]
    fn the_parts_of_a_job_are_merged() {
        let jobs = listed(vec![
            job(
                "n2",
                json!({"begin": 500, "memory_peak": 300, "cpu_seconds": 10.0}),
            ),
            job("n1", json!({"ended": "oom", "memory_limit": 400})),
            job(
                "n1",
                json!({"job": "18", "begin": 2_000, "end": null, "cpus": null}),
            ),
        ]);
        assert_eq!(jobs.as_array().expect("a list").len(), 2);
        let (running, merged) = (&jobs[0], &jobs[1]);
        assert_eq!(
            (&running["job"], &running["state"]),
            (&json!("18"), &json!("running"))
        );
        assert_eq!(
            (&running["cpus"], &running["cpu_ratio"]),
            (&Value::Null, &Value::Null)
        );
        assert_eq!(running["duration"], json!(19.0));
        assert_eq!(merged["nodes"], json!(["n1", "n2"]));
        assert_eq!(
            (&merged["begin"], &merged["end"]),
            (&json!(500), &json!(11_000))
        );
        assert_eq!(
            (&merged["state"], &merged["user"]),
            (&json!("oom"), &json!("root"))
        );
        assert_eq!(
            (&merged["cpus"], &merged["cpu_seconds"]),
            (&json!(8), &json!(30.0))
        );
        // Of 4 CPUs for 10 s and 4 for 10.5 s.
        assert_eq!(merged["cpu_ratio"], json!(0.3659));
        assert_eq!(
            (&merged["memory_peak"], &merged["memory_limit"]),
            (&json!(300), &json!(400))
        );
        assert_eq!(merged["on_nodes"][1]["cpus"], json!("0-3"));
    }

    #[test]
    fn an_id_that_returned_and_jobs_of_other_users_are_jobs_of_their_own() {
        let jobs = listed(vec![
            job("n1", json!({"begin": 5_000})),
            job("n1", json!({})),
            job("n1", json!({"uid": 7})),
        ]);
        assert_eq!(jobs.as_array().expect("a list").len(), 3);
    }
}
