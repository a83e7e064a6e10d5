//! The server as the tree calls it: requests of a parent reach the same router as those of clients,
//! with the rights that the client has at the parent, and only to read.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http_body_util::BodyExt;
use pegel_tree_protocol::{
    BodyParts, BoxFuture, LocalServer, TreeCallError, TreeRequest, TreeResponse,
};
use tokio::time::timeout;
use tower_service::Service;

use super::chosen_nodes::TREE_HEADER;
use super::request_tree::TreeDeadline;
use crate::api_error::ApiError;
use crate::guard::{AccessRights, Caller, PeerIdentity};
use crate::routes::is_read_request;
use crate::server_context::{ServerContext, ShutdownStage};

/// The headers of a client's request that are passed on to a node. Credentials and headers of a
/// connection are not among them.
const REQUEST_HEADERS: [&str; 6] = [
    "accept",
    "accept-encoding",
    "content-encoding",
    "content-type",
    "last-event-id",
    "x-prometheus-remote-read-version",
];

/// The headers of a node's response that are passed on to a client.
const RESPONSE_HEADERS: [&str; 10] = [
    "allow",
    "cache-control",
    "content-encoding",
    "content-type",
    "location",
    "pegel-nodes",
    "pegel-samples",
    "retry-after",
    "vary",
    "x-prometheus-remote-read-version",
];

/// Returns the headers of a request that are passed on to a node.
pub(crate) fn passed_headers(headers: &HeaderMap) -> Vec<(String, String)> {
    pick_headers(headers, &REQUEST_HEADERS)
}

fn pick_headers(headers: &HeaderMap, names: &[&str]) -> Vec<(String, String)> {
    let mut picked = Vec::new();
    for name in names {
        let values = headers.get_all(*name).iter();
        let values = values.filter_map(|value| value.to_str().ok());
        picked.extend(values.map(|value| ((*name).to_owned(), value.to_owned())));
    }
    picked
}

/// Returns the headers of a node's response that a client gets.
pub(crate) fn returned_headers(headers: &[(String, String)]) -> HeaderMap {
    accepted_headers(headers, &RESPONSE_HEADERS)
}

fn accepted_headers(headers: &[(String, String)], names: &[&str]) -> HeaderMap {
    let mut accepted = HeaderMap::new();
    for (name, value) in headers {
        let name = name.to_ascii_lowercase();
        let is_accepted = names.contains(&name.as_str());
        if let (true, Ok(name), Ok(value)) = (
            is_accepted,
            HeaderName::try_from(name),
            HeaderValue::try_from(value.as_str()),
        ) {
            accepted.append(name, value);
        }
    }
    accepted
}

/// Answers requests that come through the tree.
#[derive(Debug)]
pub(crate) struct TreeServer(pub Arc<ServerContext>);

impl LocalServer for TreeServer {
    fn respond(&self, request: TreeRequest) -> BoxFuture<'_, TreeResponse> {
        Box::pin(async move {
            let response = self.call(request).await;
            let (head, body) = response.into_parts();
            TreeResponse {
                status: head.status.as_u16(),
                headers: pick_headers(&head.headers, &RESPONSE_HEADERS),
                body: Box::new(ResponseParts {
                    node: self.0.agent.node.clone(),
                    body,
                }),
            }
        })
    }
}

impl TreeServer {
    async fn call(&self, request: TreeRequest) -> Response {
        let time = request.deadline;
        let request = match self.http_request(request) {
            Ok(request) => request,
            Err(failure) => return failure.into_response(),
        };
        let mut router = self.0.router.clone();
        match timeout(time, router.call(request)).await {
            Ok(Ok(response)) => response,
            Err(_) => ApiError::timed_out().into_response(),
        }
    }

    fn http_request(&self, request: TreeRequest) -> Result<Request<Body>, ApiError> {
        let context = &self.0;
        if *context.stage.borrow() > ShutdownStage::Serving {
            let message = "the agent is stopping";
            return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message));
        }
        let malformed = || ApiError::bad_request("malformed method or target");
        let method = Method::from_bytes(request.method.as_bytes()).map_err(|_| malformed())?;
        let uri: Uri = request.target.parse().map_err(|_| malformed())?;
        if !request.target.starts_with('/') {
            return Err(malformed());
        }
        let has_mark = request.headers.iter().any(|(name, _)| name == TREE_HEADER);
        let is_of_tree = has_mark && uri.path().starts_with("/tree/");
        if !is_of_tree && !is_read_request(&method, uri.path()) {
            return Err(ApiError::only_reads());
        }
        let rights = match request.is_owner {
            true => AccessRights::Owner,
            false => AccessRights::User,
        };
        let body_bytes_max = context.body_memory.bytes_max(rights);
        if request.body.len() > body_bytes_max {
            return Err(ApiError::body_too_large(body_bytes_max));
        }
        let mut http = Request::new(Body::from(request.body));
        *http.method_mut() = method;
        *http.uri_mut() = uri;
        *http.headers_mut() = accepted_headers(&request.headers, &REQUEST_HEADERS);
        let extensions = http.extensions_mut();
        let peer = match is_of_tree {
            true => PeerIdentity::Tree,
            false => PeerIdentity::ThroughTree,
        };
        extensions.insert(Caller {
            peer,
            rights,
            is_tls: false,
        });
        extensions.insert(context.clone());
        extensions.insert(TreeDeadline(Instant::now() + request.deadline));
        Ok(http)
    }
}

/// The body of a response. Dropping it ends the request.
struct ResponseParts {
    node: String,
    body: Body,
}

impl BodyParts for ResponseParts {
    fn next_part(&mut self) -> BoxFuture<'_, Option<Result<Bytes, TreeCallError>>> {
        Box::pin(async move {
            loop {
                match self.body.frame().await? {
                    Ok(frame) => {
                        if let Ok(data) = frame.into_data() {
                            return Some(Ok(data));
                        }
                    }
                    Err(error) => {
                        return Some(Err(TreeCallError::Failed {
                            node: self.node.clone(),
                            message: error.to_string(),
                        }));
                    }
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_and_cookies_are_not_passed_on() {
        let mut headers = HeaderMap::new();
        for name in [
            "authorization",
            "cookie",
            "host",
            "forwarded",
            "connection",
            "accept",
        ] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static("x"));
        }
        headers.insert(TREE_HEADER, HeaderValue::from_static("1"));
        let passed = passed_headers(&headers);
        assert_eq!(passed, [("accept".to_owned(), "x".to_owned())]);
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let returned = returned_headers(&[
            pair("Set-Cookie", "a=b"),
            pair("Content-Type", "text/plain"),
            pair("transfer-encoding", "chunked"),
            pair("vary", "a\nb"),
        ]);
        assert_eq!(returned.len(), 1);
        assert_eq!(returned["content-type"], "text/plain");
    }
}
