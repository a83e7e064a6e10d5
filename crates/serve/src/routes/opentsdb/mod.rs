//! OpenTSDB's HTTP API, mainly for Grafana. Handlers only parse the request; the query engine
//! produces the response.

mod annotation;
mod name_lookup;
mod query;
mod server_info;

use std::io;
use std::sync::Arc;

use axum::extract::{FromRequest, Query, Request};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use bytes::Bytes;
use pegel_query::{OpentsdbError, QueryParams};
use serde_json::{Value, json};

use super::{HandlerResult, ServerContext};
use crate::api_error::ApiError;
use crate::content_negotiation;
use crate::finished_response::{FinishedResponse, ResponseBuffer};
use crate::guard::{AccessRights, Caller};
use crate::json_response::{OPENTSDB_JSON, json_response};

type OpentsdbRoute = (&'static str, fn() -> MethodRouter);

/// All routes require [`Access::Read`](super::Access). Methods other than GET may change something,
/// and require the rights for that.
pub(super) const ROUTES: &[OpentsdbRoute] = &[
    ("/api/query", queries),
    ("/api/query/last", || get_and_post(query::last)),
    ("/api/query/gexp", || get(query::gexp)),
    ("/api/query/exp", || post(query::exp)),
    ("/api/suggest", || get_and_post(name_lookup::suggest)),
    ("/api/search/lookup", || get_and_post(name_lookup::lookup)),
    ("/api/aggregators", || {
        get_and_post(server_info::aggregators)
    }),
    ("/api/config", || get_and_post(server_info::config)),
    ("/api/config/filters", || get_and_post(server_info::filters)),
    ("/api/version", || get_and_post(server_info::version)),
    ("/api/stats", || get_and_post(server_info::stats)),
    ("/api/serializers", || {
        get_and_post(server_info::serializers)
    }),
    ("/api/annotation", annotations),
    ("/api/annotation/bulk", bulk_annotations),
    ("/api/annotations", bulk_annotations),
];

fn queries() -> MethodRouter {
    get(query::by_uri)
        .post(query::by_body)
        .delete(query::delete)
}

fn annotations() -> MethodRouter {
    get(annotation::read)
        .post(annotation::store)
        .put(annotation::store)
        .delete(annotation::delete)
}

fn bulk_annotations() -> MethodRouter {
    post(annotation::store_many)
        .put(annotation::store_many)
        .delete(annotation::delete_many)
}

/// OpenTSDB answers most requests by both GET and POST.
fn get_and_post<H, T>(handler: H) -> MethodRouter
where
    H: axum::handler::Handler<T, ()> + Clone,
    T: 'static,
{
    get(handler.clone()).post(handler)
}

/// Parses the query string. Unknown parameters are ignored, as in OpenTSDB.
fn parse_pairs(uri: &Uri) -> Result<QueryParams, OpentsdbError> {
    let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(uri)
        .map_err(|error| OpentsdbError::bad_request(format!("malformed query string: {error}")))?;
    Ok(QueryParams::new(pairs))
}

/// A request, ready to be handled off the async workers.
struct OpentsdbRequest {
    context: Arc<ServerContext>,
    rights: AccessRights,
    sender: String,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
}

impl<S: Send + Sync> FromRequest<S> for OpentsdbRequest {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<OpentsdbRequest, Response> {
        let extensions = request.extensions();
        let (Some(context), Some(caller)) = (
            extensions.get::<Arc<ServerContext>>(),
            extensions.get::<Caller>(),
        ) else {
            // Unreachable: every request has both.
            return Err(ApiError::internal().into_response());
        };
        Ok(OpentsdbRequest {
            context: context.clone(),
            rights: caller.rights,
            sender: caller.peer.sender_name(),
            method: request.method().clone(),
            uri: request.uri().clone(),
            headers: request.headers().clone(),
            body: Bytes::from_request(request, state)
                .await
                .map_err(IntoResponse::into_response)?,
        })
    }
}

impl OpentsdbRequest {
    /// Whether the query is in the body.
    fn has_body(&self) -> bool {
        self.method != Method::GET && self.method != Method::HEAD
    }

    /// The decompressed body.
    fn plain_body(&mut self) -> Result<Bytes, ApiError> {
        let body = std::mem::take(&mut self.body);
        let memory = &self.context.body_memory;
        let plain = memory.decompress(&self.headers, body, self.rights);
        plain.map_err(|(failure, _)| failure)
    }
}

/// Responds with what `write` writes, or with its error.
async fn respond(
    asked: OpentsdbRequest,
    write: impl FnOnce(&mut OpentsdbRequest, &mut ResponseBuffer) -> Result<(), OpentsdbHandlerError>
    + Send
    + 'static,
) -> HandlerResult {
    let context = asked.context.clone();
    let gzip = content_negotiation::accepts_gzip(&asked.headers);
    let mut buffer = context.executor.response_buffer(asked.rights);
    let (rights, mut asked) = (asked.rights, asked);
    let made = context.executor.query(
        rights,
        move || -> Result<Result<FinishedResponse, OpentsdbError>, ApiError> {
            match write(&mut asked, &mut buffer) {
                Ok(()) => buffer.finish(OPENTSDB_JSON, gzip).map(Ok),
                Err(OpentsdbHandlerError::Opentsdb(OpentsdbError::Write(error))) => {
                    Err(buffer.write_error(&error))
                }
                Err(OpentsdbHandlerError::Opentsdb(problem)) => Ok(Err(problem)),
                Err(OpentsdbHandlerError::Api(failure)) => Err(failure),
            }
        },
    );
    Ok(match made.await? {
        Ok(finished) => finished.into_response(),
        Err(problem) => opentsdb_error_response(&problem),
    })
}

/// Why a request failed: in OpenTSDB's form, or in that of the other routes.
enum OpentsdbHandlerError {
    Opentsdb(OpentsdbError),
    Api(ApiError),
}

impl From<OpentsdbError> for OpentsdbHandlerError {
    fn from(problem: OpentsdbError) -> OpentsdbHandlerError {
        OpentsdbHandlerError::Opentsdb(problem)
    }
}

impl From<ApiError> for OpentsdbHandlerError {
    fn from(failure: ApiError) -> OpentsdbHandlerError {
        OpentsdbHandlerError::Api(failure)
    }
}

impl From<io::Error> for OpentsdbHandlerError {
    fn from(error: io::Error) -> OpentsdbHandlerError {
        OpentsdbHandlerError::Opentsdb(OpentsdbError::Write(error))
    }
}

/// `{"error":{"code","message","details"}}`.
fn opentsdb_error_response(problem: &OpentsdbError) -> Response {
    let status =
        StatusCode::from_u16(problem.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if status.is_server_error() {
        tracing::error!(error = problem as &dyn std::error::Error, "query failed");
    }
    let mut error = json!({"code": status.as_u16(), "message": problem.to_string()});
    if let Some(details) = problem.details() {
        error["details"] = json!(details);
    }
    json_response(status, OPENTSDB_JSON, json!({"error": error}).to_string())
}

fn opentsdb_json(value: &Value) -> Response {
    json_response(StatusCode::OK, OPENTSDB_JSON, value.to_string())
}
