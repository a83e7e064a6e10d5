//! What OpenTSDB clients read about the server: aggregators, filters, version.
use axum::extract::Extension;
use axum::response::Response;
use pegel_query::Aggregator;

use super::super::SharedContext;
use super::opentsdb_json;

pub(super) async fn aggregators() -> Response {
    opentsdb_json(&serde_json::json!(Aggregator::names()))
}

pub(super) async fn config(Extension(context): SharedContext) -> Response {
    opentsdb_json(&context.engine.config())
}

pub(super) async fn filters() -> Response {
    opentsdb_json(&pegel_query::describe_filters())
}

pub(super) async fn version(Extension(context): SharedContext) -> Response {
    opentsdb_json(&context.engine.version(&context.agent.version))
}

pub(super) async fn stats(Extension(context): SharedContext) -> Response {
    opentsdb_json(&context.engine.stats())
}

pub(super) async fn serializers() -> Response {
    opentsdb_json(&pegel_query::describe_serializers())
}
