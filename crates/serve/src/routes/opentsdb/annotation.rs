use axum::extract::State;
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use pegel_query::{Annotation, AnnotationBulkDelete, AnnotationUpdate, OpentsdbError};
use serde_json::json;

use super::super::{Answer, Shared};
use super::{Asked, pairs, refusal};
use crate::failure::Failure;

/// The one at a time, of a series or of all.
pub(super) async fn read(State(site): Shared, uri: Uri) -> Response {
    let found = pairs(&uri).and_then(|pairs| {
        let (tsuid, start) = AnnotationUpdate::from_uri(&pairs)?.key()?;
        let missing = || OpentsdbError::new(404, "Unable to locate annotation in storage");
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
pub(super) async fn change(asked: Asked) -> Answer {
    work(asked, |asked, body| {
        let change = asked_change(asked, &body)?;
        let stored = asked
            .site
            .engine
            .annotations
            .put(change, asked.method == Method::PUT)?;
        Ok(match stored {
            Some(note) => to_json(&json!(note)),
            None => StatusCode::NOT_MODIFIED.into_response(),
        })
    })
    .await
}

pub(super) async fn delete(asked: Asked) -> Answer {
    work(asked, |asked, body| {
        let change = asked_change(asked, &body)?;
        let (tsuid, start) = change.key()?;
        match asked.site.engine.annotations.delete(&tsuid, start)? {
            true => Ok(StatusCode::NO_CONTENT.into_response()),
            false => Err(OpentsdbError::new(
                404,
                "Unable to locate annotation in storage",
            )),
        }
    })
    .await
}

pub(super) async fn change_many(asked: Asked) -> Answer {
    work(asked, |asked, body| {
        let notes = &asked.site.engine.annotations;
        let mut stored: Vec<Annotation> = Vec::new();
        for change in AnnotationUpdate::list_from_json(&body)? {
            let (tsuid, start) = change.key()?;
            let note = notes.put(change, asked.method == Method::PUT)?;
            stored.extend(note.or_else(|| notes.get(&tsuid, start)));
        }
        Ok(to_json(&json!(stored)))
    })
    .await
}

pub(super) async fn delete_many(asked: Asked) -> Answer {
    work(asked, |asked, body| {
        let now = asked.site.app.clock.utc();
        let bulk = match body.is_empty() {
            true => AnnotationBulkDelete::from_uri(&pairs(&asked.uri)?, now)?,
            false => AnnotationBulkDelete::from_json(&body, now)?,
        };
        let deleted = asked.site.engine.annotations.delete_range(&bulk)?;
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

/// What is to change: said in the body, or else in the query.
fn asked_change(asked: &Asked, body: &[u8]) -> Result<AnnotationUpdate, OpentsdbError> {
    match body.is_empty() {
        true => AnnotationUpdate::from_uri(&pairs(&asked.uri)?),
        false => AnnotationUpdate::from_json(body),
    }
}

/// Works off the async workers: a change waits for the disk.
async fn work(
    mut asked: Asked,
    work: impl FnOnce(&Asked, Bytes) -> Result<Response, OpentsdbError> + Send + 'static,
) -> Answer {
    let site = asked.site.clone();
    let done = site.answers.look(asked.rights, move || {
        let body = asked.plain_body()?;
        Ok::<_, Failure>(work(&asked, body).unwrap_or_else(|problem| refusal(&problem)))
    });
    done.await
}

fn to_json(value: &serde_json::Value) -> Response {
    let headers = [(header::CONTENT_TYPE, "application/json; charset=UTF-8")];
    (headers, value.to_string()).into_response()
}
