//! `POST /tree/jobs`: the jobs of this agent and of the nodes below it, for a parent, which shows
//! clients those that they may see. To all other clients this path does not exist.

use std::time::Instant;

use axum::extract::Extension;
use axum::http::Uri;
use axum::response::IntoResponse;
use bytes::Bytes;

use super::tree_select::{SELECT_TIME, check_peer};
use super::{HandlerResult, SharedContext};
use crate::api_error::ApiError;
use crate::guard::Caller;
use crate::json_response::JSON;
use crate::tree::{
    ChosenNodes, JobRequest, NodeChoice, NodeJob, NodeJobs, RequestTree, TreeDeadline,
    jobs_of_nodes,
};

pub(super) async fn jobs(
    Extension(context): SharedContext,
    Extension(caller): Extension<Caller>,
    RequestTree(tree): RequestTree,
    deadline: Option<Extension<TreeDeadline>>,
    uri: Uri,
    body: Bytes,
) -> HandlerResult {
    check_peer(&caller, &uri)?;
    let request: JobRequest = serde_json::from_slice(&body)
        .map_err(|error| ApiError::bad_request(format!("malformed request: {error}")))?;
    let deadline = deadline.map_or(Instant::now() + SELECT_TIME, |Extension(deadline)| {
        deadline.0
    });
    let mut buffer = context.executor.response_buffer(caller.rights);
    let executor = context.clone();
    let made = executor.executor.query(caller.rights, move || {
        let own = &context.agent.jobs;
        let list = match &tree {
            None => {
                let (jobs, left_out) = request.own_jobs(own);
                let host = String::new();
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
            Some(tree) => {
                let choice = match request.nodes.is_empty() {
                    true => NodeChoice::All,
                    false => NodeChoice::named(request.nodes.iter().cloned()),
                };
                let nodes = ChosenNodes::new(tree.clone(), tree.index(), choice);
                let mut list = jobs_of_nodes(own, &nodes, &request, deadline)?;
                list.late = tree.record.report().late;
                list
            }
        };
        buffer.json(&list)?;
        buffer.finish(JSON, false)
    });
    Ok(made.await?.into_response())
}
