//! `GET /api/v1/snapshot`.
use axum::extract::Extension;
use axum::http::{HeaderMap, StatusCode};

use super::{HandlerResult, SharedContext};
use crate::api_error::ApiError;
use crate::guard::Caller;

/// The latest snapshot of this machine.
pub(super) async fn snapshot(
    Extension(context): SharedContext,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
) -> HandlerResult {
    let Some(snapshot) = context.agent.status_source.snapshot() else {
        let message = "the snapshot of this machine is not ready yet";
        return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message)
            .hint("retry in a second, or use `pegel snapshot`"));
    };
    context
        .respond_latest(&caller, &headers, move |buffer| buffer.text(&snapshot))
        .await
}
