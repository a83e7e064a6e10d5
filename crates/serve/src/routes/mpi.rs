//! `GET /api/v1/mpi`: the ranks of MPI programs on all nodes, what they are in, and which of them
//! the others wait for. `POST /tree/mpi` returns the ranks of a node to its parent.
//!
//! A client sees what it sees of command lines: its own processes, and all of them with the rights
//! of the agent's user.

use std::time::{Duration, Instant};

use axum::extract::Extension;
use axum::http::{HeaderMap, Uri};
use axum::response::IntoResponse;
use bytes::Bytes;
use pegel_metric::CommandVisibility;
use pegel_mpi_state::{MpiRank, analyse};
use pegel_query::promql::QueryCancellation;
use serde_json::json;

use super::prometheus::CancelOnDrop;
use super::tree_select::check_peer;
use super::{HandlerResult, ServerContext, SharedContext};
use crate::api_error::ApiError;
use crate::content_negotiation;
use crate::guard::Caller;
use crate::json_response::JSON;
use crate::query_parameters::QueryParameters;
use crate::tree::{
    ChosenNodes, FanOutLimits, MpiRankList, MpiRequest, NodeChoice, RequestTree, TreeAccess,
    TreeDeadline, ranks_of_nodes,
};

/// How long nodes may take to answer.
const MPI_TIME: Duration = Duration::from_secs(5);
/// A rank that has been in one call for so many seconds waits.
const AFTER_DEFAULT: f64 = 10.0;

/// The ranks of this node that a client may see.
fn own_ranks(context: &ServerContext, visible: CommandVisibility) -> Vec<MpiRank> {
    let uid = match visible {
        CommandVisibility::All => None,
        CommandVisibility::OwnedBy(uid) => Some(uid),
        CommandVisibility::None => return Vec::new(),
    };
    let mut ranks = context.agent.status_source.mpi_ranks(uid);
    for rank in &mut ranks {
        rank.node = context.agent.node.clone();
    }
    ranks
}

/// Returns the ranks of this agent, if it is chosen, and of the nodes below it. Blocks.
fn all_ranks(
    context: &ServerContext,
    visible: CommandVisibility,
    tree: Option<&TreeAccess>,
    choice: NodeChoice,
    limits: &FanOutLimits,
) -> Result<Vec<MpiRank>, ApiError> {
    let Some(tree) = tree else {
        return Ok(own_ranks(context, visible));
    };
    let nodes = ChosenNodes::new(tree.clone(), tree.index(), choice);
    let own = match nodes.includes_own() {
        true => own_ranks(context, visible),
        false => Vec::new(),
    };
    Ok(ranks_of_nodes(own, &nodes, limits)?)
}

fn parse_after(text: &str) -> Result<f64, ApiError> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| *seconds >= 0.0);
    seconds
        .filter(|seconds| seconds.is_finite())
        .ok_or_else(|| {
            ApiError::bad_request(format!("after={text}")).hint("a number of seconds, such as 10")
        })
}

/// Compares the ranks of all nodes.
pub(super) async fn mpi(
    Extension(context): SharedContext,
    Extension(caller): Extension<Caller>,
    RequestTree(tree): RequestTree,
    uri: Uri,
    headers: HeaderMap,
) -> HandlerResult {
    let parameters = QueryParameters::parse(&uri, &["job", "after"])?;
    let job = parameters.single("job")?.map(str::to_owned);
    let after = parameters.single("after")?.map(parse_after).transpose()?;
    let after = after.unwrap_or(AFTER_DEFAULT);
    let cancellation = QueryCancellation::default();
    let _cancel = CancelOnDrop(cancellation.clone());
    let limits = FanOutLimits {
        deadline: Instant::now() + MPI_TIME,
        bytes_max: context.settings.response_bytes_max,
        cancellation,
    };
    let visible = caller.visible_commands();
    let gzip = content_negotiation::accepts_gzip(&headers);
    let mut buffer = context.executor.response_buffer(caller.rights);
    let executor = context.clone();
    let made = executor.executor.query(caller.rights, move || {
        let mut ranks = all_ranks(&context, visible, tree.as_ref(), NodeChoice::All, &limits)?;
        if let Some(job) = job {
            ranks.retain(|rank| rank.job == job);
        }
        buffer.json(&json!({"after": after, "jobs": analyse(ranks, after)}))?;
        buffer.finish(JSON, gzip)
    });
    Ok(made.await?.into_response())
}

/// Returns the ranks of this agent and of those below it to a parent.
pub(super) async fn ranks(
    Extension(context): SharedContext,
    Extension(caller): Extension<Caller>,
    RequestTree(tree): RequestTree,
    deadline: Option<Extension<TreeDeadline>>,
    uri: Uri,
    body: Bytes,
) -> HandlerResult {
    check_peer(&caller, &uri)?;
    let request: MpiRequest = serde_json::from_slice(&body)
        .map_err(|error| ApiError::bad_request(format!("malformed request: {error}")))?;
    let cancellation = QueryCancellation::default();
    let _cancel = CancelOnDrop(cancellation.clone());
    let limits = FanOutLimits {
        deadline: deadline.map_or(Instant::now() + MPI_TIME, |Extension(deadline)| deadline.0),
        bytes_max: context.settings.response_bytes_max,
        cancellation,
    };
    let visible = caller.visible_commands();
    let choice = match request.nodes.is_empty() {
        true => NodeChoice::All,
        false => NodeChoice::named(request.nodes),
    };
    let mut buffer = context.executor.response_buffer(caller.rights);
    let executor = context.clone();
    let made = executor.executor.query(caller.rights, move || {
        let ranks = all_ranks(&context, visible, tree.as_ref(), choice, &limits)?;
        let late = tree.map_or_else(Vec::new, |tree| tree.record.report().late);
        buffer.json(&MpiRankList { ranks, late })?;
        buffer.finish(JSON, false)
    });
    Ok(made.await?.into_response())
}
