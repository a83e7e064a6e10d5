//! OpenTSDB's HTTP API, mainly for Grafana. Handlers only parse the request; the query engine
//! produces the response.

mod annotation;
mod name_lookup;
mod query;
mod server_info;

use std::io;

use axum::extract::Query;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use pegel_query::{OpentsdbError, QueryParams};
use serde_json::{Value, json};

use super::HandlerResult;
use super::query_http_request::{QueryFailure, QueryHttpRequest};
use crate::finished_response::ResponseBuffer;
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

/// Responds with what `write` writes, or with its error.
async fn respond(
    asked: QueryHttpRequest,
    write: impl FnOnce(&mut QueryHttpRequest, &mut ResponseBuffer) -> Result<(), OpentsdbFailure>
    + Send
    + 'static,
) -> HandlerResult {
    let made = asked.respond(OPENTSDB_JSON, |asked, buffer| {
        write(asked, buffer).map_err(|failure| match failure {
            QueryFailure::Query(OpentsdbError::Write(error)) => buffer.write_error(&error).into(),
            other => other,
        })
    });
    match made.await {
        Ok(finished) => Ok(finished.into_response()),
        Err(QueryFailure::Query(problem)) => Ok(opentsdb_error_response(&problem)),
        Err(QueryFailure::Api(failure)) => Err(failure),
    }
}

type OpentsdbFailure = QueryFailure<OpentsdbError>;

impl From<OpentsdbError> for OpentsdbFailure {
    fn from(problem: OpentsdbError) -> OpentsdbFailure {
        QueryFailure::Query(problem)
    }
}

impl From<io::Error> for OpentsdbFailure {
    fn from(error: io::Error) -> OpentsdbFailure {
        QueryFailure::Query(OpentsdbError::Write(error))
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
