//! `/nodes/NAME/PATH`: the routes of a node of the tree, for reading.
//!
//! The page itself always comes from this agent: a node that serves other scripts could otherwise
//! act for every user of this agent. What a node returns is data; a browser must not run it.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Extension, Path, Request};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use pegel_tree_protocol::{TreeCallError, TreeRequest, TreeResponse};
use tokio::time::timeout;
use tower_service::Service;

use super::{HandlerResult, ServerContext, SharedContext, is_read_request, names_node};
use crate::api_error::ApiError;
use crate::guard::{AccessRights, Caller};
use crate::tree::{OwnSeriesOnly, passed_headers, returned_headers};

/// Responses of nodes run nothing and load nothing in a browser.
const DATA_ONLY: HeaderValue = HeaderValue::from_static("default-src 'none'; sandbox");

/// How long a node may take to begin its response; the limit of a client's request is longer.
const NODE_TIME: Duration = Duration::from_secs(20);
/// How long a stream of changes may last. The page opens it again.
const STREAM_TIME: Duration = Duration::from_secs(86_400);

/// Redirects to the path with a slash at its end: URLs of the page are relative.
pub(super) async fn redirect(Path(_): Path<String>, uri: Uri) -> Response {
    // The last segment, as the client wrote it.
    let segment = uri.path().rsplit('/').next().unwrap_or_default();
    let mut location = format!("{segment}/");
    if let Some(query) = uri.query() {
        location.push('?');
        location.push_str(query);
    }
    let Ok(location) = HeaderValue::try_from(location) else {
        return ApiError::bad_request("malformed path").into_response();
    };
    let headers = [(header::LOCATION, location)];
    (StatusCode::PERMANENT_REDIRECT, headers).into_response()
}

/// Passes a request on to a node and its response back, as it arrives.
pub(super) async fn pass(
    Extension(context): SharedContext,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> HandlerResult {
    let (node, target) = split_path(request.uri())
        .ok_or_else(|| ApiError::bad_request("malformed path").hint("use /nodes/NAME/PATH"))?;
    let path = target.split('?').next().unwrap_or_default();
    if !is_read_request(request.method(), path) {
        return Err(if names_node(path) {
            ApiError::bad_request("a path names one node only").hint("use /nodes/NAME/PATH")
        } else if path.starts_with("/tree/") {
            ApiError::new(StatusCode::NOT_FOUND, format!("no such path: {path}"))
        } else {
            ApiError::only_reads()
        });
    }
    let is_page = path == "/" || path.starts_with("/page/");
    if node == context.agent.node || (is_page && is_node(&context, &node)) {
        return respond_here(&context, request, &target).await;
    }
    let is_stream = path.ends_with("/api/v1/stream");
    let Some(tree) = context.agent.tree.clone() else {
        return Err(ApiError::unknown_node(&node));
    };
    let (head, body) = request.into_parts();
    let body_max = context.body_memory.bytes_max(caller.rights);
    let body = axum::body::to_bytes(body, body_max).await;
    let request = TreeRequest {
        method: head.method.as_str().to_owned(),
        target,
        headers: passed_headers(&head.headers),
        body: body.map_err(|_| ApiError::body_too_large(body_max))?,
        deadline: match is_stream {
            true => STREAM_TIME,
            false => NODE_TIME,
        },
        is_owner: caller.rights == AccessRights::Owner,
    };
    let response = timeout(NODE_TIME, tree.request_node(&node, request)).await;
    let response = response.unwrap_or_else(|_| Err(TreeCallError::TimedOut(node)));
    match response {
        Ok(response) => Ok(stream_response(response)),
        Err(error) => Err(call_error(&error)),
    }
}

/// Splits `/nodes/NAME/PATH?QUERY` into the decoded name and the rest as the client wrote it.
fn split_path(uri: &Uri) -> Option<(String, String)> {
    let rest = uri.path().strip_prefix("/nodes/")?;
    let (node, _) = rest.split_once('/')?;
    let target = &rest[node.len()..];
    let pair = format!("node={}", node.replace('+', "%2B"));
    let (_, node) = form_urlencoded::parse(pair.as_bytes()).next()?;
    let target = match uri.query() {
        Some(query) => format!("{target}?{query}"),
        None => target.to_owned(),
    };
    Some((node.into_owned(), target))
}

fn is_node(context: &ServerContext, node: &str) -> bool {
    let nodes = context.agent.tree.as_ref().map(|tree| tree.nodes());
    nodes.is_some_and(|nodes| nodes.iter().any(|row| row.node == node))
}

/// Responds to a request for this agent itself, or for a file of the page.
async fn respond_here(
    context: &Arc<ServerContext>,
    mut request: Request,
    target: &str,
) -> HandlerResult {
    let uri = target.parse();
    *request.uri_mut() = uri.map_err(|_| ApiError::bad_request("malformed path"))?;
    let mut here = Request::new(Body::empty());
    *here.method_mut() = request.method().clone();
    *here.uri_mut() = request.uri().clone();
    *here.headers_mut() = request.headers().clone();
    // Extensions of the outer route, such as its path parameters, do not apply.
    if let Some(caller) = request.extensions().get::<Caller>() {
        here.extensions_mut().insert(caller.clone());
    }
    here.extensions_mut().insert(context.clone());
    here.extensions_mut().insert(OwnSeriesOnly);
    *here.body_mut() = request.into_body();
    let mut router = context.router.clone();
    // Boxed: the router contains this handler. It is not reached again: the path names no node.
    let Ok(response) = Box::pin(router.call(here)).await;
    Ok(response)
}

fn stream_response(response: TreeResponse) -> Response {
    let status = StatusCode::from_u16(response.status).unwrap_or(StatusCode::BAD_GATEWAY);
    let headers = checked_headers(&response.headers);
    let parts = stream::unfold(response.body, |mut body| async move {
        let part: Result<Bytes, TreeCallError> = body.next_part().await?;
        Some((part, body))
    });
    let mut passed = Response::new(Body::from_stream(parts));
    *passed.status_mut() = status;
    *passed.headers_mut() = headers;
    passed
}

/// Returns the headers of a response, with those that keep browsers from running it.
fn checked_headers(headers: &[(String, String)]) -> HeaderMap {
    let mut headers = returned_headers(headers);
    // Only redirects within the node's own paths. For browsers a backslash is a slash, and control
    // characters are nothing.
    let is_relative = |value: &HeaderValue| {
        let text = value.to_str().unwrap_or_default();
        let is_safe = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b':' | b'\\');
        !text.is_empty() && !text.starts_with('/') && text.bytes().all(is_safe)
    };
    if headers
        .get(header::LOCATION)
        .is_some_and(|value| !is_relative(value))
    {
        headers.remove(header::LOCATION);
    }
    headers.insert(header::CONTENT_SECURITY_POLICY, DATA_ONLY);
    headers
}

