use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use pegel_query::Aggregator;
use serde_json::Value;

use super::super::Shared;

fn json(value: &Value) -> Response {
    let headers = [(header::CONTENT_TYPE, "application/json; charset=UTF-8")];
    (headers, value.to_string()).into_response()
}

pub(super) async fn aggregators() -> Response {
    json(&serde_json::json!(Aggregator::names()))
}

pub(super) async fn config(State(site): Shared) -> Response {
    json(&site.engine.config())
}

pub(super) async fn filters() -> Response {
    json(&pegel_query::describe_filters())
}

pub(super) async fn version(State(site): Shared) -> Response {
    json(&site.engine.version(&site.app.version))
}

pub(super) async fn stats(State(site): Shared) -> Response {
    json(&site.engine.stats())
}

pub(super) async fn serializers() -> Response {
    json(&pegel_query::describe_serializers())
}
