use std::sync::atomic::Ordering;

use axum::Extension;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use pegel_metric::Account;
use serde_json::{Map, Value, json};

use super::Shared;
use crate::failure::Failure;
use crate::guard::{Caller, Rights};

/// The agent itself. Times are milliseconds, `rate` is in seconds.
pub(super) async fn status(State(site): Shared) -> impl IntoResponse {
    let app = &site.app;
    let store = app.store.status();
    let degraded = app.degraded().is_some();
    let mut status = app.source.facts();
    let refused: Map<String, Value> = site
        .refusals
        .all()
        .into_iter()
        .map(|(name, count)| (name.to_owned(), count.into()))
        .collect();
    let ours = json!({
        "node": app.node,
        "version": app.version,
        "pid": std::process::id(),
        "started": app.started,
        "level": app.level,
        "rate": app.rate.as_secs_f64(),
        "degraded": degraded,
        "collectors": app.source.collectors(),
        "inputs": app.store.ledger().accounts().iter().map(account).collect::<Vec<_>>(),
        "senders": app.intake.sender_statuses(),
        "lanes": app.intake.lanes_status(),
        "statsd": app.statsd.as_ref().map(|statsd| statsd.status()),
        "watching": {
            "ebpf": site.station.obstacle().is_none(),
            "why_not": site.station.obstacle(),
            "programs": site.station.programs(),
        },
        "store": store,
        "http": {
            "connections": site.seats.tcp.taken(),
            "socket_connections": site.seats.socket.taken(),
            "body_bytes": site.bodies.held(),
            "refused": refused,
            "limited": site.limited.all(),
            "guard": site.guard.describe(),
            "name_collisions": site.collisions.load(Ordering::Relaxed),
        },
    });
    if let Value::Object(ours) = ours {
        status.extend(ours);
    }
    let headers = [
        (header::CONTENT_TYPE, "application/json"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (headers, Value::Object(status).to_string())
}

/// The configuration in force, key by key, without secrets.
pub(super) async fn config(State(site): Shared) -> impl IntoResponse {
    let headers = [
        (header::CONTENT_TYPE, "application/json"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (headers, site.app.source.config().to_string())
}

fn account(account: &Account) -> Value {
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

/// Open to everyone, so that a health check needs no token. Strangers learn only whether all is well.
pub(super) async fn healthz(
    State(site): Shared,
    Extension(caller): Extension<Caller>,
) -> Result<&'static str, Failure> {
    match site.app.degraded() {
        None => Ok("ok\n"),
        Some(reason) => {
            let reason = match caller.rights {
                Rights::None => "degraded".to_owned(),
                Rights::User | Rights::Owner => reason,
            };
            Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, reason))
        }
    }
}
