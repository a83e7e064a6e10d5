//! `/api/v1/sessions`: records of tasks; and `/api/v1/agent`: the requests with which another
//! version of `pegel session` replaces an agent. The latter never change: see docs/sessions.md.

use axum::Extension;
use axum::http::StatusCode;
use axum::response::Response;
use bytes::Bytes;
use serde_json::{Value, json};

use super::{HandlerResult, SharedContext};
use crate::agent_handles::{SessionCall, SessionClient, SessionRefusal};
use crate::api_error::ApiError;
use crate::guard::{AccessRights, Caller, PeerIdentity};
use crate::json_response::{JSON, json_response};

fn json_reply(value: &Value) -> Response {
    json_response(StatusCode::OK, JSON, value.to_string())
}

/// Executes a call on a blocking thread. All but the list may wait for the disk.
async fn execute(
    context: SharedContext,
    caller: Caller,
    call: SessionCall,
    body: Bytes,
) -> HandlerResult {
    let Extension(context) = context;
    let PeerIdentity::User(uid) = caller.peer else {
        let message = "sessions are started and stopped on the node itself, by a local user";
        return Err(ApiError::new(StatusCode::FORBIDDEN, message.to_owned()));
    };
    let client = SessionClient {
        uid,
        is_owner: caller.rights == AccessRights::Owner,
    };
    let sessions = context.agent.sessions.clone();
    let work = move || {
        let answer = sessions.call(client, call, &body);
        answer.map_err(|refusal| {
            let SessionRefusal { status, message } = refusal;
            let status = StatusCode::from_u16(status);
            ApiError::new(status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), message)
        })
    };
    let rights = caller.rights;
    let answer = match call {
        SessionCall::List => context.executor.read_latest(rights, work).await?,
        _ => context.executor.change(rights, work).await?,
    };
    Ok(json_reply(&answer))
}

pub(super) async fn list(
    context: SharedContext,
    Extension(caller): Extension<Caller>,
) -> HandlerResult {
    execute(context, caller, SessionCall::List, Bytes::new()).await
}

pub(super) async fn start(
    context: SharedContext,
    Extension(caller): Extension<Caller>,
    body: Bytes,
) -> HandlerResult {
    execute(context, caller, SessionCall::Start, body).await
}

pub(super) async fn stop(
    context: SharedContext,
    Extension(caller): Extension<Caller>,
    body: Bytes,
) -> HandlerResult {
    execute(context, caller, SessionCall::Stop, body).await
}

pub(super) async fn credentials(
    context: SharedContext,
    Extension(caller): Extension<Caller>,
    body: Bytes,
) -> HandlerResult {
    execute(context, caller, SessionCall::Credentials, body).await
}

/// `GET /api/v1/agent/version`: returns version, process, node and whether this agent may be
/// replaced.
pub(super) async fn agent_version(Extension(context): SharedContext) -> Response {
    json_reply(&json!({
        "version": context.agent.version,
        "pid": std::process::id(),
        "node": context.agent.node,
        "supervised": context.agent.stop_supervised.is_some(),
    }))
}

/// `POST /api/v1/agent/flush`: writes everything to the spools of the sessions.
pub(super) async fn agent_flush(
    context: SharedContext,
    Extension(caller): Extension<Caller>,
) -> HandlerResult {
    execute(context, caller, SessionCall::Flush, Bytes::new()).await
}

/// `POST /api/v1/agent/stop`: stops an agent that `pegel session start` started. Other agents
/// belong to a service manager or a user.
pub(super) async fn agent_stop(Extension(context): SharedContext) -> HandlerResult {
    let Some(stop) = &context.agent.stop_supervised else {
        let message = "this agent was not started by `pegel session start`";
        return Err(ApiError::new(StatusCode::CONFLICT, message.to_owned())
            .hint("stop it with the service manager or with SIGTERM"));
    };
    stop();
    Ok(json_reply(&json!({"stopping": true})))
}
