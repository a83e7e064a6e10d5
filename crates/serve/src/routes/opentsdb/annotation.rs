use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use pegel_query::{Annotation, BulkDelete, Change, Problem};
use serde_json::json;

use super::super::{Answer, Shared, Site};
use super::{pairs, refusal};
use crate::failure::Failure;

/// The one at a time, of a series or of all.
pub(super) async fn read(State(site): Shared, uri: Uri) -> Response {
    let found = pairs(&uri).and_then(|pairs| {
        let (tsuid, start) = Change::from_uri(&pairs)?.key()?;
        let missing = || Problem::new(404, "Unable to locate annotation in storage");
        site.engine
            .annotations
            .get(&tsuid, start)
            .ok_or_else(missing)
    });
    match found {
        Ok(note) => to_json(&json!(note)),
        Err(problem) => refusal(&problem),
    }
}

/// POST changes what it says, PUT replaces all.
pub(super) async fn change(
    State(site): Shared,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Answer {
    work(site, headers, body, move |site, body| {
        let change = match body.is_empty() {
            true => Change::from_uri(&pairs(&uri)?)?,
            false => Change::from_json(&body)?,
        };
        let stored = site.engine.annotations.put(change, method == Method::PUT)?;
        Ok(match stored {
            Some(note) => to_json(&json!(note)),
            None => StatusCode::NOT_MODIFIED.into_response(),
        })
    })
    .await
}

pub(super) async fn delete(
    State(site): Shared,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Answer {
    work(site, headers, body, move |site, body| {
        let change = match body.is_empty() {
            true => Change::from_uri(&pairs(&uri)?)?,
            false => Change::from_json(&body)?,
        };
        let (tsuid, start) = change.key()?;
        match site.engine.annotations.delete(&tsuid, start)? {
            true => Ok(StatusCode::NO_CONTENT.into_response()),
            false => Err(Problem::new(404, "Unable to locate annotation in storage")),
        }
    })
    .await
}

pub(super) async fn change_many(
    State(site): Shared,
    method: Method,
    headers: HeaderMap,
    body: Bytes,
) -> Answer {
    work(site, headers, body, move |site, body| {
        let notes = &site.engine.annotations;
        let mut stored: Vec<Annotation> = Vec::new();
        for change in Change::list(&body)? {
            let (tsuid, start) = change.key()?;
            let note = notes.put(change, method == Method::PUT)?;
            stored.extend(note.or_else(|| notes.get(&tsuid, start)));
        }
        Ok(to_json(&json!(stored)))
    })
    .await
}

pub(super) async fn delete_many(
    State(site): Shared,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Answer {
    work(site, headers, body, move |site, body| {
        let now = site.app.clock.utc();
        let bulk = match body.is_empty() {
            true => BulkDelete::from_uri(&pairs(&uri)?, now)?,
            false => BulkDelete::from_json(&body, now)?,
        };
        let deleted = site.engine.annotations.delete_range(&bulk)?;
        Ok(to_json(&json!({
            "tsuids": bulk.tsuids,
            "global": bulk.global,
            "startTime": bulk.start,
            "endTime": bulk.end,
            "totalDeleted": deleted,
        })))
    })
    .await
}

/// Works off the async workers: a change waits for the disk.
async fn work(
    site: Arc<Site>,
    headers: HeaderMap,
    body: Bytes,
    work: impl FnOnce(&Site, Bytes) -> Result<Response, Problem> + Send + 'static,
) -> Answer {
    let answers = site.clone();
    let done = answers.answers.look(move || {
        let plain = site.bodies.plain(&headers, body);
        let body = plain.map_err(|(failure, _)| failure)?;
        Ok::<_, Failure>(work(&site, body).unwrap_or_else(|problem| refusal(&problem)))
    });
    done.await
}

fn to_json(value: &serde_json::Value) -> Response {
    let headers = [(header::CONTENT_TYPE, "application/json; charset=UTF-8")];
    (headers, value.to_string()).into_response()
}
