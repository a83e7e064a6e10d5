//! What OpenTSDB clients read about the server: aggregators, filters, version.
use axum::extract::State;
use axum::response::Response;
use pegel_query::Aggregator;

use super::super::SharedState;
use super::opentsdb_json;

pub(super) async fn aggregators() -> Response {
    opentsdb_json(&serde_json::json!(Aggregator::names()))
}

pub(super) async fn config(State(site): SharedState) -> Response {
    opentsdb_json(&site.engine.config())
}

pub(super) async fn filters() -> Response {
    opentsdb_json(&pegel_query::describe_filters())
}

pub(super) async fn version(State(site): SharedState) -> Response {
    opentsdb_json(&site.engine.version(&site.agent.version))
}

pub(super) async fn stats(State(site): SharedState) -> Response {
    opentsdb_json(&site.engine.stats())
}

pub(super) async fn serializers() -> Response {
    opentsdb_json(&pegel_query::describe_serializers())
}
