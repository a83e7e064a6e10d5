//! The calls of Dragon's telemetry to a node's store, with its answers.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use pegel_ingest::point_batch::PointDefaults;
use pegel_metric::{Input, Reason};
use pegel_wire::dragon;
use serde::Serialize;
use serde_json::json;

use super::{Answer, Shared, Site};
use crate::failure::Failure;
use crate::guard::Caller;
use crate::writes::DRAGON;

/// How many errors are listed; all are counted.
const SHOWN_MAX: usize = 1000;

/// What Dragon answers to whatever changes something.
#[derive(Serialize)]
struct Done {
    success: u64,
    failed: usize,
    errors: Vec<String>,
}

fn as_json(status: StatusCode, text: impl Into<axum::body::Body>) -> Response {
    let headers = [(header::CONTENT_TYPE, "application/json")];
    (status, headers, text.into()).into_response()
}

pub(super) async fn ready() -> Response {
    as_json(StatusCode::OK, json!({"is_ready": true}).to_string())
}

pub(super) async fn metrics(
    State(site): Shared,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    body: Bytes,
) -> Answer {
    let answers = site.clone();
    let text = answers
        .answers
        .write(move || store(&site, &caller, &headers, body));
    Ok(as_json(StatusCode::CREATED, text.await?))
}

fn store(
    site: &Arc<Site>,
    caller: &Caller,
    headers: &HeaderMap,
    body: Bytes,
) -> Result<Bytes, Failure> {
    let intake = &site.app.intake;
    let sender = intake.sender(Input::Http, &caller.peer.account());
    let body = site.plain(&sender, headers, body)?;
    let batch = dragon::metrics(&body).map_err(|error| {
        intake.count_refused(&sender, Reason::Malformed);
        Failure::bad(error.to_string())
            .hint("send {\"timestamp\": SECONDS, \"dps\": [{\"metric\",\"value\",\"tags\"}]}")
    })?;
    let defaults = PointDefaults {
        not_before: site.app.store.hidden_before(Input::Http),
        ..DRAGON
    };
    let verdict = intake.store_batch(&sender, &batch, defaults)?;
    let shown = verdict.refused.iter().take(SHOWN_MAX);
    let mut room = site.answers.room();
    room.json(&Done {
        success: verdict.kept,
        failed: verdict.refused.len(),
        errors: shown
            .map(|(place, refused)| match &batch.points[*place] {
                Ok(point) => format!("{}: {refused}", point.name),
                Err(_) => format!("point {place}: {refused}"),
            })
            .collect(),
    })?;
    Ok(room.into_bytes())
}

/// Hides what is older than the given time, of series that were written by `/api/metrics`.
pub(super) async fn cleanup(State(site): Shared, headers: HeaderMap, body: Bytes) -> Answer {
    let answers = site.clone();
    let work = move || {
        let plain = site.bodies.plain(&headers, body);
        let body = plain.map_err(|(failure, _)| failure)?;
        let start = dragon::cleanup_time(&body).map_err(|error| {
            Failure::bad(error.to_string()).hint("send {\"start_time\": SECONDS}")
        })?;
        let now = site.app.clock.utc();
        // A time to come would refuse what programs send from now on.
        let start = start.min(now - now.rem_euclid(1000));
        let hidden = site.app.store.hide_before(Input::Http, start);
        hidden.map_err(|error| {
            let message = format!("the clean-up cannot be written down: {error}");
            Failure::new(StatusCode::SERVICE_UNAVAILABLE, message).hint("try again later")
        })
    };
    answers.answers.write(work).await?;
    Ok(as_json(StatusCode::CREATED, done(0)))
}

fn done(success: u64) -> String {
    json!(Done {
        success,
        failed: 0,
        errors: Vec::new(),
    })
    .to_string()
}

/// Says that the end is near. Nobody here waits for it.
pub(super) async fn set_shutdown(State(site): Shared, method: Method) -> Answer {
    may_end(&site, &method)?;
    Ok(as_json(StatusCode::OK, done(1)))
}

/// Ends an agent that a job started. The node's store and the aggregator answer with a word of their own each;
/// this is both.
pub(super) async fn shutdown(State(site): Shared, method: Method) -> Answer {
    let finish = may_end(&site, &method)?;
    finish();
    let answer = json!({"shutdown": true, "shutdown_begin": true});
    Ok(as_json(StatusCode::OK, answer.to_string()))
}

fn may_end<'a>(
    site: &'a Site,
    method: &Method,
) -> Result<&'a Arc<dyn Fn() + Send + Sync>, Failure> {
    if *method == Method::HEAD {
        let message = "HEAD asks, and does not end anything";
        return Err(Failure::new(StatusCode::METHOD_NOT_ALLOWED, message).hint("use GET"));
    }
    site.app.finish.as_ref().ok_or_else(|| {
        let message = "this agent was not started by a job, and no job may end it";
        Failure::new(StatusCode::FORBIDDEN, message).hint(
            "stop it where it was started; one with --until-pid, $DRAGON_TELEMETRY_LEVEL or a key of Dragon's \
             in its configuration can be ended like this",
        )
    })
}

/// Exchanges the key of the configuration for a token.
pub(super) async fn token(
    State(site): Shared,
    Extension(caller): Extension<Caller>,
    body: Bytes,
) -> Response {
    let key = dragon::auth_key(&body).ok();
    let bearer = key.and_then(|key| site.guard.exchange(&caller, &key));
    match bearer {
        Some(bearer) => as_json(StatusCode::OK, json!({"access_token": bearer}).to_string()),
        None => as_json(
            StatusCode::BAD_REQUEST,
            json!({"msg": "Bad auth_key"}).to_string(),
        ),
    }
}
