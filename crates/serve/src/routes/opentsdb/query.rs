//! `/api/query` and its variants.
use axum::response::Response;
use pegel_query::{ExpressionRequest, GexpRequest, LastQuery, OpentsdbError, QueryRequest};

use super::super::HandlerResult;
use super::{OpentsdbRequest, opentsdb_error_response, parse_pairs, respond};

/// `GET /api/query?start=1h-ago&m=sum:metric{host=*}`.
pub(super) async fn by_uri(asked: OpentsdbRequest) -> HandlerResult {
    respond(asked, |asked, buffer| {
        let now = asked.context.agent.clock.utc();
        let request = QueryRequest::from_uri(&parse_pairs(&asked.uri)?, now)?;
        Ok(asked.context.engine.query(&request, buffer)?)
    })
    .await
}

/// `POST /api/query`, as Grafana sends it.
pub(super) async fn by_body(asked: OpentsdbRequest) -> HandlerResult {
    respond(asked, |asked, buffer| {
        let now = asked.context.agent.clock.utc();
        let body = asked.plain_body()?;
        let request = QueryRequest::from_json(&body, &parse_pairs(&asked.uri)?, now)?;
        Ok(asked.context.engine.query(&request, buffer)?)
    })
    .await
}

/// Queries cannot delete samples.
pub(super) async fn delete() -> Response {
    opentsdb_error_response(
        &OpentsdbError::bad_request("Deleting data is not enabled")
            .with_details("samples are removed only by the age and size limits of the store"),
    )
}

pub(super) async fn last(asked: OpentsdbRequest) -> HandlerResult {
    respond(asked, |asked, buffer| {
        let query = if asked.has_body() {
            LastQuery::from_json(&asked.plain_body()?)?
        } else {
            LastQuery::from_uri(&parse_pairs(&asked.uri)?)?
        };
        let now = asked.context.agent.clock.utc();
        Ok(buffer.json(&asked.context.engine.last(&query, now)?)?)
    })
    .await
}

/// `GET /api/query/gexp?start=1h-ago&exp=scale(sum:metric,10)`.
pub(super) async fn gexp(asked: OpentsdbRequest) -> HandlerResult {
    respond(asked, |asked, buffer| {
        let now = asked.context.agent.clock.utc();
        let gexp = GexpRequest::from_uri(&parse_pairs(&asked.uri)?, now)?;
        Ok(asked.context.engine.gexp(&gexp, buffer)?)
    })
    .await
}

/// `POST /api/query/exp`.
pub(super) async fn exp(asked: OpentsdbRequest) -> HandlerResult {
    respond(asked, |asked, buffer| {
        let now = asked.context.agent.clock.utc();
        let expressions = ExpressionRequest::from_json(&asked.plain_body()?, now)?;
        Ok(asked.context.engine.exp(&expressions, buffer)?)
    })
    .await
}
