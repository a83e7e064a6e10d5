//! `GET /api/v1/snapshot`.
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;

use super::{HandlerResult, SharedState};
use crate::api_error::ApiError;
use crate::content_negotiation;
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
    let gzip = content_negotiation::accepts_gzip(&headers);
    let mut buffer = site.executor.response_buffer();
    let made = site.executor.read_latest(caller.rights, move || {
        buffer.text(&snapshot)?;
        buffer.finish("application/json", gzip)
    });
    Ok(made.await?.into_response())
}
