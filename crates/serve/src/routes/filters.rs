//! `/api/v1/filters`: filters of all answers, kept by the store.

use axum::Extension;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use pegel_store::{ReadFilter, ReadFilterError, Store};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{HandlerResult, SharedContext};
use crate::api_error::ApiError;
use crate::guard::Caller;
use crate::json_response::{JSON, json_response};

const ACCEPTS: &str = "{\"match\": \"loss*{rank=\\\"0\\\"}\", \"min\": 0, \"max\": 100}; without min and max the series is hidden";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadFilterBody {
    r#match: String,
    min: Option<f64>,
    max: Option<f64>,
}

/// Returns the filters for `/status` and `/api/v1/filters`.
pub(super) fn filters_json(store: &Store) -> Value {
    store.read_filters().iter().map(filter_json).collect()
}

fn filter_json(filter: &ReadFilter) -> Value {
    let bound = |value: Option<f64>| value.filter(|value| value.is_finite());
    let range = filter.range();
    json!({
        "name": filter.name(),
        "match": filter.pattern(),
        "min": bound(range.map(|range| range.min)),
        "max": bound(range.map(|range| range.max)),
    })
}

fn json_reply(value: &Value) -> Response {
    json_response(StatusCode::OK, JSON, value.to_string())
}

pub(super) async fn all(Extension(context): SharedContext) -> Response {
    json_reply(&filters_json(&context.agent.store))
}

pub(super) async fn one(
    Extension(context): SharedContext,
    Path(name): Path<String>,
) -> HandlerResult {
    let filters = context.agent.store.read_filters();
    let found = filters.iter().find(|filter| filter.name() == name);
    found
        .map(|filter| json_reply(&filter_json(filter)))
        .ok_or_else(|| unknown(&name))
}

/// Adds or replaces a filter. It is durable when the response is sent.
pub(super) async fn set(
    Extension(context): SharedContext,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
    body: Bytes,
) -> HandlerResult {
    let body: ReadFilterBody = serde_json::from_slice(&body).map_err(|error| {
        ApiError::bad_request(format!("malformed filter: {error}")).hint(ACCEPTS)
    })?;
    let filter = ReadFilter::new(&name, &body.r#match, body.min, body.max).map_err(filter_error)?;
    let store = context.agent.store.clone();
    let reply = json_reply(&filter_json(&filter));
    let written = move || store.set_read_filter(filter).map_err(filter_error);
    context.executor.change(caller.rights, written).await?;
    Ok(reply)
}

pub(super) async fn remove(
    Extension(context): SharedContext,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
) -> HandlerResult {
    let store = context.agent.store.clone();
    let removed = name.clone();
    let written = move || store.remove_read_filter(&removed).map_err(filter_error);
    match context.executor.change(caller.rights, written).await? {
        true => Ok(StatusCode::NO_CONTENT.into_response()),
        false => Err(unknown(&name)),
    }
}

fn unknown(name: &str) -> ApiError {
    let message = format!("there is no filter named {name:?}");
    ApiError::new(StatusCode::NOT_FOUND, message).hint("GET /api/v1/filters lists them")
}

fn filter_error(error: ReadFilterError) -> ApiError {
    match error {
        ReadFilterError::Io(error) => {
            let message = format!("cannot write the filters: {error}");
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message)
        }
        ReadFilterError::TooMany => ApiError::new(StatusCode::CONFLICT, error.to_string())
            .hint("remove one with DELETE /api/v1/filters/NAME"),
        error => ApiError::bad_request(error.to_string()).hint(ACCEPTS),
    }
}
