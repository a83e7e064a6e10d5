//! `POST /tree/aggregate`: an aggregation of PromQL over this agent and the nodes below it, for a
//! parent. To all other clients this path does not exist.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::Extension;
use axum::http::{StatusCode, Uri};
use axum::response::IntoResponse;
use bytes::Bytes;
use pegel_query::promql::{
    PromqlLimits, QueryCancellation, decode_pushed_request, encode_pushed_series, evaluate_pushed,
};

use super::prometheus::CancelOnDrop;
use super::tree_select::{PROTOBUF, SELECT_TIME, check_peer, promql_failure};
use super::{HandlerResult, SharedContext};
use crate::api_error::ApiError;
use crate::guard::Caller;
use crate::request_history::RequestHistory;
use crate::tree::{
    ChosenNodes, NodeChoice, NodeRecord, RequestTree, TreeDeadline, aggregate_nodes,
};

pub(super) async fn aggregate(
    Extension(context): SharedContext,
    Extension(caller): Extension<Caller>,
    RequestTree(tree): RequestTree,
    deadline: Option<Extension<TreeDeadline>>,
    uri: Uri,
    body: Bytes,
) -> HandlerResult {
    check_peer(&caller, &uri)?;
    let request = decode_pushed_request(&body).map_err(promql_failure)?;
    let received = Instant::now();
    let deadline = deadline.map_or(received + SELECT_TIME, |Extension(deadline)| deadline.0);
    let cancellation = QueryCancellation::default();
    let _cancel = CancelOnDrop(cancellation.clone());
    let mut buffer = context.executor.response_buffer(caller.rights);
    let executor = context.clone();
    let made = executor.executor.query(caller.rights, move || {
        let limits = PromqlLimits {
            time_max: deadline.saturating_duration_since(Instant::now()),
            bytes_max: request.bytes_max.min(context.promql_limits.bytes_max),
            cancellation,
            ..context.promql_limits.clone()
        };
        let own_name = context.agent.node.as_str();
        // What is missing from the history of a node makes it late for its parent.
        let history = RequestHistory::of(&context);
        let own = context.promql_for(history.as_ref());
        let (series, record) = match tree {
            None => {
                let series = evaluate_pushed(&own, &request, None, &limits);
                let record = NodeRecord::default();
                record.expect([own_name]);
                (series.map_err(promql_failure)?, Arc::new(record))
            }
            Some(tree) => {
                let choice = match request.nodes.is_empty() {
                    true => NodeChoice::All,
                    false => NodeChoice::named(request.nodes.iter().cloned()),
                };
                let nodes = ChosenNodes::new(tree.clone(), tree.index(), choice);
                let evaluate_own =
                    |limits: &PromqlLimits| evaluate_pushed(&own, &request, Some(own_name), limits);
                let any = |_: &str| true;
                let series = aggregate_nodes(&nodes, &request, &any, &limits, evaluate_own);
                let series = series.map_err(promql_failure)?;
                // A child of an older version: the parent selects the series instead.
                let unknown = || ApiError::new(StatusCode::NOT_FOUND, "unknown to a node below");
                (series.ok_or_else(unknown)?, tree.record)
            }
        };
        if history.is_some_and(|history| history.is_incomplete()) {
            record.miss([own_name]);
        }
        buffer.adopt(encode_pushed_series(series, record.select_end()))?;
        buffer.finish(PROTOBUF, false)
    });
    Ok(made.await?.into_response())
}
