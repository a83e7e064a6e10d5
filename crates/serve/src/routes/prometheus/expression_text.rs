//! `/api/v1/format_query` and `/api/v1/parse_query`.

use axum::response::Response;
use pegel_query::promql;

use super::parameters::invalid;
use super::{PrometheusRequest, respond};

/// Returns an expression in one form.
pub(super) async fn format_query(request: PrometheusRequest) -> Response {
    respond(request, |work| {
        let expression = work.parameters.get("query").unwrap_or_default();
        let text = promql::format_expression(expression)
            .map_err(|error| invalid("query", &error.to_string()))?;
        Ok(work.buffer.json(&text)?)
    })
    .await
}

/// Returns the syntax tree of an expression.
pub(super) async fn parse_query(request: PrometheusRequest) -> Response {
    respond(request, |work| {
        let expression = work.parameters.get("query").unwrap_or_default();
        let tree = promql::parse_to_tree(expression)
            .map_err(|error| invalid("query", &error.to_string()))?;
        Ok(work.buffer.json(&tree)?)
    })
    .await
}
