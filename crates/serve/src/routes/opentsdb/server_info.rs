//! What OpenTSDB clients read about the server: aggregators, filters, version.
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use pegel_query::Aggregator;
use serde_json::Value;

use super::super::SharedState;

fn json_response(value: &Value) -> Response {
    let headers = [(header::CONTENT_TYPE, "application/json; charset=UTF-8")];
    (headers, value.to_string()).into_response()
}

pub(super) async fn aggregators() -> Response {
    json_response(&serde_json::json!(Aggregator::names()))
}

pub(super) async fn config(State(site): SharedState) -> Response {
    json_response(&site.engine.config())
}

pub(super) async fn filters() -> Response {
    json_response(&pegel_query::describe_filters())
}

pub(super) async fn version(State(site): SharedState) -> Response {
    json_response(&site.engine.version(&site.agent.version))
}

pub(super) async fn stats(State(site): SharedState) -> Response {
    json_response(&site.engine.stats())
}

pub(super) async fn serializers() -> Response {
    json_response(&pegel_query::describe_serializers())
}
