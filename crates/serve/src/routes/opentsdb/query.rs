//! `/api/query` and its variants.
use axum::response::Response;
use pegel_query::{
    ExpressionRequest, GexpRequest, LastQuery, OpentsdbError, QueryEngine, QueryRequest,
};

use super::super::HandlerResult;
use super::super::query_http_request::QueryHttpRequest;
use super::{opentsdb_error_response, parse_pairs, respond};

/// `GET /api/query?start=1h-ago&m=sum:metric{host=*}`.
pub(super) async fn by_uri(asked: QueryHttpRequest) -> HandlerResult {
    respond(asked, |asked, buffer| {
        let now = asked.context.agent.clock.utc();
        let mut pairs = parse_pairs(&asked.uri)?;
        let job = pairs.take(JOB);
        let request = QueryRequest::from_uri(&pairs, now)?;
        let engine = of_job(asked, engine_for(asked, &request)?, job)?;
        Ok(engine.query(&request, buffer)?)
    })
    .await
}

/// `POST /api/query`, as Grafana sends it.
pub(super) async fn by_body(asked: QueryHttpRequest) -> HandlerResult {
    respond(asked, |asked, buffer| {
        let now = asked.context.agent.clock.utc();
        let body = asked.plain_body()?;
        let mut pairs = parse_pairs(&asked.uri)?;
        let job = pairs.take(JOB);
        let request = QueryRequest::from_json(&body, &pairs, now)?;
        let engine = of_job(asked, engine_for(asked, &request)?, job)?;
        Ok(engine.query(&request, buffer)?)
    })
    .await
}

/// Returns the engine for a query. The annotations of other nodes are read only if the client wants
/// them.
fn engine_for(
    asked: &QueryHttpRequest,
    request: &QueryRequest,
) -> Result<QueryEngine, OpentsdbError> {
    if request.options.no_annotations {
        return Ok(asked.engine());
    }
    Ok(asked.engine_with_annotations((request.start, request.end))?)
}

/// The parameter that restricts a query to a job; OpenTSDB has none of this name.
const JOB: &str = "job";

/// Restricts an engine to a job, if the client names one.
fn of_job(
    asked: &QueryHttpRequest,
    engine: QueryEngine,
    job: Option<String>,
) -> Result<QueryEngine, OpentsdbError> {
    let Some(id) = job else {
        return Ok(engine);
    };
    let restricted = asked.engine_for_job(&engine, &id);
    restricted.map_err(|error| OpentsdbError::bad_request(error.message()))
}

/// Queries cannot delete samples.
pub(super) async fn delete() -> Response {
    opentsdb_error_response(
        &OpentsdbError::bad_request("Deleting data is not enabled")
            .with_details("samples are removed only by the age and size limits of the store"),
    )
}

pub(super) async fn last(asked: QueryHttpRequest) -> HandlerResult {
    respond(asked, |asked, buffer| {
        let query = if asked.has_body() {
            LastQuery::from_json(&asked.plain_body()?)?
        } else {
            LastQuery::from_uri(&parse_pairs(&asked.uri)?)?
        };
        let now = asked.context.agent.clock.utc();
        Ok(buffer.json(&asked.engine().last(&query, now)?)?)
    })
    .await
}

/// `GET /api/query/gexp?start=1h-ago&exp=scale(sum:metric,10)`.
pub(super) async fn gexp(asked: QueryHttpRequest) -> HandlerResult {
    respond(asked, |asked, buffer| {
        let now = asked.context.agent.clock.utc();
        let gexp = GexpRequest::from_uri(&parse_pairs(&asked.uri)?, now)?;
        Ok(asked.engine().gexp(&gexp, buffer)?)
    })
    .await
}

/// `POST /api/query/exp`.
pub(super) async fn exp(asked: QueryHttpRequest) -> HandlerResult {
    respond(asked, |asked, buffer| {
        let now = asked.context.agent.clock.utc();
        let expressions = ExpressionRequest::from_json(&asked.plain_body()?, now)?;
        Ok(asked.engine().exp(&expressions, buffer)?)
    })
    .await
}
