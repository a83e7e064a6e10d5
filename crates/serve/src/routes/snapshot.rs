//! `GET /api/v1/snapshot`.
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode};

use super::{HandlerResult, SharedState};
use crate::api_error::ApiError;
use crate::guard::Caller;

/// The latest snapshot of this machine.
pub(super) async fn snapshot(
    State(site): SharedState,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
) -> HandlerResult {
    let Some(snapshot) = site.agent.status_source.snapshot() else {
        let message = "the snapshot of this machine is not ready yet";
        return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message)
            .hint("retry in a second, or use `pegel snapshot`"));
    };
    site.respond_latest(&caller, &headers, move |buffer| buffer.text(&snapshot))
        .await
}
