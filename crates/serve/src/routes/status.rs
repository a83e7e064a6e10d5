//! `GET /status`, `GET /api/v1/config` and `GET /healthz`.
use std::sync::atomic::Ordering;

use axum::Extension;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use pegel_metric::InputTotals;
use serde_json::{Map, Value, json};

use super::{SharedContext, filters};
use crate::api_error::ApiError;
use crate::guard::{AccessRights, Caller};
use crate::json_response::{JSON, json_response};

/// The state of the agent. Times are milliseconds, `rate` is in seconds.
pub(super) async fn status(Extension(context): SharedContext) -> impl IntoResponse {
    let app = &context.agent;
    let store = app.store.status();
    let degraded = app.degraded().is_some();
    let mut status = app.status_source.extra_fields();
    let refused: Map<String, Value> = context
        .refusals
        .all()
        .into_iter()
        .map(|(name, count)| (name.to_owned(), count.into()))
        .collect();
    let mut ours = json!({
        "node": app.node,
        "version": app.version,
        "pid": std::process::id(),
        "started": app.started,
        "level": app.level,
        "rate": app.rate.as_secs_f64(),
        "degraded": degraded,
        "collectors": app.status_source.collectors(),
        "inputs": app.store.ledger().totals_by_input().iter().map(account_json).collect::<Vec<_>>(),
        "store": store,
        "filters": filters::filters_json(&app.store),
        "http": {
            "connections": context.connection_limits.tcp.in_use(),
            "socket_connections": context.connection_limits.socket.in_use(),
            "body_bytes": context.body_memory.bytes_in_use(),
            "refused": refused,
            "limited": context.sender_refusals.all(),
            "guard": context.guard.status_json(),
            "name_collisions": context.name_collisions.load(Ordering::Relaxed),
        },
    });
    let participants = context.participants.live_counts();
    if participants.active > 0 || participants.done > 0 {
        ours["participants"] = json!({"active": participants.active, "done": participants.done});
    }
    if app.tree.is_some() {
        let foreign_hosts = context.foreign_hosts.load(Ordering::Relaxed);
        ours["http"]["foreign_hosts"] = foreign_hosts.into();
    }
    if let Value::Object(ours) = ours {
        status.extend(ours);
    }
    uncached_json(&Value::Object(status))
}

/// The configuration in force, key by key, without secrets.
pub(super) async fn config(Extension(context): SharedContext) -> impl IntoResponse {
    uncached_json(&context.agent.status_source.config())
}

fn uncached_json(value: &Value) -> impl IntoResponse + use<> {
    let headers = [(header::CACHE_CONTROL, "no-store")];
    let response = json_response(StatusCode::OK, JSON, value.to_string());
    (headers, response)
}

fn account_json(account: &InputTotals) -> Value {
    let dropped: Map<String, Value> = account
        .dropped
        .iter()
        .map(|(reason, count)| (reason.as_str().to_owned(), (*count).into()))
        .collect();
    json!({
        "input": account.input.as_str(),
        "received": account.received,
        "kept": account.kept,
        "dropped": dropped,
    })
}

/// Open to every client, so that a health check needs no token. Clients without rights learn only
/// whether the agent is healthy.
pub(super) async fn healthz(
    Extension(context): SharedContext,
    Extension(caller): Extension<Caller>,
) -> Result<&'static str, ApiError> {
    match context.agent.degraded() {
        None => Ok("ok\n"),
        Some(reason) => {
            let reason = match caller.rights {
                AccessRights::None => "degraded".to_owned(),
                AccessRights::User | AccessRights::Owner => reason,
            };
            Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, reason))
        }
    }
}
