use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;

use super::{Answer, Shared};
use crate::failure::Failure;
use crate::guard::Caller;
use crate::negotiate;

/// What this machine is, as the agent saw it last.
pub(super) async fn snapshot(
    State(site): Shared,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
) -> Answer {
    let Some(snapshot) = site.app.source.snapshot() else {
        let message = "the snapshot of this machine is not taken yet";
        return Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, message)
            .hint("ask again in a second, or use `pegel snapshot`"));
    };
    let gzip = negotiate::gzip(&headers);
    let mut room = site.answers.room();
    let made = site.answers.look(caller.rights, move || {
        room.text(&snapshot)?;
        room.finish("application/json", gzip)
    });
    Ok(made.await?.into_response())
}
