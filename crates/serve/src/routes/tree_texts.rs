//! `POST /tree/texts`: names, labels and descriptions of this agent's series and of those of the
//! nodes below it, for a parent. To all other clients this path does not exist.

use std::time::Instant;

use axum::extract::Extension;
use axum::http::Uri;
use axum::response::IntoResponse;
use bytes::Bytes;
use pegel_query::promql::QueryCancellation;

use super::prometheus::CancelOnDrop;
use super::tree_select::{SELECT_TIME, check_peer, promql_failure};
use super::{HandlerResult, SharedContext};
use crate::api_error::ApiError;
use crate::guard::Caller;
use crate::json_response::JSON;
use crate::request_history::RequestHistory;
use crate::tree::{
    ChosenNodes, FanOutLimits, NodeChoice, RequestTree, TextList, TextRequest, TreeDeadline,
    own_texts, texts_of_nodes,
};

pub(super) async fn texts(
    Extension(context): SharedContext,
    Extension(caller): Extension<Caller>,
    RequestTree(tree): RequestTree,
    deadline: Option<Extension<TreeDeadline>>,
    uri: Uri,
    body: Bytes,
) -> HandlerResult {
    check_peer(&caller, &uri)?;
    let request: TextRequest = serde_json::from_slice(&body)
        .map_err(|error| ApiError::bad_request(format!("malformed request: {error}")))?;
    let deadline = deadline.map_or(Instant::now() + SELECT_TIME, |Extension(deadline)| {
        deadline.0
    });
    let cancellation = QueryCancellation::default();
    let _cancel = CancelOnDrop(cancellation.clone());
    let limits = FanOutLimits {
        deadline,
        bytes_max: context.settings.response_bytes_max,
        cancellation,
    };
    let mut buffer = context.executor.response_buffer(caller.rights);
    let executor = context.clone();
    let made = executor.executor.query(caller.rights, move || {
        // What is missing from the history of a node makes it late for its parent.
        let history = RequestHistory::of(&context);
        let own_series = context.promql_for(history.as_ref());
        let own = || {
            let texts = own_texts(&own_series, &request, &limits);
            texts.map_err(promql_failure)
        };
        let mut list = match &tree {
            None => TextList {
                texts: own()?,
                late: Vec::new(),
            },
            Some(tree) => {
                let choice = match request.nodes.is_empty() {
                    true => NodeChoice::All,
                    false => NodeChoice::named(request.nodes.iter().cloned()),
                };
                let nodes = ChosenNodes::new(tree.clone(), tree.index(), choice);
                let own = match nodes.includes_own() {
                    true => own()?,
                    false => Default::default(),
                };
                TextList {
                    texts: texts_of_nodes(own, &nodes, &request, &limits)?,
                    late: tree.record.report().late,
                }
            }
        };
        if history.is_some_and(|history| history.is_incomplete()) {
            list.late.push(context.agent.node.clone());
        }
        buffer.json(&list)?;
        buffer.finish(JSON, false)
    });
    Ok(made.await?.into_response())
}
