//! The calls that Dragon's telemetry makes to a node's store besides writing points, with the same
//! responses: exchanging the key for a token, and stopping the agent. Only an agent that a job
//! started can be stopped by these calls.

use std::sync::Arc;

use axum::Extension;
use axum::http::{Method, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use pegel_wire::dragon;
use serde_json::{Value, json};

use super::{HandlerResult, ServerContext, SharedContext};
use crate::api_error::ApiError;
use crate::guard::Caller;
use crate::json_response::{JSON, json_response};

fn json_reply(status: StatusCode, value: &Value) -> Response {
    json_response(status, JSON, value.to_string())
}

pub(super) async fn ready() -> Response {
    json_reply(StatusCode::OK, &json!({"is_ready": true}))
}

/// Announces a shutdown. Nothing here depends on it.
pub(super) async fn set_shutdown(
    Extension(context): SharedContext,
    method: Method,
) -> HandlerResult {
    check_may_stop(&context, &method)?;
    let reply = json!({"success": 1, "failed": 0, "errors": []});
    Ok(json_reply(StatusCode::OK, &reply))
}

/// Stops an agent that a job started. The responses of Dragon's node store and of its aggregator
/// differ; this one contains both.
pub(super) async fn shutdown(Extension(context): SharedContext, method: Method) -> HandlerResult {
    let finish = check_may_stop(&context, &method)?;
    finish();
    let answer = json!({"shutdown": true, "shutdown_begin": true});
    Ok(json_reply(StatusCode::OK, &answer))
}

fn check_may_stop<'a>(
    context: &'a ServerContext,
    method: &Method,
) -> Result<&'a Arc<dyn Fn() + Send + Sync>, ApiError> {
    if *method == Method::HEAD {
        let message = "HEAD does not stop the agent";
        return Err(ApiError::new(StatusCode::METHOD_NOT_ALLOWED, message).hint("use GET"));
    }
    context.agent.request_stop.as_ref().ok_or_else(|| {
        let message = "this agent was not started by a job and cannot be stopped by one";
        ApiError::new(StatusCode::FORBIDDEN, message).hint(
            "stop it the way it was started; only an agent with --until-pid, $DRAGON_TELEMETRY_LEVEL or a key of Dragon's \
             in its configuration can be stopped like this",
        )
    })
}

/// Exchanges the configured key for a token.
pub(super) async fn token(
    Extension(context): SharedContext,
    Extension(caller): Extension<Caller>,
    body: Bytes,
) -> Response {
    let key = dragon::auth_key(&body).ok();
    let bearer = key.and_then(|key| context.guard.exchange_auth_key(&caller, &key));
    match bearer {
        Some(bearer) => json_reply(StatusCode::OK, &json!({"access_token": bearer})),
        None => json_reply(StatusCode::BAD_REQUEST, &json!({"msg": "Bad auth_key"})),
    }
}