fn call_error(error: &TreeCallError) -> ApiError {
    let status = match error {
        TreeCallError::UnknownNode(node) => return ApiError::unknown_node(node),
        TreeCallError::NotConnected(_) => StatusCode::SERVICE_UNAVAILABLE,
        TreeCallError::TimedOut(_) => StatusCode::GATEWAY_TIMEOUT,
        TreeCallError::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
        TreeCallError::Failed { .. } => StatusCode::BAD_GATEWAY,
    };
    ApiError::new(status, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_passed_on_as_they_were_written() {
        let split = |uri: &str| split_path(&uri.parse().expect("a URI"));
        let pair = |node: &str, target: &str| Some((node.to_owned(), target.to_owned()));
        assert_eq!(split("/nodes/n1/"), pair("n1", "/"));
        assert_eq!(
            split("/nodes/n%201/a/%2e?x=%20"),
            pair("n 1", "/a/%2e?x=%20")
        );
        assert_eq!(split("/nodes/a+b/x"), pair("a+b", "/x"));
        assert_eq!(split("/nodes/n1"), None);
    }

    #[test]
    fn responses_of_nodes_are_data() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let headers = checked_headers(&[
            pair("content-type", "text/html"),
            pair("content-security-policy", "script-src *"),
            pair("location", "https://evil.example/"),
            pair("set-cookie", "a=b"),
        ]);
        assert_eq!(
            headers["content-security-policy"],
            "default-src 'none'; sandbox"
        );
        assert!(!headers.contains_key("location") && !headers.contains_key("set-cookie"));
        assert_eq!(checked_headers(&[pair("location", "b/")])["location"], "b/");
        for elsewhere in [
            "//evil.example",
            "\\\\evil.example",
            "\t//evil.example",
            "https:evil",
        ] {
            let headers = checked_headers(&[pair("location", elsewhere)]);
            assert!(!headers.contains_key("location"), "{elsewhere:?}");
        }
    }
}
