//! The calls that Dragon's telemetry makes to a node's store, with the same responses: writing
//! points, hiding old ones, exchanging the key for a token, and stopping the agent. Points are
//! acknowledged only after the log has accepted them; every refused point is counted. Only an agent
//! that a job started can be stopped by these calls.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use pegel_ingest::point_batch::PointDefaults;
use pegel_metric::{DropReason, Input};
use pegel_wire::dragon;
use serde::Serialize;
use serde_json::json;

use super::{AppState, HandlerResult, SharedState};
use crate::api_error::ApiError;
use crate::guard::Caller;
use crate::json_response::{JSON, json_response};
use crate::point_defaults::DRAGON_DEFAULTS;

/// How many errors are listed; all are counted.
const ERRORS_SHOWN_MAX: usize = 1000;

/// Dragon's response to calls that change something.
#[derive(Serialize)]
struct DragonReply {
    success: u64,
    failed: usize,
    errors: Vec<String>,
}

fn json_reply(status: StatusCode, text: impl Into<Body>) -> Response {
    json_response(status, JSON, text)
}

pub(super) async fn ready() -> Response {
    json_reply(StatusCode::OK, json!({"is_ready": true}).to_string())
}

pub(super) async fn metrics(
    State(site): SharedState,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    body: Bytes,
) -> HandlerResult {
    let app = site.clone();
    let text = app
        .executor
        .write(move || store_metrics(&site, &caller, &headers, body));
    Ok(json_reply(StatusCode::CREATED, text.await?))
}

fn store_metrics(
    site: &Arc<AppState>,
    caller: &Caller,
    headers: &HeaderMap,
    body: Bytes,
) -> Result<Bytes, ApiError> {
    let ingest = &site.agent.ingest;
    let sender = ingest.sender(Input::Http, &caller.peer.sender_name());
    let body = site.decompress_body(&sender, headers, body)?;
    let batch = dragon::metrics(&body).map_err(|error| {
        ingest.count_refused(&sender, DropReason::Malformed);
        ApiError::bad_request(error.to_string())
            .hint("send {\"timestamp\": SECONDS, \"dps\": [{\"metric\",\"value\",\"tags\"}]}")
    })?;
    let defaults = PointDefaults {
        not_before: site.agent.store.hidden_before(Input::Http),
        ..DRAGON_DEFAULTS
    };
    let verdict = ingest.store_batch(&sender, &batch, defaults)?;
    let shown = verdict.refused.iter().take(ERRORS_SHOWN_MAX);
    let mut buffer = site.executor.response_buffer();
    buffer.json(&DragonReply {
        success: verdict.kept,
        failed: verdict.refused.len(),
        errors: shown
            .map(|(index, refused)| match &batch.points[*index] {
                Ok(point) => format!("{}: {refused}", point.name),
                Err(_) => format!("point {index}: {refused}"),
            })
            .collect(),
    })?;
    Ok(buffer.into_bytes())
}

/// Hides samples older than the given time, of series that were written by `/api/metrics`.
pub(super) async fn cleanup(
    State(site): SharedState,
    headers: HeaderMap,
    body: Bytes,
) -> HandlerResult {
    let app = site.clone();
    let work = move || {
        let plain = site.body_memory.decompress(&headers, body);
        let body = plain.map_err(|(failure, _)| failure)?;
        let start = dragon::cleanup_time(&body).map_err(|error| {
            ApiError::bad_request(error.to_string()).hint("send {\"start_time\": SECONDS}")
        })?;
        let now = site.agent.clock.utc();
        // A time in the future would refuse what programs send from now on.
        let start = start.min(now - now.rem_euclid(1000));
        let hidden = site.agent.store.hide_before(Input::Http, start);
        hidden.map_err(|error| {
            let message = format!("cannot record the clean-up: {error}");
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message).hint("retry later")
        })
    };
    app.executor.write(work).await?;
    Ok(json_reply(StatusCode::CREATED, success_reply(0)))
}

fn success_reply(success: u64) -> String {
    json!(DragonReply {
        success,
        failed: 0,
        errors: Vec::new(),
    })
    .to_string()
}

/// Announces a shutdown. Nothing here depends on it.
pub(super) async fn set_shutdown(State(site): SharedState, method: Method) -> HandlerResult {
    check_may_stop(&site, &method)?;
    Ok(json_reply(StatusCode::OK, success_reply(1)))
}

/// Stops an agent that a job started. The responses of Dragon's node store and of its aggregator
/// differ; this one contains both.
pub(super) async fn shutdown(State(site): SharedState, method: Method) -> HandlerResult {
    let finish = check_may_stop(&site, &method)?;
    finish();
    let answer = json!({"shutdown": true, "shutdown_begin": true});
    Ok(json_reply(StatusCode::OK, answer.to_string()))
}

fn check_may_stop<'a>(
    site: &'a AppState,
    method: &Method,
) -> Result<&'a Arc<dyn Fn() + Send + Sync>, ApiError> {
    if *method == Method::HEAD {
        let message = "HEAD does not stop the agent";
        return Err(ApiError::new(StatusCode::METHOD_NOT_ALLOWED, message).hint("use GET"));
    }
    site.agent.request_stop.as_ref().ok_or_else(|| {
        let message = "this agent was not started by a job and cannot be stopped by one";
        ApiError::new(StatusCode::FORBIDDEN, message).hint(
            "stop it the way it was started; only an agent with --until-pid, $DRAGON_TELEMETRY_LEVEL or a key of Dragon's \
             in its configuration can be stopped like this",
        )
    })
}

/// Exchanges the configured key for a token.
pub(super) async fn token(
    State(site): SharedState,
    Extension(caller): Extension<Caller>,
    body: Bytes,
) -> Response {
    let key = dragon::auth_key(&body).ok();
    let bearer = key.and_then(|key| site.guard.exchange_auth_key(&caller, &key));
    match bearer {
        Some(bearer) => json_reply(StatusCode::OK, json!({"access_token": bearer}).to_string()),
        None => json_reply(
            StatusCode::BAD_REQUEST,
            json!({"msg": "Bad auth_key"}).to_string(),
        ),
    }
}
